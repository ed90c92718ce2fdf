"""Find sequence numbers of idempotent producers that are missing, from the headers of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import FirstBatch, Topic

_MODULUS: Final = 1 << 31
_WINDOW: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """A batch begins after the expected sequence number: the records in between did not pass through the tap."""

    topic: Topic
    partition: int
    producer_id: int
    epoch: int
    expected: int
    found: int


class Sequences:
    """The next expected sequence of each (producer, epoch, partition)."""

    def __init__(self, limit: int) -> None:
        self._next: LruDict[tuple[int, int, Topic, int], int] = LruDict(limit)
        self.batches = self.gaps = self.repeats = 0

    @property
    def forgotten(self) -> int:
        """Number of entries evicted at the limit."""
        return self._next.forgotten

    def clear(self) -> None:
        """Forget all sequences, because some requests were not observed."""
        self._next.clear()

    def check(self, batch: FirstBatch) -> SequenceGap | None:
        """Advance the sequence by a batch; return the gap before it, if any.

        A batch that begins before the expected sequence is a retry: it is counted and changes nothing.
        """
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return None
        self.batches += 1
        key = (batch.producer_id, batch.epoch, batch.topic, batch.partition)
        expected = self._next.get(key)
        following = (batch.base_sequence + batch.last_offset_delta + 1) % _MODULUS
        if expected is None or expected == batch.base_sequence:
            self._next[key] = following
            return None
        if (batch.base_sequence - expected) % _MODULUS > _WINDOW:
            self.repeats += 1
            return None
        self._next[key] = following
        self.gaps += 1
        return SequenceGap(
            batch.topic, batch.partition, batch.producer_id, batch.epoch, expected, batch.base_sequence
        )
