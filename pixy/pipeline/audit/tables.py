"""From tallies to the audit's tables: windows with counts and quantiles, and sketches that still merge."""

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
from pixy.pipeline.audit.facts import (
    FIRST_RANGE,
    FIRST_SKETCH,
    GROUP_COUNTS,
    NO_GROUP,
    SKETCHES,
    TALLIES,
    TOPIC_COUNTS,
    What,
)
from pixy.pipeline.audit.intervals import Intervals
from pixy.wire.types import TopicPartition

Row = dict[str, Any]
Key = tuple[str, int, str | None, int]
"""(topic, partition, group, window): what a row of ``windows`` is about."""

QUANTILES = (0.5, 0.95, 0.99)
METRICS = {
    What.PRODUCE_ANSWER: "produce_answer",
    What.PRODUCE_OFFER: "produce_offer",
    What.OFFER_ACK: "offer_ack",
    What.ARCHIVE_DELAY: "archive_delay",
}
COUNTS = tuple(what.name.lower() for what in (*TOPIC_COUNTS, *GROUP_COUNTS))
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
    """What the numbers stand for."""

    places: Sequence[TopicPartition]
    groups: Sequence[str]

    def key(self, tp: int, group: int, window: int) -> Key:
        """A tally's key in words."""
        return (*self.places[tp], None if group == NO_GROUP else self.groups[group], window)


def rows_of(tallies: pa.Table) -> Iterable[tuple[int, int, int, int, int, int]]:
    """(what, tp, group, window, bucket, n)"""
    return zip(*(tallies.column(name).to_pylist() for name in TALLIES.names), strict=True)


def ranges_of(tallies: pa.Table, names: Names) -> dict[tuple[What, str, int, str | None], Intervals]:
    """Sets of offsets by (what, topic, partition, group)."""
    found: dict[tuple[What, str, int, str | None], list[tuple[int, int]]] = defaultdict(list)
    for what, tp, group, start, end, _ in rows_of(tallies):
        if what >= FIRST_RANGE:
            topic, partition, name, _ = names.key(tp, group, 0)
            found[What(what), topic, partition, name].append((start, end))
    return {key: Intervals.of(ranges) for key, ranges in found.items()}


def windows(tallies: pa.Table, names: Names) -> dict[Key, Row]:
    """Counts and latencies by window. A group's rows repeat the topic's own figures beside its own."""
    counts: dict[Key, Row] = {}
    buckets: dict[tuple[Key, What], list[tuple[int, int]]] = defaultdict(list)
    for what, tp, group, window, bucket, n in rows_of(tallies):
        if what >= FIRST_RANGE:
            continue
        key = names.key(tp, group, window)
        row = counts.setdefault(key, {})
        kind = What(what)
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


def quantile_columns(kind: What, pairs: Sequence[tuple[int, int]], most: float | None) -> Row:
    """p50, p95 and p99 in milliseconds from (bucket, count) pairs.

    Args:
        most: the largest value, which is known exactly: a bucket's middle may lie above it.
    """
    both: NDArray[np.int64] = np.array(pairs, np.int64).reshape(-1, 2)
    found = sketch.quantiles(both[:, 0], both[:, 1], QUANTILES)
    return {
        f"{METRICS[kind]}_p{round(q * 100)}_ms": min(
            round(each / 1000, 3), math.inf if most is None else most
        )
        for q, each in zip(QUANTILES, found, strict=True)
    }


def _with_topic(counts: dict[Key, Row]) -> dict[Key, Row]:
    groups: dict[TopicPartition, set[str | None]] = defaultdict(set)
    for topic, partition, group, _ in counts:
        if group is not None:
            groups[topic, partition].add(group)
    made: dict[Key, Row] = {}
    for (topic, partition, group, window), row in counts.items():
        if group is not None:
            made.setdefault((topic, partition, group, window), {}).update(row)
            continue
        # Where nobody consumes (or not with a journal) the topic's figures stand alone.
        for name in groups.get((topic, partition), {None}):
            made.setdefault((topic, partition, name, window), {}).update(row)
    return made


def sketch_rows(tallies: pa.Table, names: Names) -> list[Row]:
    """The sketches: add up ``count`` over any windows and groups you like, by metric and bucket."""
    found = []
    for what, tp, group, window, bucket, n in rows_of(tallies):
        if what >= FIRST_SKETCH and What(what) in SKETCHES:
            topic, partition, name, start = names.key(tp, group, window)
            found.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "group": name,
                    "window": start,
                    "metric": METRICS[What(what)],
                    "bucket": bucket,
                    "count": n,
                }
            )
    return found


def key_of(row: Row) -> Key:
    """What a sketch's row belongs to."""
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
    "key_of",
    "quantile_columns",
    "ranges_of",
    "rows_of",
    "sketch_rows",
    "windows",
]
