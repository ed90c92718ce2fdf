"""Sequence numbers of idempotent producers: what a producer numbered and the log has not, or has twice. Pure.

An idempotent producer numbers its records in each partition from 0, and begins anew with each epoch; a batch's
header has the first number (KIP-98). A number that is missing is a record that the producer sent and the log
never got, or has lost; one that is there twice is a retry that was written again. Counts and offsets show neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_MODULUS = 1 << 31
"""After 2^31 - 1 comes 0."""


class Event(StrEnum):
    """What is told of a range of offsets."""

    MISSING = "missing"
    REPEATED = "repeated"
    NUMBERED = "numbered"
    """Written by idempotent producers."""
    PLAIN = "plain"
    """Written by others."""


class Told(NamedTuple):
    """A range of offsets ``[start, end)`` and what is to be told of it.

    Attributes:
        sequence: the first number that is missing or repeated; -1 where it is about none.
        size: how many numbers.
        uncovered: offsets that no batch of the log covers, in which the missing ones may have been.
    """

    event: Event
    start: int
    end: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    size: int = 0
    uncovered: int = 0


class Header(NamedTuple):
    """Of a batch's header what is needed here."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool = False


@dataclass(slots=True)
class _Producer:
    epoch: int
    expected: int
    """The next number."""
    end: int
    """The next offset after its last batch."""
    covered: int
    """Offsets covered by batches up to there."""


class SequenceTracker:
    """One partition's batches, by offset. Memory grows with the producers that the log has seen."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._covered = 0
        self._kind: Event | None = None
        self._start = self._end = 0

    def see(self, header: Header) -> Iterator[Told]:
        """The next batch; what it shows."""
        yield from self._kinds(header)
        if header.producer_id >= 0 and header.base_sequence >= 0 and not header.is_control:
            told = self._judge(header)
            if told is not None:
                yield told
        self._covered += header.last_offset + 1 - header.base_offset
        known = self._producers.get(header.producer_id)
        if known is not None and known.end == header.last_offset + 1:
            known.covered = self._covered

    def finish(self) -> Iterator[Told]:
        """What is left to tell at the end of the log."""
        if self._kind is not None:
            yield Told(self._kind, self._start, self._end)
            self._kind = None

    def _kinds(self, header: Header) -> Iterator[Told]:
        if header.is_control:
            return
        kind = Event.PLAIN if header.producer_id < 0 else Event.NUMBERED
        if kind is not self._kind:
            yield from self.finish()
            self._kind, self._start = kind, header.base_offset
        self._end = header.last_offset + 1

    def _judge(self, header: Header) -> Told | None:
        size = header.last_offset + 1 - header.base_offset
        after = (header.base_sequence + size) % _MODULUS
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return None  # a fenced one's batch from before; its numbers have been judged
        fresh = known is None or header.producer_epoch > known.epoch
        expected = 0 if fresh or known is None else known.expected
        begin, covered = (0, 0) if known is None else (known.end, known.covered)
        ahead = (header.base_sequence - expected) % _MODULUS
        end = header.last_offset + 1
        if ahead >= _MODULUS // 2 and known is not None:
            back = _MODULUS - ahead
            again = min(size, back)
            self._producers[header.producer_id] = _Producer(
                header.producer_epoch, after if size > back else expected, end, 0
            )
            return Told(
                Event.REPEATED,
                header.base_offset,
                header.base_offset + again,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                again,
            )
        self._producers[header.producer_id] = _Producer(header.producer_epoch, after, end, 0)
        if not ahead:
            return None
        uncovered = header.base_offset - begin - (self._covered - covered)
        if known is None and uncovered >= ahead:
            return None  # it began before the log does
        return Told(
            Event.MISSING,
            begin if known is not None else header.base_offset,
            header.base_offset,
            header.producer_id,
            header.producer_epoch,
            expected,
            ahead,
            uncovered,
        )


__all__ = ["Event", "Header", "SequenceTracker", "Told"]
