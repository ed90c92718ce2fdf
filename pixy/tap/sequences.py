"""Gaps in what idempotent producers write, from the heads of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import FirstBatch, Topic

_MODULUS: Final = 1 << 31
_WINDOW: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """A batch begins later than the one before has ended: what was between never passed here."""

    topic: Topic
    partition: int
    producer_id: int
    epoch: int
    expected: int
    found: int


class Sequences:
    """The next sequence of each (producer, epoch, partition)."""

    def __init__(self, limit: int) -> None:
        self._next: LruDict[tuple[int, int, Topic, int], int] = LruDict(limit)
        self.batches = self.gaps = self.repeats = 0

    @property
    def forgotten(self) -> int:
        """Producers' partitions that are not followed any more."""
        return self._next.forgotten

    def clear(self) -> None:
        """Something was not looked at: expect nothing."""
        self._next.clear()

    def see(self, head: FirstBatch) -> SequenceGap | None:
        """Take in a batch; a gap before it, if there is one.

        A batch that begins earlier than expected is one that is sent again, and moves nothing.
        """
        if head.producer_id < 0 or head.base_sequence < 0:
            return None
        self.batches += 1
        key = (head.producer_id, head.epoch, head.topic, head.partition)
        expected = self._next.get(key)
        following = (head.base_sequence + head.last_offset_delta + 1) % _MODULUS
        if expected is None or expected == head.base_sequence:
            self._next[key] = following
            return None
        if (head.base_sequence - expected) % _MODULUS > _WINDOW:
            self.repeats += 1
            return None
        self._next[key] = following
        self.gaps += 1
        return SequenceGap(
            head.topic, head.partition, head.producer_id, head.epoch, expected, head.base_sequence
        )
