"""The judge: facts of one block of offsets of one partition in, tallies out. Vectors, no Spark.

A block is held densely, one slot an offset, so most questions are one indexing each. Who offered a
message how often is asked of (assignment, offset, attempt): the same one twice is a duplicate that
nothing explains, another attempt is a retry, another assignment is a hand-over or a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pixy.journal import Kind
from pixy.pipeline.audit import sketch
from pixy.pipeline.audit.facts import ARCHIVED, BLOCK_BITS, LOGGED, NO_GROUP, NO_WINDOW, What

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_SIZE = 1 << BLOCK_BITS

_MAXIMUM = {
    What.PRODUCE_ANSWER: What.MAX_PRODUCE_ANSWER,
    What.PRODUCE_OFFER: What.MAX_PRODUCE_OFFER,
    What.OFFER_ACK: What.MAX_OFFER_ACK,
    What.ARCHIVE_DELAY: What.MAX_ARCHIVE_DELAY,
}


@dataclass(frozen=True, slots=True)
class Watch:
    """What the journal can tell about a group in a partition."""

    start: int
    """Lowest offset that it has seen the group at."""
    committed: int
    """The group's position; what lies below has been dealt with. -1: not known."""
    hole: int = -1
    """Until when (microseconds) events may be missing; -1: none are."""
    skipped: tuple[tuple[int, int], ...] = ()
    """Offsets that the group was moved past while no daemon with a journal had the partition."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all blocks need to know."""

    window: int
    """Length of a window in milliseconds."""
    watermark: int
    """How long after its end a window may still change, milliseconds."""
    groups: Ints
    """The group of each of the journal's streams; -1: it tells of producing."""
    holed: Bools
    """By stream: whether its daemon's journal lost events."""
    watches: Mapping[tuple[int, int], Watch] = field(default_factory=dict)
    """By (partition's number, group's number)."""
    published: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)
    """By partition's number: first offsets of archived ranges, ascending, and when each was
    published, milliseconds. Compaction rewrites files, so the files do not tell."""


class Tallies:
    """Rows of :data:`pixy.pipeline.audit.facts.TALLIES` in the making."""

    def __init__(self, tp: int) -> None:
        self._tp = tp
        self._parts: list[tuple[int, int, Ints, Ints, Ints]] = []

    def count(self, what: What, group: int, windows: Ints) -> None:
        """One in each of these windows."""
        if len(windows):
            found, n = np.unique(windows, return_counts=True)
            self._parts.append((what, group, found, np.zeros_like(found), n))

    def sketch(self, what: What, group: int, windows: Ints, values: Ints) -> None:
        """Latencies in these windows."""
        if not len(windows):
            return
        pairs, n = np.unique(np.stack([windows, sketch.buckets(values)]), axis=1, return_counts=True)
        self._parts.append((what, group, pairs[0], pairs[1], n))
        order = np.lexsort((values, windows))
        last = np.append(np.flatnonzero(np.diff(windows[order])), len(order) - 1)
        top = order[last]
        self._parts.append(
            (
                _MAXIMUM[what],
                group,
                windows[top],
                np.zeros(len(top), np.int64),
                np.maximum(values[top], 0),
            )
        )

    def ranges(self, what: What, group: int, base: int, members: Bools) -> None:
        """The offsets whose slot is true."""
        edges = np.flatnonzero(np.diff(members.astype(np.int8), prepend=0, append=0))
        if len(edges):
            starts, ends = edges[::2] + base, edges[1::2] + base
            self._parts.append((what, group, starts, ends, np.ones(len(starts), np.int64)))

    def columns(self) -> dict[str, Ints]:
        """All of them, by column."""
        parts = self._parts
        sizes = [len(part[2]) for part in parts]
        empty = np.zeros(0, np.int64)

        def joined(at: int) -> Ints:
            return np.concatenate([part[at] for part in parts]) if parts else empty

        return {
            "what": np.repeat(np.array([part[0] for part in parts], np.int64), sizes),
            "tp": np.full(sum(sizes), self._tp, np.int64),
            "group": np.repeat(np.array([part[1] for part in parts], np.int64), sizes),
            "window": joined(2),
            "bucket": joined(3),
            "n": joined(4),
        }


class Block:
    """The facts of one block, by column."""

    def __init__(self, facts: Mapping[str, Ints], context: Context) -> None:
        self.context = context
        self.tp = int(facts["tp"][0])
        self.base = int(facts["block"][0]) << BLOCK_BITS
        self.facts = facts
        self.kind = facts["kind"]
        self.at = facts["offset"] - self.base
        self.tallies = Tallies(self.tp)
        self.stamp = np.full(_SIZE, -1, np.int64)
        self.exists = np.zeros(_SIZE, np.bool_)
        self._stamps()
        self.windows = self.window_of(self.stamp)

    def window_of(self, stamps: Ints) -> Ints:
        """The window of each timestamp."""
        size = self.context.window
        found: Ints = np.where(stamps >= 0, stamps - stamps % size, NO_WINDOW)
        return found

    def _stamps(self) -> None:
        """The timestamp of each offset; the lake and the log know best, so they speak last."""
        stamp, kind = self.facts["timestamp"], self.kind
        for told in (kind < ARCHIVED, kind == LOGGED, kind == ARCHIVED):
            rows = told & (stamp >= 0)
            self.stamp[self.at[rows]] = stamp[rows]

    def members(self, rows: Bools) -> Bools:
        """Slots of the offsets of some facts."""
        found = np.zeros(_SIZE, np.bool_)
        found[self.at[rows]] = True
        return found

    def count(self, what: What, group: int, members: Bools) -> None:
        """One for each offset, in its record's window."""
        self.tallies.count(what, group, self.windows[members])

    def count_rows(self, what: What, group: int, rows: Bools) -> None:
        """One for each fact, in its record's window."""
        self.tallies.count(what, group, self.windows[self.at[rows]])

    def sketch(self, what: What, group: int, rows: Bools) -> None:
        """Latencies of facts that know theirs."""
        took = self.facts["took"]
        rows = rows & (took >= 0)
        self.tallies.sketch(what, group, self.windows[self.at[rows]], took[rows])


def judge(facts: Mapping[str, Ints], context: Context) -> dict[str, Ints]:
    """Tallies of one block.

    Args:
        facts: the columns of :data:`pixy.pipeline.audit.facts.FACTS`, all of one ``tp`` and
            ``block``, as 64-bit integers.
        context: see there.
    """
    if facts["block"][0] < 0:
        return _without_offset(facts, context)
    block = Block(facts, context)
    _topic(block)
    groups = np.full(len(block.kind), NO_GROUP, np.int64)
    told = block.kind < ARCHIVED
    groups[told] = context.groups[block.facts["source"][told]]
    watched = {group for tp, group in context.watches if tp == block.tp}
    for group in sorted({int(each) for each in np.unique(groups)} | watched):
        if group != NO_GROUP:
            _group(block, group, groups == group)
    return block.tallies.columns()


def _without_offset(facts: Mapping[str, Ints], context: Context) -> dict[str, Ints]:
    tallies = Tallies(int(facts["tp"][0]))
    failed = facts["time"][facts["kind"] == Kind.PRODUCE_FAILED] // 1000
    tallies.count(What.FAILED, NO_GROUP, failed - failed % context.window)
    return tallies.columns()


def _topic(block: Block) -> None:
    kind, tallies = block.kind, block.tallies
    rows, answered = kind == ARCHIVED, kind == Kind.PRODUCED
    archived = block.members(rows)
    block.exists = archived | block.members((kind == LOGGED) | answered)
    block.count(What.PRODUCED, NO_GROUP, block.exists)
    block.count(What.ANSWERED, NO_GROUP, block.members(answered))
    block.count(What.ARCHIVED, NO_GROUP, archived)
    block.sketch(What.PRODUCE_ANSWER, NO_GROUP, answered)
    for what, members in (
        (What.R_ARCHIVED, archived),
        (What.R_EXISTS, block.exists),
        (What.R_ANSWERED, block.members(answered)),
        (What.R_LOGGED, block.members(kind == LOGGED)),
    ):
        tallies.ranges(what, NO_GROUP, block.base, members)
    if rows.any():
        _archive(block, rows)


def _delays(block: Block, rows: Bools) -> Ints:
    """From each record's timestamp to its publishing, microseconds; -1 where one is not known."""
    starts, published = block.context.published.get(block.tp, (np.zeros(0, np.int64),) * 2)
    stamp = block.facts["timestamp"][rows]
    if not len(starts):
        return np.full(len(stamp), -1, np.int64)
    place = np.searchsorted(starts, block.facts["offset"][rows], "right") - 1
    found: Ints = np.where((place >= 0) & (stamp >= 0), np.maximum(published[place] - stamp, 0) * 1000, -1)
    return found


def _archive(block: Block, rows: Bools) -> None:
    at, took = block.at[rows], _delays(block, rows)
    times = np.bincount(at, minlength=_SIZE)
    again = times > 1
    block.tallies.count(What.ARCHIVE_DUPLICATES, NO_GROUP, np.repeat(block.windows[again], times[again] - 1))
    block.tallies.ranges(What.R_ARCHIVE_DUPLICATES, NO_GROUP, block.base, again)
    block.tallies.sketch(What.ARCHIVE_DELAY, NO_GROUP, block.windows[at[took >= 0]], took[took >= 0])
    stamp = block.facts["timestamp"][rows]
    # Late: published after the end of the record's window and the watermark.
    rest = block.context.window - stamp % block.context.window + block.context.watermark
    late = (stamp >= 0) & (took > rest * 1000)
    block.tallies.count(What.ARCHIVE_LATE, NO_GROUP, block.windows[at[late]])
    wrong = _behind(block.facts["source"][rows], block.facts["time"][rows], at)
    block.tallies.count(What.ARCHIVE_OUT_OF_ORDER, NO_GROUP, block.windows[at[wrong]])
    members = np.zeros(_SIZE, np.bool_)
    members[at[wrong]] = True
    block.tallies.ranges(What.R_ARCHIVE_OUT_OF_ORDER, NO_GROUP, block.base, members)


def _behind(sequence: Ints, time: Ints, at: Ints) -> Ints:
    """Which come, within their sequence and by time, after one with a higher offset."""
    order = np.lexsort((at, time, sequence))
    _, number = np.unique(sequence[order], return_inverse=True)
    place = number * (_SIZE * 2) + at[order]
    return order[place < np.maximum.accumulate(place)]


def _group(block: Block, group: int, mine: Bools) -> None:
    kind, facts = block.kind, block.facts
    offers = mine & (kind == Kind.OFFERED)
    returns = mine & (kind == Kind.RETURNED)
    acked = block.members(mine & (kind == Kind.ACKED))
    dropped = block.members(mine & (kind == Kind.DROPPED))
    block.count(What.OFFERED, group, block.members(offers))
    block.count(What.ACKED, group, acked)
    block.count(What.DEAD_LETTERED, group, dropped)
    block.count_rows(What.RETURNED, group, returns)
    block.count_rows(What.ACKS_REFUSED, group, mine & (kind == Kind.ACK_REFUSED))
    block.count_rows(What.RETRIED, group, offers & (facts["attempt"] > 0))
    block.sketch(What.PRODUCE_OFFER, group, offers & (facts["attempt"] == 0))
    block.sketch(What.OFFER_ACK, group, mine & (kind == Kind.ACKED))
    block.tallies.ranges(What.R_ACKED, group, block.base, acked | dropped)
    if offers.any():
        _duplicates(block, group, offers, returns)
        _order(block, group, offers)
    _lost(block, group, acked | dropped)


def _keys(block: Block, rows: Bools) -> Ints:
    """(assignment, attempt, offset) as one number each."""
    source, attempt = block.facts["source"][rows], block.facts["attempt"][rows]
    found: Ints = (source << 40) + (np.minimum(attempt, (1 << 20) - 1) << BLOCK_BITS) + block.at[rows]
    return found


def _duplicates(block: Block, group: int, offers: Bools, returns: Bools) -> None:
    keys, times = np.unique(_keys(block, offers), return_counts=True)
    back, given_back = np.unique(_keys(block, returns), return_counts=True)
    if len(back):
        place = np.minimum(np.searchsorted(keys, back), len(keys) - 1)
        found = keys[place] == back
        times[place[found]] -= given_back[found]
    reached = times > 0
    keys, times = keys[reached], times[reached]
    at = keys & (_SIZE - 1)
    fresh = (keys >> BLOCK_BITS & ((1 << 20) - 1)) == 0
    tallies, windows = block.tallies, block.windows
    tallies.count(What.DELIVERIES, group, np.repeat(windows[at], times))
    firsts = np.bincount(at[fresh], minlength=_SIZE)
    retries = np.bincount(at[~fresh], minlength=_SIZE)
    # A message whose first offer is not told of was delivered once by one of its retries.
    retries = np.where(firsts == 0, np.maximum(retries - 1, 0), retries)
    tallies.count(What.DUPLICATES_RETRIED, group, np.repeat(windows, retries))
    tallies.count(What.DUPLICATES_REASSIGNED, group, np.repeat(windows, np.maximum(firsts - 1, 0)))
    again, holed = times > 1, block.context.holed[keys >> 40]
    for what, rows in (
        (What.DUPLICATES_UNEXPLAINED, again & ~holed),
        (What.DUPLICATES_UNKNOWN, again & holed),
    ):
        tallies.count(what, group, np.repeat(windows[at[rows]], times[rows] - 1))
    members = np.zeros(_SIZE, np.bool_)
    members[at[again & ~holed]] = True
    tallies.ranges(What.R_UNEXPLAINED, group, block.base, members)


def _order(block: Block, group: int, offers: Bools) -> None:
    """First offers of an assignment go by offset; one that was returned is offered again later."""
    rows = np.flatnonzero(offers & (block.facts["attempt"] == 0))
    source, time, at = (block.facts["source"][rows], block.facts["time"][rows], block.at[rows])
    order = np.lexsort((time, at, source))
    once = np.ones(len(order), np.bool_)
    once[1:] = (np.diff(at[order]) != 0) | (np.diff(source[order]) != 0)
    first = order[once]
    wrong = first[_behind(source[first], time[first], at[first])]
    members = np.zeros(_SIZE, np.bool_)
    members[at[wrong]] = True
    block.tallies.count(What.OUT_OF_ORDER, group, block.windows[at[wrong]])
    block.tallies.ranges(What.R_OUT_OF_ORDER, group, block.base, members)


def _lost(block: Block, group: int, done: Bools) -> None:
    watch = block.context.watches.get((block.tp, group))
    if watch is None or watch.committed < 0:
        return
    slots = np.arange(block.base, block.base + _SIZE)
    open_ = block.exists & ~done & (slots >= watch.start) & (slots < watch.committed)
    for start, end in watch.skipped:
        open_[max(0, start - block.base) : max(0, end - block.base)] = False
    if not open_.any():
        return
    unknown = open_ & (watch.hole >= 0) & (block.stamp * 1000 <= watch.hole)
    for what, ranges, members in (
        (What.LOST, What.R_LOST, open_ & ~unknown),
        (What.UNKNOWN, What.R_UNKNOWN, unknown),
    ):
        block.count(what, group, members)
        block.tallies.ranges(ranges, group, block.base, members)


__all__ = ["Block", "Context", "Tallies", "Watch", "judge"]
