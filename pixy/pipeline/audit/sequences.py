"""Find sequence numbers of idempotent producers that are missing from the log or occur twice. Pure.

An idempotent producer numbers its records in each partition from 0, and starts again with each epoch; a
batch's header has the first number (KIP-98). A missing number is a record that the producer sent and the log
never got, or lost. A repeated number is a retry that was written again. Counts and offsets show neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_MODULUS = 1 << 31
"""Numbers wrap around: 0 follows 2^31 - 1."""


class ObservationKind(StrEnum):
    """The meaning of an observation."""

    MISSING = "missing"
    """Sequence numbers are missing."""
    REPEATED = "repeated"
    """Sequence numbers occurred before."""
    NUMBERED = "numbered"
    """Idempotent producers wrote the offsets."""
    UNNUMBERED = "unnumbered"
    """Other producers wrote the offsets."""


class Observation(NamedTuple):
    """An observation about the offsets ``[start, end)``.

    Attributes:
        producer_id: the producer; -1 where the observation is about none.
        sequence: the first missing or repeated number; -1 where the observation is about none.
        size: how many numbers.
        uncovered: offsets of the range that no batch covers, which may have held the missing numbers.
    """

    kind: ObservationKind
    start: int
    end: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    size: int = 0
    uncovered: int = 0


class Header(NamedTuple):
    """The fields of a batch's header that tracking needs."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool = False

    @property
    def end(self) -> int:
        """The offset after the batch."""
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.base_offset


@dataclass(slots=True)
class _Producer:
    """A producer after its last batch.

    Attributes:
        expected: the next sequence number.
        end: the offset after the batch.
        covered: how many offsets batches covered up to there.
    """

    epoch: int
    expected: int
    end: int
    covered: int = 0


class SequenceTracker:
    """Track one partition's batches in order. Memory grows with the number of producers."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._covered = 0
        self._kind: ObservationKind | None = None
        self._start = self._end = 0

    def add(self, header: Header) -> Iterator[Observation]:
        """Add the next batch; yields its observations."""
        yield from self._numbered_or_not(header)
        if header.producer_id >= 0 and header.base_sequence >= 0 and not header.is_control:
            observation = self._check(header)
            if observation is not None:
                yield observation
        self._covered += header.size
        known = self._producers.get(header.producer_id)
        if known is not None and known.end == header.end:
            known.covered = self._covered

    def finish(self) -> Iterator[Observation]:
        """End the log; yields the last observation."""
        if self._kind is not None:
            yield Observation(self._kind, self._start, self._end)
            self._kind = None

    def _numbered_or_not(self, header: Header) -> Iterator[Observation]:
        if header.is_control:
            return
        kind = ObservationKind.UNNUMBERED if header.producer_id < 0 else ObservationKind.NUMBERED
        if kind is not self._kind:
            yield from self.finish()
            self._kind, self._start = kind, header.base_offset
        self._end = header.end

    def _check(self, header: Header) -> Observation | None:
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return None  # a late batch of a fenced producer, whose numbers were checked before
        expected = 0 if known is None or header.producer_epoch > known.epoch else known.expected
        after = (header.base_sequence + header.size) % _MODULUS
        ahead = (header.base_sequence - expected) % _MODULUS
        if ahead >= _MODULUS // 2 and known is not None:
            return self._repeated(header, expected, after, _MODULUS - ahead)
        begin, covered = (0, 0) if known is None else (known.end, known.covered)
        self._producers[header.producer_id] = _Producer(header.producer_epoch, after, header.end)
        if not ahead:
            return None
        uncovered = header.base_offset - begin - (self._covered - covered)
        if known is None and uncovered >= ahead:
            return None  # its first batches are below the log's start
        return Observation(
            ObservationKind.MISSING,
            begin if known is not None else header.base_offset,
            header.base_offset,
            header.producer_id,
            header.producer_epoch,
            expected,
            ahead,
            uncovered,
        )

    def _repeated(self, header: Header, expected: int, after: int, back: int) -> Observation:
        """Note a batch that starts ``back`` numbers before the expected one."""
        size = min(header.size, back)
        self._producers[header.producer_id] = _Producer(
            header.producer_epoch, after if header.size > back else expected, header.end
        )
        return Observation(
            ObservationKind.REPEATED,
            header.base_offset,
            header.base_offset + size,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            size,
        )


__all__ = ["Header", "Observation", "ObservationKind", "SequenceTracker"]
