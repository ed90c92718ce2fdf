"""Run an audit, from its sources to its result."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pixy.pipeline.audit import findings, frames, spark_jobs, tables
from pixy.pipeline.audit.classify import Context, GroupHistory
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.merge_windows import MergedWindows, merge_windows
from pixy.pipeline.audit.open_sources import AuditSources, describe, open_sources
from pixy.pipeline.audit.output import previous_findings
from pixy.pipeline.audit.partitions import PartitionView, inspect_partitions
from pixy.pipeline.audit.period import carried, first_new, slices
from pixy.pipeline.audit.previous_run import PreviousRun, read_previous_run
from pixy.pipeline.audit.producers import check_producers
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.tables import Names
from pixy.pipeline.audit.tallies import NO_GROUP, NO_WINDOW, TALLIES, TallyKind
from pixy.pipeline.audit.waiting import find_waiting
from pixy.wire.types import TopicPartition

Histories = dict[tuple[str, int, str], GroupHistory]
"""By (topic, partition, group)."""


def audit(spark: SparkSession, request: AuditRequest, on_progress: Callable[[str], None]) -> AuditResult:
    """Audit the sources and merge the windows with those of the earlier run; writes nothing.

    Args:
        spark: the session to run on; the audit changes one of its settings.
        request: sources, topics and settings.
        on_progress: gets a line of text for each step.

    Raises:
        PixyError: a source cannot be used; the text names it.
    """
    previous = read_previous_run(request.out)
    previous.check_window(request.window, request.out)
    spark_jobs.set_up(spark)
    since = request.since
    if request.incremental:
        sources = open_sources(spark, request, on_progress, lambda found: first_new(request, found, previous))
    else:
        sources = open_sources(spark, request, on_progress, lambda _: since)
    sources.slices = slices(sources)
    names = Names(sources.partitions, sources.groups)
    histories = _histories(sources)
    on_progress(f"classifying {len(sources.partitions)} partitions, {len(sources.groups)} groups")
    tallies = spark_jobs.classify_facts(
        spark, _facts(spark, request, sources), _context(request, sources, names, histories)
    )
    views = inspect_partitions(sources, tables.offset_ranges(tallies, names), request.proxy, on_progress)
    tallies = spark_jobs.merge(pa.concat_tables([tallies, _lost(views, names, request.window)]))
    ranges = tables.offset_ranges(tallies, names)
    journal = sources.journal
    inputs = describe(sources, request)
    rows = {
        key: row for key, row in tables.window_rows(tallies, names).items() if _in_period(key[3], sources)
    }
    windows = _windows(request, sources, rows, previous)
    return AuditResult(
        request,
        sources.now,
        inputs,
        digest_of(inputs),
        windows,
        views,
        findings.sort(
            [
                *carried(previous_findings(request.out) if sources.slices else (), sources),
                *findings.from_ranges(ranges, request.late_after),
                *findings.from_partitions(views),
                *(findings.from_holes(journal.holes(sources.now)) if journal else ()),
                *findings.from_skips({key: history.skipped for key, history in histories.items()}),
                *findings.from_waiting(
                    find_waiting(sources, request.proxy, request.late_after), request.late_after
                ),
                *check_producers(spark, request, sources, ranges, _unarchived(sources), on_progress),
            ]
        ),
        _sketches(tables.sketch_rows(tallies, names), windows, previous),
        previous.run + 1,
        sources.until is None and (sources.since is None or (request.incremental and previous.complete)),
    )


def digest_of(inputs: dict[str, Any]) -> str:
    """Return the SHA-256 of the description of the sources."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _in_period(window: int, sources: AuditSources) -> bool:
    """Tell whether all messages of a window were looked at; those without a timestamp only in an audit of everything."""
    if sources.since is None and sources.until is None:
        return True
    return (sources.since or 0) <= window < (window + 1 if sources.until is None else sources.until)


def _histories(sources: AuditSources) -> Histories:
    if sources.journal is None:
        return {}
    histories: Histories = {}
    for tp in sources.partitions:
        for group in sources.groups:
            # An archived journal ends in the past, so its own positions count, not today's committed offset.
            committed = sources.committed.get((group, *tp), -1) if sources.journal_from == "kafka" else None
            history = sources.journal.history(tp, group, committed, sources.now)
            if history is not None:
                histories[(*tp, group)] = history
    return histories


def _facts(spark: SparkSession, request: AuditRequest, sources: AuditSources) -> list[DataFrame]:
    tp_ids = {tp: number for number, tp in enumerate(sources.partitions)}
    numbered = frames.partition_frame(spark, tp_ids, sources.slices)
    facts: list[DataFrame | None] = []
    if sources.lake is not None:
        topics = sources.archived_topics()
        rows = frames.lake_facts(spark, sources.lake, sources.state, topics, numbered, sources.is_wanted)
        facts.append(_packed(rows))
    journal = sources.journal
    if journal is not None and sources.journal_frame is not None:
        facts.append(
            spark_jobs.journal_facts(
                sources.journal_frame,
                journal.stream_numbers,
                tp_ids,
                journal.repeated_records(),
                sources.slices,
            )
        )
    if request.proxy is not None and request.log:
        facts.append(_packed(frames.log_facts(spark, request.proxy, _unarchived(sources), numbered)))
    return [each for each in facts if each is not None]


def _packed(facts: DataFrame | None) -> DataFrame | None:
    return None if facts is None else spark_jobs.packed(facts)


def _unarchived(sources: AuditSources) -> dict[TopicPartition, tuple[int, int]]:
    """Return the part of the log above the lake's end; the whole log where there is no lake."""
    return sources.clipped(
        {tp: (max(begin, sources.archived_end(tp) or 0), end) for tp, (begin, end) in sources.bounds.items()}
    )


def _context(request: AuditRequest, sources: AuditSources, names: Names, histories: Histories) -> Context:
    tp_ids = {tp: number for number, tp in enumerate(names.partitions)}
    groups = {group: number for number, group in enumerate(names.groups)}
    journal = sources.journal
    published = {}
    for tp, tp_id in tp_ids.items():
        ranges = sorted((each.range.start, each.published) for each in sources.ranges.get(tp, ()))
        if ranges:
            columns = np.array(ranges, np.int64)
            published[tp_id] = (columns[:, 0].copy(), columns[:, 1].copy())
    return Context(
        request.window,
        request.late_after,
        np.array(
            [groups.get(key[4], NO_GROUP) for key in (journal.stream_numbers if journal else ())], np.int64
        ),
        np.array(journal.streams_with_holes(sources.now) if journal else [], np.bool_),
        {
            (tp_ids[topic, partition], groups[group]): history
            for (topic, partition, group), history in histories.items()
        },
        published,
    )


def _lost(views: list[PartitionView], names: Names, window: int) -> pa.Table:
    """Return the tallies of the losses that only a look into the log reveals."""
    rows: dict[str, list[int]] = {name: [] for name in TALLIES.names}
    for tp_id, view in enumerate(views):
        assert (view.topic, view.partition) == names.partitions[tp_id]
        log_lost = Intervals.of((gap.start, gap.end) for gap in view.log_lost)
        for kind, offsets in (
            (TallyKind.ARCHIVE_LOST, view.archive_lost),
            (TallyKind.LOG_LOST, log_lost),
        ):
            timestamps = [timestamp for offset, timestamp in view.timestamps.items() if offset in offsets]
            windows = Counter(timestamp - timestamp % window for timestamp in timestamps if timestamp >= 0)
            windows[NO_WINDOW] += offsets.count - windows.total()
            for start, n in (+windows).items():
                for name, value in zip(TALLIES.names, (kind, tp_id, NO_GROUP, start, 0, n), strict=True):
                    rows[name].append(value)
    return pa.table({name: pa.array(rows[name], TALLIES.field(name).type) for name in TALLIES.names})


def _windows(
    request: AuditRequest,
    sources: AuditSources,
    rows: dict[tables.Key, tables.Row],
    previous: PreviousRun,
) -> MergedWindows:
    journal = sources.journal
    newest = max((key[3] for key in rows), default=0) + request.window
    complete_since = 0
    if journal is not None:
        newest = max(newest, journal.end // 1000)
        if not sources.journal_cut and not all(epoch.has_beginning for epoch in journal.epochs.values()):
            complete_since = journal.begin // 1000
    return merge_windows(
        rows,
        previous.windows,
        window=request.window,
        closed_before=newest - request.watermark,
        complete_since=complete_since,
        previously_closed_before=previous.closed_before,
    )


def _sketches(rows: list[tables.Row], windows: MergedWindows, previous: PreviousRun) -> list[tables.Row]:
    kept = set(windows.carried)
    current = {(key[0], key[1], key[3]) for key in windows.rows if key not in kept}

    def is_carried(row: tables.Row) -> bool:
        key = tables.sketch_key(row)
        # Where there are groups, no window has the sketches of the topic itself as its own.
        return key in kept or (key[2] is None and (key[0], key[1], key[3]) not in current)

    return [row for row in rows if not is_carried(row)] + [
        row for row in previous.sketches if is_carried(row)
    ]


__all__ = ["audit", "digest_of"]
