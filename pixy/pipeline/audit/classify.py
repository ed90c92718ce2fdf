"""Classify the facts of one block of offsets of one partition into tallies. Vectors only, no Spark.

A block is held densely, one slot per offset, so most questions are a single indexing. Offers are counted by
(assignment, offset, attempt): the same triple twice is a duplicate without an explanation, another attempt is
a retry, another assignment is a rebalance or a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pixy.journal import Kind
from pixy.pipeline.audit.facts import ARCHIVED, BLOCK_BITS, LOGGED
from pixy.pipeline.audit.tallies import NO_GROUP, NO_WINDOW, Bools, Ints, Tallies, TallyKind

_SIZE = 1 << BLOCK_BITS
_ATTEMPTS = 1 << 20
"""Attempts above this count as one: a number of :func:`_offer_ids` has 20 bits for them."""


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """The journal's account of one group in one partition.

    Attributes:
        start: the lowest offset at which the journal saw the group.
        committed: the group's committed offset; it is done with the messages below. -1: unknown.
        hole: events before this time (microseconds since 1970) may be missing; -1: none are.
        skipped: ranges that the group's position moved past while no daemon with a journal owned the
            partition.
    """

    start: int
    committed: int
    hole: int = -1
    skipped: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """Windows, groups and positions, which the classification of every block needs.

    Attributes:
        window: length of a window, milliseconds.
        late_after: a record that is archived later than this after its timestamp is late; milliseconds.
        groups: by number of a journal's stream, the number of its group; -1 for producing.
        streams_with_holes: by number of a journal's stream, whether its daemon's journal lost events.
        histories: by (number of the partition, number of the group).
        published: by number of the partition: first offsets of the archived ranges, ascending, and when each
            was published (milliseconds). The files do not tell, because compaction rewrites them.
    """

    window: int
    late_after: int
    groups: Ints
    streams_with_holes: Bools
    histories: Mapping[tuple[int, int], GroupHistory] = field(default_factory=dict)
    published: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)


class Block:
    """The facts of one block by column, and its offsets by slot."""

    def __init__(self, facts: Mapping[str, Ints], context: Context) -> None:
        self.context = context
        self.tp_id = int(facts["tp_id"][0])
        self.base = int(facts["block"][0]) << BLOCK_BITS
        self.facts = facts
        self.kind = facts["kind"]
        self.at = facts["offset"] - self.base
        self.tallies = Tallies(self.tp_id)
        self.timestamps = self._timestamps()
        self.windows = self._windows_of(self.timestamps)
        self.exists = self.slots(np.isin(self.kind, (ARCHIVED, LOGGED, Kind.PRODUCED)))

    def _windows_of(self, timestamps: Ints) -> Ints:
        size = self.context.window
        windows: Ints = np.where(timestamps >= 0, timestamps - timestamps % size, NO_WINDOW)
        return windows

    def _timestamps(self) -> Ints:
        """Return the timestamp of each offset. The log overrides the journal, and the lake overrides both."""
        timestamp, kind = self.facts["timestamp"], self.kind
        result = np.full(_SIZE, -1, np.int64)
        for source in (kind < ARCHIVED, kind == LOGGED, kind == ARCHIVED):
            rows = source & (timestamp >= 0)
            result[self.at[rows]] = timestamp[rows]
        return result

    def slots(self, rows: Bools | Ints) -> Bools:
        """Return the block's slots, true where one of these facts is about the offset."""
        members = np.zeros(_SIZE, np.bool_)
        members[self.at[rows]] = True
        return members

    def count(self, kind: TallyKind, group: int, members: Bools) -> None:
        """Count each offset in its record's window.

        Args:
            kind: what is counted.
            group: its number; NO_GROUP: the topic.
            members: slots, as of :meth:`slots`.
        """
        self.tallies.count(kind, group, self.windows[members])

    def count_rows(self, kind: TallyKind, group: int, rows: Bools | Ints) -> None:
        """Count each fact in its record's window.

        Args:
            kind: what is counted.
            group: its number; NO_GROUP: the topic.
            rows: which of the facts.
        """
        self.tallies.count(kind, group, self.windows[self.at[rows]])

    def ranges(self, kind: TallyKind, group: int, members: Bools) -> None:
        """Add the ranges of the offsets whose slot is true.

        Args:
            kind: of ranges.
            group: its number; NO_GROUP: the topic.
            members: slots, as of :meth:`slots`.
        """
        self.tallies.ranges(kind, group, self.base, members)

    def sketch(self, kind: TallyKind, group: int, rows: Bools) -> None:
        """Add the latencies of the facts that have one.

        Args:
            kind: of latencies.
            group: its number; NO_GROUP: the topic.
            rows: which of the facts.
        """
        took = self.facts["took"]
        rows = rows & (took >= 0)
        self.tallies.sketch(kind, group, self.windows[self.at[rows]], took[rows])


def classify_block(facts: Mapping[str, Ints], context: Context) -> dict[str, Ints]:
    """Return the tallies of one block, by column of :data:`pixy.pipeline.audit.tallies.TALLIES`.

    Args:
        facts: the columns of :data:`pixy.pipeline.audit.facts.FACTS` as 64-bit integers, all of one ``tp_id``
            and ``block``.
        context: windows, groups and positions.
    """
    if facts["block"][0] < 0:
        return _classify_failed(facts, context)
    block = Block(facts, context)
    _classify_topic(block)
    groups = np.full(len(block.kind), NO_GROUP, np.int64)
    journaled = block.kind < ARCHIVED
    groups[journaled] = context.groups[block.facts["source"][journaled]]
    with_history = {group for tp_id, group in context.histories if tp_id == block.tp_id}
    for group in sorted({int(each) for each in np.unique(groups)} | with_history):
        if group != NO_GROUP:
            _classify_group(block, group, groups == group)
    return block.tallies.columns()


def _classify_failed(facts: Mapping[str, Ints], context: Context) -> dict[str, Ints]:
    """Count messages that were never written: they have no offset, and count in the window of their failure."""
    tallies = Tallies(int(facts["tp_id"][0]))
    failed = facts["time"][facts["kind"] == Kind.PRODUCE_FAILED] // 1000
    tallies.count(TallyKind.FAILED, NO_GROUP, failed - failed % context.window)
    return tallies.columns()


def _classify_topic(block: Block) -> None:
    rows, answered_rows = block.kind == ARCHIVED, block.kind == Kind.PRODUCED
    archived, answered = block.slots(rows), block.slots(answered_rows)
    block.count(TallyKind.PRODUCED, NO_GROUP, block.exists)
    block.count(TallyKind.ANSWERED, NO_GROUP, answered)
    block.count(TallyKind.ARCHIVED, NO_GROUP, archived)
    block.sketch(TallyKind.PRODUCE_ANSWER, NO_GROUP, answered_rows)
    block.ranges(TallyKind.R_ARCHIVED, NO_GROUP, archived)
    block.ranges(TallyKind.R_EXISTS, NO_GROUP, block.exists)
    block.ranges(TallyKind.R_ANSWERED, NO_GROUP, answered)
    block.ranges(TallyKind.R_LOGGED, NO_GROUP, block.slots(block.kind == LOGGED))
    if rows.any():
        _classify_archived(block, np.flatnonzero(rows))


def _classify_archived(block: Block, rows: Ints) -> None:
    at, delays, windows = block.at[rows], _archive_delays(block, rows), block.windows[block.at[rows]]
    copies = np.bincount(at, minlength=_SIZE)
    repeated = copies > 1
    block.tallies.count(
        TallyKind.ARCHIVE_DUPLICATES, NO_GROUP, np.repeat(block.windows[repeated], copies[repeated] - 1)
    )
    block.ranges(TallyKind.R_ARCHIVE_DUPLICATES, NO_GROUP, repeated)
    known = delays >= 0
    block.tallies.sketch(TallyKind.ARCHIVE_DELAY, NO_GROUP, windows[known], delays[known])
    timestamps = block.facts["timestamp"][rows]
    late = (timestamps >= 0) & (delays > block.context.late_after * 1000)
    block.count_rows(TallyKind.ARCHIVE_LATE, NO_GROUP, rows[late])
    block.ranges(TallyKind.R_ARCHIVE_LATE, NO_GROUP, block.slots(rows[late]))
    misplaced = rows[_out_of_order(block.facts["source"][rows], block.facts["time"][rows], at)]
    block.count_rows(TallyKind.ARCHIVE_OUT_OF_ORDER, NO_GROUP, misplaced)
    block.ranges(TallyKind.R_ARCHIVE_OUT_OF_ORDER, NO_GROUP, block.slots(misplaced))


def _archive_delays(block: Block, rows: Ints) -> Ints:
    """Return the microseconds from each record's timestamp to its publication; -1 where either is unknown."""
    starts, published = block.context.published.get(block.tp_id, (np.zeros(0, np.int64),) * 2)
    timestamps = block.facts["timestamp"][rows]
    if not len(starts):
        return np.full(len(timestamps), -1, np.int64)
    entry = np.searchsorted(starts, block.facts["offset"][rows], "right") - 1
    delays: Ints = np.where(
        (entry >= 0) & (timestamps >= 0), np.maximum(published[entry] - timestamps, 0) * 1000, -1
    )
    return delays


def _out_of_order(sequence: Ints, time: Ints, at: Ints) -> Ints:
    """Return the indexes that follow a higher ``at`` within their sequence, by time."""
    order = np.lexsort((at, time, sequence))
    _, number = np.unique(sequence[order], return_inverse=True)
    rank = number * (_SIZE * 2) + at[order]
    return order[rank < np.maximum.accumulate(rank)]


def _classify_group(block: Block, group: int, mine: Bools) -> None:
    kind, attempt = block.kind, block.facts["attempt"]
    offers, returns = mine & (kind == Kind.OFFERED), mine & (kind == Kind.RETURNED)
    acked = block.slots(mine & (kind == Kind.ACKED))
    given_up = block.slots(mine & (kind == Kind.DROPPED))
    block.count(TallyKind.OFFERED, group, block.slots(offers))
    block.count(TallyKind.ACKED, group, acked)
    block.count(TallyKind.DEAD_LETTERED, group, given_up)
    block.count_rows(TallyKind.RETURNED, group, returns)
    block.count_rows(TallyKind.ACKS_REFUSED, group, mine & (kind == Kind.ACK_REFUSED))
    block.count_rows(TallyKind.RETRIED, group, offers & (attempt > 0))
    block.sketch(TallyKind.PRODUCE_OFFER, group, offers & (attempt == 0))
    block.sketch(TallyKind.OFFER_ACK, group, mine & (kind == Kind.ACKED))
    block.ranges(TallyKind.R_ACKED, group, acked | given_up)
    if offers.any():
        _classify_duplicates(block, group, offers, returns)
        _classify_order(block, group, offers)
    _classify_unacknowledged(block, group, acked | given_up)


def _offer_ids(block: Block, rows: Bools) -> Ints:
    """Return (assignment, attempt, offset) of each offer as one number."""
    source, attempt = block.facts["source"][rows], block.facts["attempt"][rows]
    ids: Ints = (source << 40) + (np.minimum(attempt, _ATTEMPTS - 1) << BLOCK_BITS) + block.at[rows]
    return ids


def _classify_duplicates(block: Block, group: int, offers: Bools, returns: Bools) -> None:
    ids, times = _deliveries(block, offers, returns)
    tallies, windows = block.tallies, block.windows
    at = ids & (_SIZE - 1)
    first_attempt = (ids >> BLOCK_BITS & (_ATTEMPTS - 1)) == 0
    tallies.count(TallyKind.DELIVERIES, group, np.repeat(windows[at], times))
    firsts = np.bincount(at[first_attempt], minlength=_SIZE)
    retries = np.bincount(at[~first_attempt], minlength=_SIZE)
    # If the journal lacks the first offer, one of the retries was the first delivery.
    retries = np.where(firsts == 0, np.maximum(retries - 1, 0), retries)
    tallies.count(TallyKind.DUPLICATES_RETRIED, group, np.repeat(windows, retries))
    tallies.count(TallyKind.DUPLICATES_REASSIGNED, group, np.repeat(windows, np.maximum(firsts - 1, 0)))
    repeated, incomplete = times > 1, block.context.streams_with_holes[ids >> 40]
    for kind, rows in (
        (TallyKind.DUPLICATES_UNEXPLAINED, repeated & ~incomplete),
        (TallyKind.DUPLICATES_UNKNOWN, repeated & incomplete),
    ):
        tallies.count(kind, group, np.repeat(windows[at[rows]], times[rows] - 1))
    unexplained = np.zeros(_SIZE, np.bool_)
    unexplained[at[repeated & ~incomplete]] = True
    block.ranges(TallyKind.R_UNEXPLAINED, group, unexplained)


def _deliveries(block: Block, offers: Bools, returns: Bools) -> tuple[Ints, Ints]:
    """Return the ids of offers that were not returned, and how often each was made."""
    ids, times = np.unique(_offer_ids(block, offers), return_counts=True)
    returned, returned_times = np.unique(_offer_ids(block, returns), return_counts=True)
    if len(returned):
        index = np.minimum(np.searchsorted(ids, returned), len(ids) - 1)
        known = ids[index] == returned
        times[index[known]] -= returned_times[known]
    return ids[times > 0], times[times > 0]


def _classify_order(block: Block, group: int, offers: Bools) -> None:
    """Find offers out of order: first offers of an assignment follow the offsets; a returned message is offered again later."""
    rows = np.flatnonzero(offers & (block.facts["attempt"] == 0))
    source, time, at = (block.facts["source"][rows], block.facts["time"][rows], block.at[rows])
    order = np.lexsort((time, at, source))
    once = np.ones(len(order), np.bool_)
    once[1:] = (np.diff(at[order]) != 0) | (np.diff(source[order]) != 0)
    first = order[once]
    misplaced = rows[first[_out_of_order(source[first], time[first], at[first])]]
    block.count_rows(TallyKind.OUT_OF_ORDER, group, misplaced)
    block.ranges(TallyKind.R_OUT_OF_ORDER, group, block.slots(misplaced))


def _classify_unacknowledged(block: Block, group: int, done: Bools) -> None:
    history = block.context.histories.get((block.tp_id, group))
    if history is None or history.committed < 0:
        return
    offsets = np.arange(block.base, block.base + _SIZE)
    open_ = block.exists & ~done & (offsets >= history.start) & (offsets < history.committed)
    for start, end in history.skipped:
        open_[max(0, start - block.base) : max(0, end - block.base)] = False
    if not open_.any():
        return
    unknown = open_ & (history.hole >= 0) & (block.timestamps * 1000 <= history.hole)
    for kind, range_kind, members in (
        (TallyKind.LOST, TallyKind.R_LOST, open_ & ~unknown),
        (TallyKind.UNKNOWN, TallyKind.R_UNKNOWN, unknown),
    ):
        block.count(kind, group, members)
        block.ranges(range_kind, group, members)


__all__ = ["Block", "Context", "GroupHistory", "classify_block"]
