"""How far a stream is: the document that Spark keeps in the query's checkpoint. Pure.

    {"version": 1, "topics": {"orders": {"id": "<Kafka's UUID>", "next": {"0": 42}}},
     "from": {"orders": {"0": 0}}, "initial": true}

``from`` says where partitions begin that are new with this offset. Spark does not keep what ``initialOffset``
answered until the first batch is committed, and asks again after a restart; were it asked of the brokers then,
``latest`` would be another one, and what the first batch had planned would be skipped. So a batch's end says
where the batch begins, and a batch that is planned again is the same.
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
        ids: by topic, Kafka's UUID of it; empty where the broker tells none.
        begin: where partitions begin that the offset before had not.
        initial: it is what ``initialOffset`` answered: every partition is new with the next one.
    """

    next: Mapping[TopicPartition, int]
    ids: Mapping[str, str]
    begin: Mapping[TopicPartition, int] = field(default_factory=dict)
    initial: bool = False

    def document(self) -> dict[str, Any]:
        """For Spark, which compares documents as text: always in the same order."""
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
        """From Spark; raises CheckpointError for what is none of ours."""
        try:
            version = document["version"]
            if version != VERSION:
                raise CheckpointError(
                    f"the checkpoint's offsets are of version {version!r}; this is version {VERSION} of the source"
                )
            topics = document["topics"]
            return cls(
                _places({topic: found["next"] for topic, found in topics.items()}),
                {topic: str(found["id"]) for topic, found in topics.items()},
                _places(document.get("from", {})),
                bool(document.get("initial", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint's offsets are not of format pixy: {str(document)[:200]}"
            ) from error

    def same_place(self, other: Progress) -> bool:
        """Whether there is nothing between the two."""
        return dict(self.next) == dict(other.next) and dict(self.ids) == dict(other.ids)


def ranges(start: Progress, end: Progress, *, fail_on_data_loss: bool) -> list[Range]:
    """What lies between two offsets; raises SourceError where a partition would go backwards."""
    found: list[Range] = []
    if start.document() == end.document():
        return found
    for (topic, partition), until in sorted(end.next.items()):
        place = topic, partition
        begin = end.begin.get(place, start.next.get(place))
        if begin is None:
            raise CheckpointError(f"the checkpoint does not say where {topic}/{partition} begins")
        if begin > until and fail_on_data_loss:
            raise SourceError(
                f"{topic}/{partition} ends at offset {until}, and was read up to {begin}: the topic was "
                "deleted and created again, or lost its end; failOnDataLoss=false goes on"
            )
        if begin < until:
            found.append(Range(topic, partition, begin, until, end.ids.get(topic, "")))
    return found


def _by_topic(places: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(places.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _places(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


__all__ = ["VERSION", "Progress", "ranges"]
