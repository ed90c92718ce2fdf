"""Turn tallies into the audit's tables: windows with counts and quantiles, and sketches that still merge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pixy.pipeline.audit import sketch
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.tallies import (
    FIRST_RANGE,
    FIRST_SKETCH,
    GROUP_COUNTS,
    NO_GROUP,
    SKETCHES,
    TALLIES,
    TOPIC_COUNTS,
    TallyKind,
)
from pixy.wire.types import TopicPartition

Row = dict[str, Any]
Key = tuple[str, int, str | None, int]
"""(topic, partition, group, window): identifies a row of ``windows.parquet``."""

QUANTILES = (0.5, 0.95, 0.99)
METRICS = {
    TallyKind.PRODUCE_ANSWER: "produce_answer",
    TallyKind.PRODUCE_OFFER: "produce_offer",
    TallyKind.OFFER_ACK: "offer_ack",
    TallyKind.ARCHIVE_DELAY: "archive_delay",
}
COUNTS = tuple(kind.name.lower() for kind in (*TOPIC_COUNTS, *GROUP_COUNTS))
LATENCIES = tuple(
    f"{metric}_{part}_ms" for metric in METRICS.values() for part in ("p50", "p95", "p99", "max")
)

WINDOWS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("group", pa.string()),
        ("window", pa.timestamp("ms", tz="UTC")),
        *((name, pa.int64()) for name in COUNTS),
        *((name, pa.float64()) for name in LATENCIES),
        ("closed", pa.bool_()),
        ("revision", pa.int32()),
        ("restated", pa.bool_()),
        ("carried", pa.bool_()),
    ]
)
SKETCH_ROWS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("group", pa.string()),
        ("window", pa.timestamp("ms", tz="UTC")),
        ("metric", pa.string()),
        ("bucket", pa.int32()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Names:
    """The names behind the numbers of partitions and groups."""

    partitions: Sequence[TopicPartition]
    groups: Sequence[str]

    def key(self, tp_id: int, group: int, window: int) -> Key:
        """Return a tally's key with names: topic, partition, group and window.

        Args:
            tp_id: the partition's number.
            group: the group's; NO_GROUP becomes None.
            window: its beginning, in milliseconds since 1970; NO_WINDOW: of records without a time.
        """
        return (*self.partitions[tp_id], None if group == NO_GROUP else self.groups[group], window)


def tally_rows(tallies: pa.Table) -> Iterable[tuple[int, int, int, int, int, int]]:
    """Iterate over tallies as (kind, tp_id, group, window, bucket, n)."""
    return zip(*(tallies.column(name).to_pylist() for name in TALLIES.names), strict=True)


def offset_ranges(tallies: pa.Table, names: Names) -> dict[tuple[TallyKind, str, int, str | None], Intervals]:
    """Return the sets of offsets by (kind, topic, partition, group)."""
    found: dict[tuple[TallyKind, str, int, str | None], list[tuple[int, int]]] = defaultdict(list)
    for kind, tp_id, group, start, end, _ in tally_rows(tallies):
        if kind >= FIRST_RANGE:
            topic, partition, name, _ = names.key(tp_id, group, 0)
            found[TallyKind(kind), topic, partition, name].append((start, end))
    return {key: Intervals.of(ranges) for key, ranges in found.items()}


def window_rows(tallies: pa.Table, names: Names) -> dict[Key, Row]:
    """Return counts and latencies by window; a group's rows repeat the topic's figures beside its own."""
    counts: dict[Key, Row] = {}
    buckets: dict[tuple[Key, TallyKind], list[tuple[int, int]]] = defaultdict(list)
    for number, tp_id, group, window, bucket, n in tally_rows(tallies):
        if number >= FIRST_RANGE:
            continue
        key = names.key(tp_id, group, window)
        row = counts.setdefault(key, {})
        kind = TallyKind(number)
        if kind in SKETCHES:
            buckets[key, kind].append((bucket, n))
        elif kind < FIRST_SKETCH:
            row[kind.name.lower()] = n
        else:
            row[f"{kind.name.lower().removeprefix('max_')}_max_ms"] = n / 1000
    for (key, kind), pairs in buckets.items():
        row = counts[key]
        row |= quantile_columns(kind, pairs, row.get(f"{METRICS[kind]}_max_ms"))
    return _with_topic(counts)


def quantile_columns(kind: TallyKind, pairs: Sequence[tuple[int, int]], largest: float | None) -> Row:
    """Return p50, p95 and p99 in milliseconds.

    Args:
        kind: the sketch's kind, for the columns' names.
        pairs: (bucket, count).
        largest: the exact maximum in milliseconds, if known: a bucket's middle may lie above it.
    """
    both: NDArray[np.int64] = np.array(pairs, np.int64).reshape(-1, 2)
    found = sketch.quantiles(both[:, 0], both[:, 1], QUANTILES)
    return {
        f"{METRICS[kind]}_p{round(q * 100)}_ms": min(
            round(each / 1000, 3), math.inf if largest is None else largest
        )
        for q, each in zip(QUANTILES, found, strict=True)
    }


def _with_topic(counts: dict[Key, Row]) -> dict[Key, Row]:
    groups: dict[TopicPartition, set[str | None]] = defaultdict(set)
    for topic, partition, group, _ in counts:
        if group is not None:
            groups[topic, partition].add(group)
    rows: dict[Key, Row] = {}
    for (topic, partition, group, window), row in counts.items():
        if group is not None:
            rows.setdefault((topic, partition, group, window), {}).update(row)
            continue
        # Without groups (or without a journal of them), the topic's figures get a row of their own.
        for name in groups.get((topic, partition), {None}):
            rows.setdefault((topic, partition, name, window), {}).update(row)
    return rows


def sketch_rows(tallies: pa.Table, names: Names) -> list[Row]:
    """Return the sketches as rows; by metric and bucket, ``count`` adds up over any windows and groups."""
    rows = []
    for kind, tp_id, group, window, bucket, n in tally_rows(tallies):
        if kind >= FIRST_SKETCH and TallyKind(kind) in SKETCHES:
            topic, partition, name, start = names.key(tp_id, group, window)
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "group": name,
                    "window": start,
                    "metric": METRICS[TallyKind(kind)],
                    "bucket": bucket,
                    "count": n,
                }
            )
    return rows


def sketch_key(row: Row) -> Key:
    """Return the key of the window that a sketch's row belongs to."""
    return row["topic"], row["partition"], row["group"], row["window"]


__all__ = [
    "COUNTS",
    "LATENCIES",
    "METRICS",
    "QUANTILES",
    "SKETCH_ROWS",
    "WINDOWS",
    "Key",
    "Names",
    "Row",
    "offset_ranges",
    "quantile_columns",
    "sketch_key",
    "sketch_rows",
    "tally_rows",
    "window_rows",
]
