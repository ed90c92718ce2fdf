"""Topics: names by id, numbers of partitions, end offsets, readers and writers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pixy.tap.config import Bounds
from pixy.tap.ends import Ends
from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import Topic
from pixy.wire.json_form import uuid_text

_CLIENTS = 100
"""Readers, and as many writers, remembered for one topic."""


@dataclass
class Usage:
    """Client ids that read or write a topic, each with the time of its last request (seconds since the epoch)."""

    readers: LruDict[str, float] = field(default_factory=lambda: LruDict(_CLIENTS))
    writers: LruDict[str, float] = field(default_factory=lambda: LruDict(_CLIENTS))


class Topics:
    """All topics. A topic is identified by its name, or by its id until a response tells the name."""

    def __init__(self, bounds: Bounds) -> None:
        self._names: LruDict[uuid.UUID, str] = LruDict(bounds.topics)
        self._counts: LruDict[str, int] = LruDict(bounds.topics)
        self._ids: LruDict[str, uuid.UUID] = LruDict(bounds.topics)
        self.ends = Ends(bounds.partitions)
        self._usage: LruDict[Topic, Usage] = LruDict(bounds.topics)

    def learn(self, topics: Iterable[dict[str, Any]]) -> list[str]:
        """Learn from the topics of a Metadata, CreateTopics or DescribeTopicPartitions response.

        Returns:
            Names of topics that were deleted and made again: they have another id than before.
        """
        made_again = []
        for topic in topics:
            name, topic_id = topic.get("Name"), topic.get("TopicId")
            if not name or topic.get("ErrorCode"):
                continue
            count = len(topic["Partitions"]) if "Partitions" in topic else topic.get("NumPartitions", -1)
            if topic_id is not None and topic_id.int:
                before = self._ids.get(name)
                if before is not None and before != topic_id and topic_id not in self._names:
                    made_again.append(name)
                    self.forget(name)
                if topic_id not in self._names:
                    self.ends.rename(topic_id, name, max(count, 0))
                self._names[topic_id] = name
                self._ids[name] = topic_id
            if count > 0:
                self._counts[name] = count
        return made_again

    def forget(self, name: str) -> None:
        """Forget the size and the end offsets of a topic that was deleted."""
        self._counts.pop(name)
        self.ends.drop(name)

    def resolve(self, topic: Topic) -> Topic:
        """Return the topic's name if it is known, otherwise its id."""
        if isinstance(topic, str):
            return topic
        return self._names.get(topic) or topic

    def show(self, topic: Topic) -> str:
        """Return the topic's name, or its id as Kafka prints it."""
        found = self.resolve(topic)
        return found if isinstance(found, str) else uuid_text(found)

    def count(self, topic: Topic) -> int | None:
        """Return the number of partitions, or None if no response told it."""
        found = self.resolve(topic)
        return self._counts.get(found) if isinstance(found, str) else None

    def set_end(self, topic: Topic, partition: int, offset: int, at: float, **how: Any) -> None:
        """Take over a partition's end offset; see :meth:`pixy.tap.ends.Ends.set`."""
        self.ends.set(self.resolve(topic), partition, offset, at, **how)

    def end(self, topic: Topic, partition: int) -> int | None:
        """Return a partition's end offset, or None if no response told it.

        Args:
            topic: name or id.
            partition: the partition's number.
        """
        found = self.ends.get(self.resolve(topic), partition)
        return None if found is None else found.offset

    def used(self, topic: Topic, client_id: str, at: float, *, written: bool) -> None:
        """Record that a client reads or writes a topic.

        Args:
            topic: name or id.
            client_id: the client.
            at: when, in seconds since the epoch.
            written: whether it writes the topic.
        """
        usage = self._usage.get_or_create(self.resolve(topic), Usage)
        (usage.writers if written else usage.readers)[client_id] = at

    def usage(self) -> list[dict[str, Any]]:
        """List topics with their readers and writers, by name."""
        merged: dict[str, dict[str, Any]] = {}
        for topic, usage in self._usage.items():
            found = merged.setdefault(self.show(topic), {"readers": {}, "writers": {}})
            found["readers"].update(usage.readers.items())
            found["writers"].update(usage.writers.items())
        return [
            {
                "topic": name,
                "partitions": self._counts.get(name),
                **{
                    kind: [
                        {"client_id": client_id, "last": round(at, 3)}
                        for client_id, at in sorted(found[kind].items())
                    ]
                    for kind in ("readers", "writers")
                },
            }
            for name, found in sorted(merged.items())
        ]

    def forgotten(self) -> dict[str, int]:
        """Return how many entries were evicted at a limit, by kind."""
        return {
            "topics": self._names.forgotten + self._counts.forgotten + self._usage.forgotten,
            "end_offsets": self.ends.forgotten,
        }
