"""Tallies: the results of the classification, as plain numbers that merge over blocks."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pixy.pipeline.audit import sketch

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TALLIES = pa.schema(
    [
        ("kind", pa.int16()),  # a TallyKind
        ("tp_id", pa.int32()),
        ("group", pa.int32()),
        ("window", pa.int64()),
        ("bucket", pa.int64()),
        ("n", pa.int64()),
    ]
)
TALLIES_DDL = "kind smallint, tp_id int, `group` int, window bigint, bucket bigint, n bigint"

NO_GROUP = -1
NO_WINDOW = -1
"""The window of records without a timestamp."""


class TallyKind(IntEnum):
    """The quantity that a tally holds.

    Up to 49: ``n`` events in a window. From 50: ``n`` latencies in a sketch's bucket. From 60: ``n`` is the
    largest latency. From 70: a range of offsets, ``window`` up to ``bucket``.
    """

    # counts of a topic
    PRODUCED = 1
    """Records that exist according to any source: the log, the lake, or a daemon's answer to a producer."""
    ANSWERED = 2
    """Records that a daemon confirmed as written, to a producer or to itself."""
    FAILED = 3
    """Messages that a daemon could not write."""
    ARCHIVED = 4
    ARCHIVE_DUPLICATES = 5
    """Rows of the lake beyond the first of an offset."""
    ARCHIVE_OUT_OF_ORDER = 6
    """Rows that follow a row with a higher offset in their file."""
    ARCHIVE_LATE = 7
    """Records archived later than the stated bound (``--late-after``) after their timestamp."""
    ARCHIVE_LOST = 8
    """Records that the log has, that lie in an archived range, and that the lake lacks."""
    LOG_LOST = 9
    """Records confirmed to a producer that the log lacks, with no rule that removed them."""
    # counts of a group
    OFFERED = 20
    DELIVERIES = 21
    """Offers without the returned ones; a message counts once per offer."""
    ACKED = 22
    RETRIED = 23
    """Offers repeated after ``ack_timeout``."""
    RETURNED = 24
    DEAD_LETTERED = 25
    """Messages given up after ``max_retries``."""
    ACKS_REFUSED = 26
    DUPLICATES_RETRIED = 27
    DUPLICATES_REASSIGNED = 28
    """Messages offered again by a later assignment that started at an earlier position."""
    DUPLICATES_UNEXPLAINED = 29
    OUT_OF_ORDER = 30
    """First offers that follow one with a higher offset within one assignment."""
    LOST = 31
    """Messages below the group's committed offset, neither acknowledged nor given up."""
    UNKNOWN = 32
    """As LOST, but a later hole in the journal may have held the acknowledgement."""
    DUPLICATES_UNKNOWN = 33
    """As DUPLICATES_UNEXPLAINED, but the daemon's journal has a hole."""
    # latency sketches
    PRODUCE_ANSWER = 50
    PRODUCE_OFFER = 51
    OFFER_ACK = 52
    ARCHIVE_DELAY = 53
    # largest latencies
    MAX_PRODUCE_ANSWER = 60
    MAX_PRODUCE_OFFER = 61
    MAX_OFFER_ACK = 62
    MAX_ARCHIVE_DELAY = 63
    # ranges of offsets
    R_ARCHIVED = 70
    R_EXISTS = 71
    R_ANSWERED = 72
    R_ARCHIVE_DUPLICATES = 73
    R_ARCHIVE_OUT_OF_ORDER = 74
    R_LOGGED = 75
    R_ARCHIVE_LATE = 76
    R_ACKED = 80
    R_LOST = 81
    R_UNKNOWN = 82
    R_UNEXPLAINED = 83
    R_OUT_OF_ORDER = 84


FIRST_SKETCH, FIRST_MAXIMUM, FIRST_RANGE = 50, 60, 70

TOPIC_COUNTS = tuple(kind for kind in TallyKind if kind < 20)
GROUP_COUNTS = tuple(kind for kind in TallyKind if 20 <= kind < FIRST_SKETCH)
SKETCHES = tuple(kind for kind in TallyKind if FIRST_SKETCH <= kind < FIRST_MAXIMUM)

_MAXIMUM = {
    TallyKind.PRODUCE_ANSWER: TallyKind.MAX_PRODUCE_ANSWER,
    TallyKind.PRODUCE_OFFER: TallyKind.MAX_PRODUCE_OFFER,
    TallyKind.OFFER_ACK: TallyKind.MAX_OFFER_ACK,
    TallyKind.ARCHIVE_DELAY: TallyKind.MAX_ARCHIVE_DELAY,
}


class Tallies:
    """Collect the tallies of one partition as vectors."""

    def __init__(self, tp_id: int) -> None:
        self._tp_id = tp_id
        self._parts: list[tuple[int, int, Ints, Ints, Ints]] = []

    def count(self, kind: TallyKind, group: int, windows: Ints) -> None:
        """Count one event in each of ``windows``.

        Args:
            kind: of event.
            group: its number; NO_GROUP: the topic.
            windows: an event's window each: its beginning in milliseconds since 1970, or NO_WINDOW.
        """
        if len(windows):
            distinct, n = np.unique(windows, return_counts=True)
            self._parts.append((kind, group, distinct, np.zeros_like(distinct), n))

    def sketch(self, kind: TallyKind, group: int, windows: Ints, values: Ints) -> None:
        """Add latencies to the sketches of their windows, and note each window's largest.

        Args:
            kind: of latency.
            group: its number; NO_GROUP: the topic.
            windows: each latency's window, as for :meth:`count`.
            values: the latencies, in microseconds.
        """
        if not len(windows):
            return
        pairs, n = np.unique(np.stack([windows, sketch.buckets(values)]), axis=1, return_counts=True)
        self._parts.append((kind, group, pairs[0], pairs[1], n))
        order = np.lexsort((values, windows))
        last = np.append(np.flatnonzero(np.diff(windows[order])), len(order) - 1)
        top = order[last]
        largest = np.maximum(values[top], 0)
        self._parts.append((_MAXIMUM[kind], group, windows[top], np.zeros(len(top), np.int64), largest))

    def ranges(self, kind: TallyKind, group: int, base: int, members: Bools) -> None:
        """Add ranges of offsets.

        Args:
            kind: of ranges.
            group: its number; NO_GROUP: the topic.
            base: the offset of slot 0.
            members: slots, true for the offsets in a range.
        """
        edges = np.flatnonzero(np.diff(members.astype(np.int8), prepend=0, append=0))
        if len(edges):
            starts, ends = edges[::2] + base, edges[1::2] + base
            self._parts.append((kind, group, starts, ends, np.ones(len(starts), np.int64)))

    def columns(self) -> dict[str, Ints]:
        """Return all tallies by column of TALLIES."""
        parts = self._parts
        sizes = [len(part[2]) for part in parts]
        empty = np.zeros(0, np.int64)

        def joined(at: int) -> Ints:
            return np.concatenate([part[at] for part in parts]) if parts else empty

        return {
            "kind": np.repeat(np.array([part[0] for part in parts], np.int64), sizes),
            "tp_id": np.full(sum(sizes), self._tp_id, np.int64),
            "group": np.repeat(np.array([part[1] for part in parts], np.int64), sizes),
            "window": joined(2),
            "bucket": joined(3),
            "n": joined(4),
        }


__all__ = [
    "FIRST_MAXIMUM",
    "FIRST_RANGE",
    "FIRST_SKETCH",
    "GROUP_COUNTS",
    "NO_GROUP",
    "NO_WINDOW",
    "SKETCHES",
    "TALLIES",
    "TALLIES_DDL",
    "TOPIC_COUNTS",
    "Bools",
    "Ints",
    "Tallies",
    "TallyKind",
]
