"""A stream's progress: the document that Spark keeps in the query's checkpoint. Pure.

    {"version": 1, "topics": {"orders": {"id": "<Kafka's UUID>", "next": {"0": 42}}},
     "from": {"orders": {"0": 0}}, "initial": true}

``from`` has the first offsets of partitions that are new in this document. Until the first batch is
committed, Spark does not keep the result of ``initialOffset`` and asks for it again after a restart. If the
brokers were asked then, ``latest`` would have moved, and the offsets of the planned batch would be skipped.
So the end of a batch also says where it starts, and a batch that is planned again is the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.pipeline.datasource.plan import Range
from pixy.pipeline.errors import CheckpointError, SourceError
from pixy.wire.types import TopicPartition

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """The next offset of each partition.

    Attributes:
        ids: Kafka's UUIDs of the topics; empty if the broker does not send them.
        begin: first offsets of partitions that the document before did not have.
        initial: whether it is a result of ``initialOffset``; every partition is new in the next document.
    """

    next: Mapping[TopicPartition, int]
    ids: Mapping[str, str]
    begin: Mapping[TopicPartition, int] = field(default_factory=dict)
    initial: bool = False

    def document(self) -> dict[str, Any]:
        """Return the document; its order is fixed, because Spark compares documents as text."""
        found: dict[str, Any] = {
            "version": VERSION,
            "topics": {
                topic: {"id": self.ids.get(topic, ""), "next": partitions}
                for topic, partitions in _by_topic(self.next).items()
            },
        }
        if self.begin:
            found["from"] = _by_topic(self.begin)
        if self.initial:
            found["initial"] = True
        return found

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Progress:
        """Return the progress of a document; raises CheckpointError if this source did not write it."""
        try:
            version = document["version"]
            if version != VERSION:
                raise CheckpointError(
                    f"the checkpoint's offsets have version {version!r}; this source reads version {VERSION}"
                )
            topics = document["topics"]
            return cls(
                _partitions({topic: found["next"] for topic, found in topics.items()}),
                {topic: str(found["id"]) for topic, found in topics.items()},
                _partitions(document.get("from", {})),
                bool(document.get("initial", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint's offsets are not those of format pixy: {str(document)[:200]}"
            ) from error

    def same_offsets(self, other: Progress) -> bool:
        """Return whether both have the same next offsets and topic ids."""
        return dict(self.next) == dict(other.next) and dict(self.ids) == dict(other.ids)


def ranges(start: Progress, end: Progress, *, fail_on_data_loss: bool) -> list[Range]:
    """Return the ranges between two documents.

    Args:
        start: end of the batch before.
        end: end of this batch.
        fail_on_data_loss: whether a partition whose end moved backwards is an error.

    Raises:
        SourceError: a partition ends below the offset that was reached.
        CheckpointError: a partition has no start.
    """
    found: list[Range] = []
    if start.document() == end.document():
        return found
    for (topic, partition), until in sorted(end.next.items()):
        tp = topic, partition
        begin = end.begin.get(tp, start.next.get(tp))
        if begin is None:
            raise CheckpointError(f"the checkpoint has no start of {topic}/{partition}")
        if begin > until and fail_on_data_loss:
            raise SourceError(
                f"{topic}/{partition} ends at offset {until}, but was read up to {begin}: the topic was "
                "deleted and created again, or lost its end; failOnDataLoss=false continues"
            )
        if begin < until:
            found.append(Range(topic, partition, begin, until, end.ids.get(topic, "")))
    return found


def _by_topic(partitions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(partitions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _partitions(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


__all__ = ["VERSION", "Progress", "ranges"]
