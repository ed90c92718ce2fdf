"""End offsets of partitions, each with its age and source, from Fetch, Produce and ListOffsets responses.

The newest response is not always the newest truth: a Fetch that waited was asked before a record was written, a follower
(KIP-392) is behind the leader, and ``read_committed`` sees the log up to the first open transaction only. So a greater
offset always counts; a smaller one counts if it was asked for after the known one had passed, and comes from a leader.
Never one from Produce: the answer to a producer's repeated batch names the offset of the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import Topic

FETCH, PRODUCE, LISTED, STABLE, VERIFIED = "fetch", "produce", "list", "stable", "verify"
"""Sources of an end offset; STABLE is the end for ``read_committed`` and never more than the end of the log."""
_LEADERS: Final = frozenset({LISTED, VERIFIED})
"""Sources that only a partition's leader answers, with what holds when it answers."""
_FOLLOWER_LAG: Final = 30.0
"""Seconds after which a follower is in sync no more (replica.lag.time.max.ms): a smaller end is then no lag of a follower."""


@dataclass(slots=True)
class End:
    """The end offset of a partition."""

    offset: int
    at: float
    """The time of the response, in seconds since the epoch."""
    source: str
    broker: str
    unanswered: float | None = None
    """The time of the first write since then whose end no response told (acks=0, a repeated batch); None if there is none."""


class Ends:
    """The end offsets of at most ``limit`` partitions."""

    def __init__(self, limit: int) -> None:
        self._ends: LruDict[tuple[Topic, int], End] = LruDict(limit)

    @property
    def forgotten(self) -> int:
        """Number of entries evicted at the limit."""
        return self._ends.forgotten

    def set(
        self,
        topic: Topic,
        partition: int,
        offset: int,
        at: float,
        *,
        asked: float | None = None,
        source: str = FETCH,
        broker: str = "",
    ) -> None:
        """Take over an end offset, if it is news.

        Args:
            topic: name or id.
            partition: the partition's number.
            offset: the offset after the last record.
            at: when the response passed, in seconds since the epoch.
            asked: when its request passed; None if that was just before.
            source: a constant of this module.
            broker: the broker that answered.
        """
        known = self._ends.get((topic, partition))
        if known is None:
            self._ends[topic, partition] = End(offset, at, source, broker)
        elif offset >= known.offset or (
            source not in (STABLE, PRODUCE)
            and _smaller_counts(known, at if asked is None else asked, source, broker)
        ):
            if source == STABLE and offset == known.offset:
                return
            known.offset, known.at, known.source, known.broker = offset, max(at, known.at), source, broker
            known.unanswered = None
        elif source == PRODUCE and (at if asked is None else asked) >= known.at:
            # A batch repeated, or a topic made again elsewhere: the end is in doubt until another response tells it.
            self.written_unanswered(topic, partition, at)

    def written_unanswered(self, topic: Topic, partition: int, at: float) -> None:
        """Record a write whose offset no response will tell (acks=0).

        Args:
            topic: name or id.
            partition: the partition's number.
            at: when, in seconds since the epoch.
        """
        known = self._ends.get((topic, partition))
        if known is not None and known.unanswered is None:
            known.unanswered = at

    def get(self, topic: Topic, partition: int) -> End | None:
        """Return a partition's end, None if no response told it."""
        return self._ends.get((topic, partition))

    def rename(self, before: Topic, name: str, partitions: int) -> None:
        """Move ends that were kept under a topic's id to its name.

        Args:
            before: the id.
            name: the name.
            partitions: how many partitions the topic has.
        """
        for number in range(partitions):
            found = self._ends.pop((before, number))
            if found is not None:
                self.set(name, number, found.offset, found.at, source=found.source, broker=found.broker)

    def drop(self, topic: Topic) -> None:
        """Forget the ends of a topic that was deleted."""
        for key in [each for each in self._ends if each[0] == topic]:
            self._ends.pop(key)


def _smaller_counts(known: End, asked: float, source: str, broker: str) -> bool:
    if known.source == STABLE or asked < known.at:
        return known.source == STABLE
    return source in _LEADERS or broker == known.broker or asked - known.at > _FOLLOWER_LAG


def describe(end: End | None) -> dict[str, Any]:
    """Describe an end as the views show it."""
    if end is None:
        return {"end": None, "end_at": None, "end_from": None}
    return {"end": end.offset, "end_at": round(end.at, 3), "end_from": end.source}


__all__ = ["FETCH", "LISTED", "PRODUCE", "STABLE", "VERIFIED", "End", "Ends", "describe"]
