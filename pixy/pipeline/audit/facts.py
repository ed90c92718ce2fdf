"""Facts: the sources' statements about single offsets, as plain numbers.

The driver numbers topics, partitions, groups and daemons beforehand: ten million numbers sort, travel and
compare several times faster than ten million strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pixy.pipeline.audit.tallies import Ints

BLOCK_BITS = 16
"""Blocks have 65,536 offsets: small enough for dense vectors, many enough for all executors."""

ARCHIVED = 20
"""A row of the lake; the number continues the journal's kinds."""
LOGGED = 21
"""A record in the broker's log."""

FACTS = pa.schema(
    [
        ("tp_id", pa.int32()),  # number of the topic and partition
        ("block", pa.int64()),  # offset >> BLOCK_BITS
        ("offset", pa.int64()),
        ("kind", pa.int16()),  # a journal Kind, ARCHIVED or LOGGED
        ("source", pa.int32()),  # number of the journal's stream, or of the lake's file
        ("time", pa.int64()),  # microseconds; of ARCHIVED: index of the row in its file
        ("timestamp", pa.int64()),  # of the record, milliseconds; -1: unknown
        ("attempt", pa.int32()),
        ("took", pa.int64()),  # microseconds; -1: unknown
        ("code", pa.int16()),
    ]
)
PACKED = pa.schema([("tp_id", pa.int32()), ("block", pa.int64()), ("facts", pa.binary())])
PACKED_DDL = "tp_id int, block bigint, facts binary"
"""A value packs thousands of a block's facts: Spark shuffles a few hundred rows, not ten million."""

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
    """Pack facts, given by column, into rows of PACKED; facts of a block keep their order."""
    tp_id, block = facts["tp_id"], facts["block"]
    order = np.lexsort((block, tp_id))
    tp_id, block = tp_id[order], block[order]
    edges = np.flatnonzero((np.diff(tp_id) != 0) | (np.diff(block) != 0)) + 1
    starts = np.concatenate([np.zeros(min(1, len(tp_id)), np.int64), edges])
    ends = np.append(edges, len(tp_id))[: len(starts)]
    columns = [
        (facts[name][order] & 0xFFFF if name == "offset" else facts[name][order]).astype(kind)
        for name, kind in _TYPES.items()
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(tp_id[starts].astype(np.int32), pa.int32()),
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


def unpack(tp_id: int, block: int, packed: Sequence[bytes]) -> dict[str, Ints]:
    """Unpack the facts of one block into columns of 64-bit integers.

    Args:
        tp_id: number of the topic and partition.
        block: offset of the block, in blocks.
        packed: values of the column ``facts`` of PACKED.
    """
    parts: dict[str, list[Ints]] = {name: [] for name in _TYPES}
    for data in packed:
        at, count = 0, len(data) // _WIDTH
        for name, kind in _TYPES.items():
            parts[name].append(np.frombuffer(data, kind, count, at).astype(np.int64))
            at += count * np.dtype(kind).itemsize
    facts = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    facts["offset"] += block << BLOCK_BITS
    size = len(facts["offset"])
    return {"tp_id": np.full(size, tp_id, np.int64), "block": np.full(size, block, np.int64), **facts}


__all__ = ["ARCHIVED", "BLOCK_BITS", "FACTS", "LOGGED", "PACKED", "PACKED_DDL", "pack", "unpack"]
