"""What the driver knows of a journal: who wrote it, what is missing of it, who had which partition.

Pure. An epoch is one run of one daemon's journal; its batches are numbered, so one that is missing is
noticed, and each says until when it is complete, so a daemon that died is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgpack

from pixy.journal import Kind
from pixy.pipeline.audit.classify import Watch
from pixy.pipeline.audit.journal_scan import StreamKey
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition

_NEVER = (1 << 63) - 1
_DEAD_AFTER = 3
"""Heartbeats that must be missing before a daemon counts as dead."""

Stream = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class Hole:
    """A time in which events of a daemon may be missing, microseconds since 1970."""

    client: str
    start: int
    end: int
    events: int
    """How many, if that is known; else 0."""
    why: str
    """``dropped``: counted by the daemon itself. ``batches missing``: numbers that are not there.
    ``no end``: it was killed, or is cut off from Kafka."""


@dataclass(slots=True)
class Epoch:
    """One daemon's journal from its start to its end."""

    client: str
    epoch: int
    heartbeat: int = 0
    events: int = 0
    batches: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    """(sequence, the journal's partition, offset, time, final)"""
    lost: list[tuple[int, int, int]] = field(default_factory=list)
    streams: dict[Stream, int] = field(default_factory=dict)
    """The lowest offset of a first offer; huge if there was none."""
    moves: list[tuple[int, int, Stream, int]] = field(default_factory=list)
    """(time, kind, stream, offset) of ASSIGNED and REVOKED."""

    def merge(self, found: Mapping[str, Any]) -> None:
        """Add what one task has found."""
        self.heartbeat = max(self.heartbeat, found["heartbeat"])
        self.events += found["events"]
        self.batches += [tuple(each) for each in found["batches"]]
        self.lost += [tuple(each) for each in found["lost"]]
        for key, first in found["streams"]:
            stream: Stream = tuple(key)
            self.streams[stream] = min(first, self.streams.get(stream, first))
        self.moves += [(time, kind, tuple(stream), offset) for time, kind, stream, offset in found["moves"]]

    @property
    def complete_until(self) -> int:
        """Time of the last batch."""
        return max(each[3] for each in self.batches)

    @property
    def begins(self) -> bool:
        """Whether the first batch is there; else the journal's beginning has expired."""
        return min(each[0] for each in self.batches) == 0

    @property
    def ended(self) -> bool:
        """Whether the daemon stopped in order."""
        return any(final for *_, final in self.batches)

    def holes(self, now: int) -> list[Hole]:
        """When events may be missing, as of ``now`` (microseconds)."""
        found = [Hole(self.client, *each, "dropped") for each in self.lost]
        ordered = sorted(self.batches)
        found += [
            Hole(self.client, before[3], after[3], 0, "batches missing")
            for before, after in pairwise(ordered)
            if after[0] > before[0] + 1
        ]
        until = self.complete_until
        if not self.ended and now > until + _DEAD_AFTER * self.heartbeat:
            found.append(Hole(self.client, until, until + self.heartbeat, 0, "no end"))
        return found

    def twice(self) -> set[tuple[int, int]]:
        """Records (partition, offset) of batches that are there again."""
        seen: set[int] = set()
        again: set[tuple[int, int]] = set()
        for sequence, partition, offset, *_ in sorted(self.batches):
            if sequence in seen:
                again.add((partition, offset))
            seen.add(sequence)
        return again


class JournalView:
    """The whole journal, surveyed."""

    def __init__(self, surveys: Iterable[bytes], name: str) -> None:
        self.name = name
        self.epochs: dict[tuple[str, int], Epoch] = {}
        errors: list[tuple[int, int, str]] = []
        bad = 0
        for packed in surveys:
            found = msgpack.unpackb(packed, use_list=False)
            errors += found["errors"]
            bad += found["bad"]
            for client, epoch, part in found["epochs"]:
                self.epochs.setdefault((client, epoch), Epoch(client, epoch)).merge(part)
        if bad:
            partition, offset, text = min(errors)
            more = f" (and {bad - 1} more records)" if bad > 1 else ""
            raise SourceError(f"journal {name}/{partition}, offset {offset}: {text}{more}")
        self.numbers = self._number()

    def _number(self) -> dict[StreamKey, int]:
        keys = sorted(
            (client, epoch, *stream)
            for (client, epoch), found in self.epochs.items()
            for stream in found.streams
        )
        return {key: at for at, key in enumerate(keys)}

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(epoch.events for epoch in self.epochs.values())

    @property
    def clients(self) -> list[str]:
        """The daemons, sorted."""
        return sorted({client for client, _ in self.epochs})

    @property
    def begin(self) -> int:
        """Since when there is a journal, microseconds; what is older was never in it or has expired."""
        return min((min(batch[3] for batch in epoch.batches) for epoch in self.epochs.values()), default=0)

    @property
    def end(self) -> int:
        """Time of the last batch of all."""
        return max((epoch.complete_until for epoch in self.epochs.values()), default=0)

    def places(self) -> set[TopicPartition]:
        """(topic, partition) of which it tells."""
        return {(key[2], max(key[3], 0)) for key in self.numbers}

    def groups(self) -> list[str]:
        """Groups of which it tells, sorted."""
        return sorted({key[4] for key in self.numbers} - {""})

    def holes(self, now: int) -> list[Hole]:
        """All of them, by time."""
        found = [hole for epoch in self.epochs.values() for hole in epoch.holes(now)]
        return sorted(found, key=lambda hole: (hole.start, hole.client))

    def holed(self, now: int) -> list[bool]:
        """By stream's number: whether its daemon's journal has a hole."""
        broken = {key for key, epoch in self.epochs.items() if epoch.holes(now)}
        return [(key[0], key[1]) in broken for key in self.numbers]

    def twice(self) -> frozenset[tuple[int, int]]:
        """Records (partition, offset) to leave out, because their batch is there already."""
        return frozenset(at for epoch in self.epochs.values() for at in epoch.twice())

    def watch(self, place: TopicPartition, group: str, committed: int | None, now: int) -> Watch | None:
        """What can be told about a group in a partition; None if the journal knows nothing of it.

        Args:
            committed: the group's committed offset; None: not asked, the journal's own word counts.
            now: microseconds.
        """
        start, hole, moves, seen = _NEVER, -1, [], False
        for epoch in self.epochs.values():
            mine = [key for key in epoch.streams if key[:3] == (*place, group)]
            if not mine:
                continue
            seen = True
            own = [each for each in epoch.moves if each[2] in mine]
            moves += own
            assigned = {stream: offset for _, kind, stream, offset in own if kind == Kind.ASSIGNED}
            start = min(start, *(assigned.get(key, epoch.streams[key]) for key in mine), _NEVER)
            hole = max(hole, *(each.end for each in epoch.holes(now)), -1)
        if not seen or start == _NEVER:
            return None
        if committed is None:
            committed = max((offset for *_, offset in moves), default=-1)
        return Watch(start, committed, hole, _skipped(sorted(moves), committed))


def _skipped(moves: Sequence[tuple[int, int, Stream, int]], committed: int) -> tuple[tuple[int, int], ...]:
    """Where the group's position moved on between a daemon's letting go and the next one's taking
    over: an offset reset, or a member that keeps no journal."""
    found: list[tuple[int, int]] = []
    left: int | None = None
    held: set[Stream] = set()
    for _, kind, stream, offset in moves:
        held = held | {stream} if kind == Kind.ASSIGNED else held - {stream}
        if kind == Kind.REVOKED:
            left = offset
        elif left is not None:
            if offset > left:
                found.append((left, offset))
            left = None
    if left is not None and not held and committed > left:
        found.append((left, committed))
    return tuple(found)


__all__ = [
    "Epoch",
    "Hole",
    "JournalView",
]
