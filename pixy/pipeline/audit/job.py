"""The audit from its sources to its result."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pixy.pipeline.audit import engine, findings, missing, output, producers, sources, tables
from pixy.pipeline.audit.classify import Context, Watch
from pixy.pipeline.audit.facts import NO_GROUP, NO_WINDOW, TALLIES, What
from pixy.pipeline.audit.findings import Finding
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.merge_windows import Restated, restate
from pixy.pipeline.audit.missing import PartitionView
from pixy.pipeline.audit.open_sources import Gathered, Request, describe, gather
from pixy.pipeline.audit.tables import Names
from pixy.pipeline.errors import UsageError


@dataclass(slots=True)
class Result:
    """What an audit came to.

    Attributes:
        inputs: the sources as used, see :func:`pixy.pipeline.audit.open_sources.describe`.
        digest: SHA-256 over them: two runs with the same one saw the same.
        sketches: rows of :data:`pixy.pipeline.audit.tables.SKETCH_ROWS`.
    """

    request: Request
    now: int
    inputs: dict[str, Any]
    digest: str
    windows: Restated
    partitions: list[PartitionView]
    findings: list[Finding]
    sketches: list[dict[str, Any]]
    run: int = 1
    positions: dict[tuple[str, int, str], Watch] = field(default_factory=dict)


def audit(spark: SparkSession, request: Request, told: Callable[[str], None]) -> Result:
    """Audit, and merge with the run before in the same folder. Writes nothing.

    Args:
        told: gets a line for each step.

    Raises:
        PixyError: a source can not be used; the text names it.
    """
    previous = output.previous(request.out)
    window = previous.settings.get("window_ms", request.window)
    if window != request.window:
        raise UsageError(
            f"--window: {request.out} has windows of {window / 1000:g} s; give the same, or another --out"
        )
    engine.set_up(spark)
    found = gather(spark, request, told)
    names = Names(found.places, found.groups)
    watches = _watches(found)
    told(f"judging {len(found.places)} partitions, {len(found.groups)} groups")
    tallies = engine.run_judge(spark, _facts(spark, request, found), _context(request, found, names, watches))
    views = missing.look(found, tables.ranges_of(tallies, names), request.proxy, told)
    tallies = engine.merge(pa.concat_tables([tallies, _lost(views, names, request.window)]))
    inputs = describe(found, request)
    ranges = tables.ranges_of(tallies, names)
    journal = found.journal
    windows = _windows(request, found, tables.windows(tallies, names), previous)
    carried = set(windows.carried)
    return Result(
        request,
        found.now,
        inputs,
        digest_of(inputs),
        windows,
        views,
        findings.in_order(
            [
                *findings.of_ranges(ranges),
                *findings.of_partitions(views),
                *(findings.of_holes(journal.holes(found.now)) if journal else ()),
                *findings.of_skips({key: watch.skipped for key, watch in watches.items()}),
                *producers.look(spark, request, found, ranges, _unarchived(found), told),
            ]
        ),
        [row for row in tables.sketch_rows(tallies, names) if tables.key_of(row) not in carried]
        + [row for row in previous.sketches if tables.key_of(row) in carried],
        previous.run + 1,
        watches,
    )


def digest_of(inputs: dict[str, Any]) -> str:
    """SHA-256 of what went in."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _watches(found: Gathered) -> dict[tuple[str, int, str], Watch]:
    if found.journal is None:
        return {}
    watches: dict[tuple[str, int, str], Watch] = {}
    for place in found.places:
        for group in found.groups:
            # An archived journal ends somewhere in the past: its own word counts, not today's offset.
            committed = found.committed.get((group, *place), -1) if found.journal_from == "kafka" else None
            watch = found.journal.watch(place, group, committed, found.now)
            if watch is not None:
                watches[(*place, group)] = watch
    return watches


def _facts(spark: SparkSession, request: Request, found: Gathered) -> list[DataFrame]:
    numbers = {place: at for at, place in enumerate(found.places)}
    frame = sources.place_frame(spark, numbers)
    facts: list[DataFrame | None] = []
    if found.lake is not None:
        topics = sorted({topic for topic, _ in found.places} & set(found.state.topics()))
        facts.append(_packed(sources.lake_facts(spark, found.lake, found.state, topics, frame)))
    if found.journal is not None and found.journal_frame is not None:
        facts.append(
            engine.journal_facts(found.journal_frame, found.journal.numbers, numbers, found.journal.twice())
        )
    if request.proxy is not None and request.log:
        facts.append(_packed(sources.log_facts(spark, request.proxy, _unarchived(found), frame)))
    return [each for each in facts if each is not None]


def _packed(facts: DataFrame | None) -> DataFrame | None:
    return None if facts is None else engine.packed(facts)


def _unarchived(found: Gathered) -> dict[tuple[str, int], tuple[int, int]]:
    """What of the log lies behind the lake's end; all of it where there is no lake."""
    return {
        place: (max(begin, found.archived_end(place) or 0), end)
        for place, (begin, end) in found.bounds.items()
    }


def _context(
    request: Request, found: Gathered, names: Names, watches: dict[tuple[str, int, str], Watch]
) -> Context:
    tps = {place: at for at, place in enumerate(names.places)}
    groups = {group: at for at, group in enumerate(names.groups)}
    journal = found.journal
    published = {}
    for place, tp in tps.items():
        ranges = sorted((each.range.start, each.published) for each in found.state.ranges.get(place, ()))
        if ranges:
            both = np.array(ranges, np.int64)
            published[tp] = (both[:, 0].copy(), both[:, 1].copy())
    return Context(
        request.window,
        request.watermark,
        np.array([groups.get(key[4], NO_GROUP) for key in (journal.numbers if journal else ())], np.int64),
        np.array(journal.holed(found.now) if journal else [], np.bool_),
        {
            (tps[topic, partition], groups[group]): watch
            for (topic, partition, group), watch in watches.items()
        },
        published,
    )


def _lost(views: list[PartitionView], names: Names, window: int) -> pa.Table:
    """Tallies of what only a look into the log could tell."""
    rows: dict[str, list[int]] = {name: [] for name in TALLIES.names}
    for tp, view in enumerate(views):
        assert (view.topic, view.partition) == names.places[tp]
        gone = Intervals.of((gap.start, gap.end) for gap in view.log_lost)
        for what, offsets in ((What.ARCHIVE_LOST, view.archive_lost), (What.LOG_LOST, gone)):
            stamps = [stamp for offset, stamp in view.stamps.items() if offset in offsets]
            windows = Counter(stamp - stamp % window for stamp in stamps if stamp >= 0)
            windows[NO_WINDOW] += offsets.count - windows.total()
            for at, n in (+windows).items():
                for name, value in zip(TALLIES.names, (what, tp, NO_GROUP, at, 0, n), strict=True):
                    rows[name].append(value)
    return pa.table({name: pa.array(rows[name], TALLIES.field(name).type) for name in TALLIES.names})


def _windows(
    request: Request, found: Gathered, now: dict[tables.Key, tables.Row], previous: output.Previous
) -> Restated:
    newest = max((key[3] for key in now), default=0) + request.window
    if found.journal is not None:
        newest = max(newest, found.journal.end // 1000)
    reach = 0
    if found.journal is not None and not all(epoch.begins for epoch in found.journal.epochs.values()):
        reach = found.journal.begin // 1000
    return restate(
        now,
        previous.windows,
        window=request.window,
        closed_before=newest - request.watermark,
        reach=reach,
        closed_then=previous.closed_before,
    )


__all__ = ["Result", "audit", "digest_of"]
