"""Facts and tallies: what the sources give to the judge, and what it gives back. Plain numbers.

Names (topics, groups, daemons) are numbered by the driver before, because ten million numbers sort,
travel and compare several times faster than ten million strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BLOCK_BITS = 16
"""Offsets are judged in blocks of 65,536: small enough to be held densely, many enough to spread."""

ARCHIVED = 20
"""A row of the lake; beside the journal's kinds."""
LOGGED = 21
"""A record in the broker's log."""

FACTS = pa.schema(
    [
        ("tp", pa.int32()),  # number of the topic and partition
        ("block", pa.int64()),  # offset >> BLOCK_BITS
        ("offset", pa.int64()),
        ("kind", pa.int16()),  # a journal Kind, ARCHIVED or LOGGED
        ("source", pa.int32()),  # number of the journal's stream, or of the lake's file
        ("time", pa.int64()),  # microseconds; of ARCHIVED: the row's place in its file
        ("timestamp", pa.int64()),  # of the record, milliseconds; -1: not known
        ("attempt", pa.int32()),
        ("took", pa.int64()),  # microseconds; -1: not known
        ("code", pa.int16()),
    ]
)
PACKED = pa.schema([("tp", pa.int32()), ("block", pa.int64()), ("facts", pa.binary())])
PACKED_DDL = "tp int, block bigint, facts binary"
"""Facts of one block by the thousand, as one value: Spark shuffles some hundred rows rather than ten
million, of which each would be taken apart and put together several times."""

_TYPES = {
    "offset": "<u2",
    "kind": "<i2",
    "source": "<i4",
    "time": "<i8",
    "timestamp": "<i8",
    "attempt": "<i4",
    "took": "<i8",
    "code": "<i2",
}
_WIDTH = sum(np.dtype(kind).itemsize for kind in _TYPES.values())


def pack(facts: Mapping[str, Ints]) -> pa.RecordBatch:
    """Facts by column as rows of PACKED; the order within a block is kept."""
    tp, block = facts["tp"], facts["block"]
    order = np.lexsort((block, tp))
    tp, block = tp[order], block[order]
    edges = np.flatnonzero((np.diff(tp) != 0) | (np.diff(block) != 0)) + 1
    starts = np.concatenate([np.zeros(min(1, len(tp)), np.int64), edges])
    ends = np.append(edges, len(tp))[: len(starts)]
    columns = [
        (facts[name][order] & 0xFFFF if name == "offset" else facts[name][order]).astype(kind)
        for name, kind in _TYPES.items()
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(tp[starts].astype(np.int32), pa.int32()),
            pa.array(block[starts], pa.int64()),
            pa.array(
                [
                    b"".join(column[start:end].tobytes() for column in columns)
                    for start, end in zip(starts, ends, strict=True)
                ],
                pa.binary(),
            ),
        ],
        schema=PACKED,
    )


def unpack(tp: int, block: int, packed: Sequence[bytes]) -> dict[str, Ints]:
    """The facts of one block, by column, as 64-bit integers."""
    parts: dict[str, list[Ints]] = {name: [] for name in _TYPES}
    for data in packed:
        at, count = 0, len(data) // _WIDTH
        for name, kind in _TYPES.items():
            parts[name].append(np.frombuffer(data, kind, count, at).astype(np.int64))
            at += count * np.dtype(kind).itemsize
    facts = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    facts["offset"] += block << BLOCK_BITS
    size = len(facts["offset"])
    return {"tp": np.full(size, tp, np.int64), "block": np.full(size, block, np.int64), **facts}


TALLIES = pa.schema(
    [
        ("what", pa.int16()),
        ("tp", pa.int32()),
        ("group", pa.int32()),
        ("window", pa.int64()),
        ("bucket", pa.int64()),
        ("n", pa.int64()),
    ]
)
TALLIES_DDL = "what smallint, tp int, `group` int, window bigint, bucket bigint, n bigint"

NO_GROUP = -1
NO_WINDOW = -1
"""The window of what has no timestamp."""


class What(IntEnum):
    """What a tally counts. Up to 49: ``n`` in a window. Then sketches, maxima and ranges."""

    # of the topic
    PRODUCED = 1
    """Records that exist, by any source: the log, the lake, or a daemon's answer to a producer."""
    ANSWERED = 2
    """Records that a daemon told a producer (or itself) to be written."""
    FAILED = 3
    """Messages that a daemon could not write."""
    ARCHIVED = 4
    ARCHIVE_DUPLICATES = 5
    """Rows of the lake beyond the first of an offset."""
    ARCHIVE_OUT_OF_ORDER = 6
    """Rows that stand in their file behind a row with a higher offset."""
    ARCHIVE_LATE = 7
    """Archived after their window was closed by the watermark."""
    ARCHIVE_LOST = 8
    """In the log, in an archived range, and not in the lake."""
    LOG_LOST = 9
    """Confirmed to a producer, and neither in the log nor gone by any rule."""
    # of a group
    OFFERED = 20
    DELIVERIES = 21
    """Offers without those that were returned: the same message as often as it was offered."""
    ACKED = 22
    RETRIED = 23
    """Offers again after ``ack_timeout``."""
    RETURNED = 24
    DEAD_LETTERED = 25
    """Given up after ``max_retries``."""
    ACKS_REFUSED = 26
    DUPLICATES_RETRIED = 27
    DUPLICATES_REASSIGNED = 28
    """Offered again by another assignment, for its position was behind."""
    DUPLICATES_UNEXPLAINED = 29
    OUT_OF_ORDER = 30
    """First offers after one with a higher offset, within one assignment."""
    LOST = 31
    """Passed by the group's committed offset and never acknowledged nor given up."""
    UNKNOWN = 32
    """As LOST, but the journal has a hole behind the message: it may tell too little."""
    DUPLICATES_UNKNOWN = 33
    """Would be unexplained, but the journal of the daemon has a hole."""
    # sketches: ``bucket`` is the sketch's
    PRODUCE_ANSWER = 50
    PRODUCE_OFFER = 51
    OFFER_ACK = 52
    ARCHIVE_DELAY = 53
    # the largest ``n`` counts
    MAX_PRODUCE_ANSWER = 60
    MAX_PRODUCE_OFFER = 61
    MAX_OFFER_ACK = 62
    MAX_ARCHIVE_DELAY = 63
    # ranges: offsets from ``window`` up to ``bucket``
    R_ARCHIVED = 70
    R_EXISTS = 71
    R_ANSWERED = 72
    R_ARCHIVE_DUPLICATES = 73
    R_ARCHIVE_OUT_OF_ORDER = 74
    R_LOGGED = 75
    R_ACKED = 80
    R_LOST = 81
    R_UNKNOWN = 82
    R_UNEXPLAINED = 83
    R_OUT_OF_ORDER = 84


FIRST_SKETCH, FIRST_MAXIMUM, FIRST_RANGE = 50, 60, 70

TOPIC_COUNTS = tuple(what for what in What if what < 20)
GROUP_COUNTS = tuple(what for what in What if 20 <= what < FIRST_SKETCH)
SKETCHES = tuple(what for what in What if FIRST_SKETCH <= what < FIRST_MAXIMUM)

__all__ = [
    "ARCHIVED",
    "BLOCK_BITS",
    "FACTS",
    "FIRST_MAXIMUM",
    "FIRST_RANGE",
    "FIRST_SKETCH",
    "GROUP_COUNTS",
    "LOGGED",
    "NO_GROUP",
    "NO_WINDOW",
    "PACKED",
    "PACKED_DDL",
    "SKETCHES",
    "TALLIES",
    "TALLIES_DDL",
    "TOPIC_COUNTS",
    "What",
    "pack",
    "unpack",
]
