"""The driver's view of a journal: its daemons, its holes, and the groups' assignments.

Pure. An epoch is one run of one daemon's journal. Its batches are numbered, so a missing one shows; each says
until when it is complete, so a daemon that died shows too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

import msgpack

from pixy.journal import Kind
from pixy.pipeline.audit.classify import GroupHistory
from pixy.pipeline.audit.journal_scan import StreamKey
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition

_NEVER = (1 << 63) - 1
_DEAD_AFTER = 3
"""A daemon counts as dead after this many missing heartbeats."""

Stream = tuple[str, int, str, int]
"""(topic, partition, group, generation)"""

AssignmentEvent = tuple[int, int, Stream, int]
"""(time, Kind.ASSIGNED or Kind.REVOKED, stream, offset)"""


class HoleReason(StrEnum):
    """The reason why events are missing."""

    DROPPED = "dropped"
    """The daemon dropped events, and counted them."""
    BATCHES_MISSING = "batches missing"
    """Numbers of batches are missing."""
    NO_END = "no end"
    """The daemon ended without a last batch: it was killed, or cut off from Kafka."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A period in which events of a daemon may be missing.

    Attributes:
        client: the daemon's client id.
        start: begin of the period, microseconds since 1970.
        end: end of the period, microseconds since 1970.
        events: number of missing events; 0 if unknown.
    """

    client: str
    start: int
    end: int
    events: int
    reason: HoleReason


@dataclass(slots=True)
class JournalEpoch:
    """One daemon's journal from its start to its end. Times are microseconds since 1970.

    Attributes:
        heartbeat: longest time between two batches, microseconds.
        batches: (sequence, the journal's partition, offset, time, final).
        dropped: (first time, last time, number) of events that the daemon dropped.
        streams: by stream, the lowest offset of a first offer; ``2**63 - 1`` if there was none.
    """

    client: str
    epoch: int
    heartbeat: int = 0
    events: int = 0
    batches: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    dropped: list[tuple[int, int, int]] = field(default_factory=list)
    streams: dict[Stream, int] = field(default_factory=dict)
    assignments: list[AssignmentEvent] = field(default_factory=list)

    def merge(self, found: Mapping[str, Any]) -> None:
        """Add the survey of one task."""
        self.heartbeat = max(self.heartbeat, found["heartbeat"])
        self.events += found["events"]
        self.batches += [tuple(each) for each in found["batches"]]
        self.dropped += [tuple(each) for each in found["dropped"]]
        for key, first in found["streams"]:
            stream: Stream = tuple(key)
            self.streams[stream] = min(first, self.streams.get(stream, first))
        self.assignments += [
            (time, kind, tuple(stream), offset) for time, kind, stream, offset in found["assignments"]
        ]

    @property
    def complete_until(self) -> int:
        """Time of the last batch."""
        return max(time for _, _, _, time, _ in self.batches)

    @property
    def has_beginning(self) -> bool:
        """True if the first batch is there; otherwise the beginning has expired."""
        return min(sequence for sequence, *_ in self.batches) == 0

    @property
    def has_end(self) -> bool:
        """True if the daemon closed its journal."""
        return any(final for *_, final in self.batches)

    def holes(self, now: int) -> list[Hole]:
        """Return the periods in which events may be missing, as of ``now`` (microseconds)."""
        holes = [Hole(self.client, *each, HoleReason.DROPPED) for each in self.dropped]
        for before, after in pairwise(sorted(self.batches)):
            if after[0] > before[0] + 1:
                holes.append(Hole(self.client, before[3], after[3], 0, HoleReason.BATCHES_MISSING))
        until = self.complete_until
        if not self.has_end and now > until + _DEAD_AFTER * self.heartbeat:
            holes.append(Hole(self.client, until, until + self.heartbeat, 0, HoleReason.NO_END))
        return holes

    def repeated_records(self) -> set[tuple[int, int]]:
        """Return (partition, offset) of the journal's records whose batch an earlier record holds."""
        seen: set[int] = set()
        repeated: set[tuple[int, int]] = set()
        for sequence, partition, offset, *_ in sorted(self.batches):
            if sequence in seen:
                repeated.add((partition, offset))
            seen.add(sequence)
        return repeated


class JournalView:
    """A whole journal, merged from the surveys of all tasks.

    Args:
        surveys: results of :func:`pixy.pipeline.audit.journal_scan.survey`.
        name: the journal's topic.

    Attributes:
        stream_numbers: a number for each stream of each epoch.

    Raises:
        SourceError: a record is not a journal batch; the text names it.
    """

    def __init__(self, surveys: Iterable[bytes], name: str) -> None:
        self.name = name
        self.epochs: dict[tuple[str, int], JournalEpoch] = {}
        errors: list[tuple[int, int, str]] = []
        error_count = 0
        for packed in surveys:
            found = msgpack.unpackb(packed, use_list=False)
            errors += found["errors"]
            error_count += found["error_count"]
            for client, epoch, part in found["epochs"]:
                self.epochs.setdefault((client, epoch), JournalEpoch(client, epoch)).merge(part)
        if error_count:
            partition, offset, text = min(errors)
            more = f" (and {error_count - 1} more records)" if error_count > 1 else ""
            raise SourceError(f"journal {name}/{partition}, offset {offset}: {text}{more}")
        self.stream_numbers = self._number_streams()

    def _number_streams(self) -> dict[StreamKey, int]:
        keys = sorted((*key, *stream) for key, epoch in self.epochs.items() for stream in epoch.streams)
        return {key: number for number, key in enumerate(keys)}

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(epoch.events for epoch in self.epochs.values())

    @property
    def clients(self) -> list[str]:
        """The daemons' client ids, sorted."""
        return sorted({client for client, _ in self.epochs})

    @property
    def begin(self) -> int:
        """Time of the first batch, microseconds; older events were never written or have expired."""
        return min((min(batch[3] for batch in epoch.batches) for epoch in self.epochs.values()), default=0)

    @property
    def end(self) -> int:
        """Time of the last batch, microseconds."""
        return max((epoch.complete_until for epoch in self.epochs.values()), default=0)

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions that have events."""
        return {(key[2], max(key[3], 0)) for key in self.stream_numbers}

    def groups(self) -> list[str]:
        """Return the groups that have events, sorted."""
        return sorted({key[4] for key in self.stream_numbers} - {""})

    def holes(self, now: int) -> list[Hole]:
        """Return the holes of all daemons as of ``now`` (microseconds), sorted by time."""
        found = [hole for epoch in self.epochs.values() for hole in epoch.holes(now)]
        return sorted(found, key=lambda hole: (hole.start, hole.client))

    def streams_with_holes(self, now: int) -> list[bool]:
        """Return, by number of the stream, whether its daemon's journal has a hole as of ``now``."""
        incomplete = {key for key, epoch in self.epochs.items() if epoch.holes(now)}
        return [(key[0], key[1]) in incomplete for key in self.stream_numbers]

    def repeated_records(self) -> frozenset[tuple[int, int]]:
        """Return (partition, offset) of the journal's records whose batch an earlier record holds."""
        return frozenset(record for epoch in self.epochs.values() for record in epoch.repeated_records())

    def history(self, tp: TopicPartition, group: str, committed: int | None, now: int) -> GroupHistory | None:
        """Return the journal's account of a group in a partition; None if it has no events of them.

        Args:
            tp: the partition.
            group: the group's name.
            committed: the group's committed offset; None to take the last position in the journal.
            now: microseconds since 1970.
        """
        start, hole, assignments, seen = _NEVER, -1, [], False
        for epoch in self.epochs.values():
            mine = [key for key in epoch.streams if key[:3] == (*tp, group)]
            if not mine:
                continue
            seen = True
            own = [each for each in epoch.assignments if each[2] in mine]
            assignments += own
            assigned = {stream: offset for _, kind, stream, offset in own if kind == Kind.ASSIGNED}
            start = min(start, *(assigned.get(key, epoch.streams[key]) for key in mine), _NEVER)
            hole = max(hole, *(each.end for each in epoch.holes(now)), -1)
        if not seen or start == _NEVER:
            return None
        if committed is None:
            committed = max((offset for *_, offset in assignments), default=-1)
        return GroupHistory(start, committed, hole, _skipped(sorted(assignments), committed))


def _skipped(assignments: Sequence[AssignmentEvent], committed: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges that the group's position moved past between a revocation and the next assignment.

    An offset reset causes them, or a member that keeps no journal.
    """
    skipped: list[tuple[int, int]] = []
    left: int | None = None
    owners: set[Stream] = set()
    for _, kind, stream, offset in assignments:
        owners = owners | {stream} if kind == Kind.ASSIGNED else owners - {stream}
        if kind == Kind.REVOKED:
            left = offset
        elif left is not None:
            if offset > left:
                skipped.append((left, offset))
            left = None
    if left is not None and not owners and committed > left:
        skipped.append((left, committed))
    return tuple(skipped)


__all__ = ["Hole", "HoleReason", "JournalEpoch", "JournalView"]
