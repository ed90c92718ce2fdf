"""Open the audit's sources, in an order that makes them consistent with each other.

The groups' committed offsets are read *before* the end of the journal is determined, with a pause in between
in which the daemons write their pending events. So the journal has every ack that a committed offset counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pixy.config.model import Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit import frames, spark_jobs
from pixy.pipeline.audit.check_sources import nothing_to_audit, unknown_journal, unknown_topics
from pixy.pipeline.audit.journal_view import JournalView
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.lake import Archived, DataFile, Lake, State
from pixy.wire.types import TopicPartition

Slice = tuple[int, int]
"""Offsets ``[start, end)`` of a partition."""

EVERYTHING: Final[Slice] = (0, 1 << 62)


@dataclass(slots=True)
class AuditSources:
    """The opened sources; an absent one is None or empty.

    Attributes:
        now: when the sources were read, microseconds since 1970.
        state: the lake's live files and ranges.
        ranges: the archived ranges of each partition of the lake.
        removed: those whose records have expired or were erased.
        journal_from: ``kafka`` or ``lake``.
        partitions: the partitions to audit, sorted.
        committed: committed offsets by (group, topic, partition).
        bounds: log start and last stable offset of the partitions that the cluster has.
        configs: topic settings by topic.
        since, until: the period, milliseconds, whole windows; None for no bound.
        slices: the offsets to look at; empty for all.
        journal_cut: whether the journal was read from ``since`` on, though it has more.
    """

    now: int
    lake: Lake | None = None
    state: State = field(default_factory=State)
    ranges: dict[TopicPartition, list[Archived]] = field(default_factory=dict)
    removed: dict[TopicPartition, list[Archived]] = field(default_factory=dict)
    view: ClusterView | None = None
    journal: JournalView | None = None
    journal_frame: DataFrame | None = None
    journal_from: str = ""
    partitions: list[TopicPartition] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    bounds: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None
    slices: dict[TopicPartition, Slice] = field(default_factory=dict)
    journal_cut: bool = False

    def slice(self, tp: TopicPartition) -> Slice:
        """Return the offsets to look at."""
        return self.slices.get(tp, EVERYTHING)

    def clipped(self, bounds: Mapping[TopicPartition, Slice]) -> dict[TopicPartition, Slice]:
        """Return the parts of ranges to look at; empty ones end where they begin."""
        parts = {tp: (self.slice(tp), each) for tp, each in bounds.items()}
        return {
            tp: (max(each[0], part[0]), max(each[0], part[0], min(each[1], part[1])))
            for tp, (part, each) in parts.items()
        }

    def is_wanted(self, file: DataFile) -> bool:
        """Tell whether a file of the lake may hold offsets to look at."""
        return not self.slices or any(
            topic == file.topic and file.may_hold(number) and file.last >= low and file.first < high
            for (topic, number), (low, high) in self.slices.items()
        )

    def archived_end(self, tp: TopicPartition) -> int | None:
        """Return the offset after the last archived one; None if the lake lacks the partition."""
        ranges = self.ranges.get(tp)
        return max(each.range.end for each in ranges) if ranges else None

    def archived_topics(self) -> list[str]:
        """Return the audited topics that the lake has, sorted."""
        return sorted({topic for topic, _ in self.partitions} & {topic for topic, _ in self.ranges})


def open_sources(
    spark: SparkSession,
    request: AuditRequest,
    on_progress: Callable[[str], None],
    since: Callable[[AuditSources], int | None] = lambda _: None,
) -> AuditSources:
    """Open the lake, the cluster and the journal, and select partitions and groups.

    Args:
        spark: the session that reads lake and journal.
        request: names the sources.
        since: returns the begin of the period, asked when the lake is open.
        on_progress: gets a line of text for each source.

    Raises:
        PixyError: a named source does not exist or cannot be read; the text names it.
    """
    sources = AuditSources(time.time_ns() // 1000)
    if request.lake:
        sources.lake = Lake.open(request.lake)
        sources.state = sources.lake.state()
        sources.ranges, sources.removed = sources.state.ranges, sources.state.removed
        on_progress(f"lake {request.lake}: {len(sources.state.files):,} files, entry {sources.state.seq}")
    begin = since(sources)
    sources.since = None if begin is None else begin - begin % request.window
    sources.until = None if request.until is None else -(-request.until // request.window) * request.window
    cluster_topics: dict[str, int] = {}
    if request.proxy is not None:
        sources.view = ClusterView(settings.admin(request.proxy), request.proxy.net.dial_timeout)
        cluster_topics = sources.view.topics()
    _open_journal(spark, request, sources, cluster_topics, on_progress)
    _select_partitions(request, sources, cluster_topics)
    if sources.view is not None:
        existing = [tp for tp in sources.partitions if tp[1] < cluster_topics.get(tp[0], 0)]
        sources.bounds = sources.view.bounds(existing, committed=True)
        sources.configs = sources.view.configs(sorted({topic for topic, _ in existing}))
        if sources.journal_from != "kafka":
            _ask_committed(sources, existing)
    return sources


def _ask_committed(sources: AuditSources, partitions: list[TopicPartition]) -> None:
    """Ask for the groups' positions, which alone say how far they are behind; a journal has asked before."""
    assert sources.view is not None
    for group in sources.groups:
        committed = sources.view.committed(group, partitions)
        sources.committed |= {(group, *tp): offset for tp, (offset, _) in committed.items()}


def _select_partitions(request: AuditRequest, sources: AuditSources, cluster_topics: dict[str, int]) -> None:
    partitions = set(sources.ranges)
    if sources.journal is not None:
        partitions |= sources.journal.partitions()
    topics = set(request.topics) or {topic for topic, _ in partitions}
    topics -= {request.journal_topic}
    partitions |= {(topic, number) for topic in topics for number in range(cluster_topics.get(topic, 0))}
    missing = topics - {topic for topic, _ in partitions}
    if missing:
        raise unknown_topics(missing)
    sources.partitions = sorted(tp for tp in partitions if tp[0] in topics)
    if not sources.partitions:
        raise nothing_to_audit()


def _open_journal(
    spark: SparkSession,
    request: AuditRequest,
    sources: AuditSources,
    cluster_topics: dict[str, int],
    on_progress: Callable[[str], None],
) -> None:
    topic = request.journal_topic
    if not topic:
        sources.groups = sorted(request.groups)
        return
    if topic in cluster_topics:
        _open_journal_of_kafka(spark, request, sources, topic, cluster_topics[topic])
    elif sources.lake is not None and topic in sources.state.topics():
        frame = frames.journal_of_lake(spark, sources.lake, sources.state, topic)
        sources.journal = JournalView(spark_jobs.survey_journal(frame), topic)
        sources.journal_frame, sources.journal_from = frame, "lake"
    else:
        raise unknown_journal(topic)
    assert sources.journal is not None
    sources.groups = sorted(request.groups) or sources.journal.groups()
    on_progress(
        f"journal {topic} from {sources.journal_from}: {sources.journal.events:,} events of "
        f"{len(sources.journal.clients)} daemons"
    )


def _open_journal_of_kafka(
    spark: SparkSession, request: AuditRequest, sources: AuditSources, topic: str, count: int
) -> None:
    assert sources.view is not None
    assert request.proxy is not None
    partitions = [(topic, number) for number in range(count)]
    before = _since(sources, sources.view.bounds(partitions))
    surveys = spark_jobs.survey_journal(_records(spark, request.proxy, before))
    known = JournalView(surveys, topic)
    for group in request.groups or known.groups():
        committed = sources.view.committed(group, sorted(known.partitions()))
        sources.committed |= {(group, *tp): offset for tp, (offset, _) in committed.items()}
    time.sleep(request.settle)
    after = sources.view.bounds(partitions)
    sources.now = time.time_ns() // 1000
    added = {tp: (before[tp][1], after[tp][1]) for tp in partitions}
    if any(start < end for start, end in added.values()):
        surveys += spark_jobs.survey_journal(_records(spark, request.proxy, added))
    sources.journal = JournalView(surveys, topic)
    sources.journal_frame = _records(
        spark, request.proxy, {tp: (before[tp][0], after[tp][1]) for tp in partitions}
    )
    sources.journal_from = "kafka"


def _since(
    sources: AuditSources, bounds: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Leave out the journal's records from before the period: events are not older than their messages."""
    if sources.since is None or sources.view is None:
        return bounds
    at = sources.view.offsets_at(sorted(bounds), sources.since)
    cut = {tp: (max(start, end if at[tp] < 0 else at[tp]), end) for tp, (start, end) in bounds.items()}
    sources.journal_cut = cut != bounds
    return cut


def _records(spark: SparkSession, proxy: Proxy, bounds: dict[TopicPartition, tuple[int, int]]) -> DataFrame:
    return frames.read_kafka(spark, proxy, bounds).select("partition", "offset", "value")


def describe(sources: AuditSources, request: AuditRequest) -> dict[str, Any]:
    """Return the sources as plain values, complete enough that equal descriptions mean equal data."""
    asked = sources.view is not None
    return {
        "lake": _describe_lake(sources),
        "journal": _describe_journal(sources),
        "log": {
            f"{topic}/{partition}": list(bounds)
            for (topic, partition), bounds in sorted(sources.bounds.items())
        }
        if asked
        else None,
        "committed": {
            f"{group} {topic}/{partition}": offset
            for (group, topic, partition), offset in sorted(sources.committed.items())
        }
        if asked and sources.groups
        else None,
        "settings": {
            "window_ms": request.window,
            "watermark_ms": request.watermark,
            "late_after_ms": request.late_after,
            "topics": sorted({topic for topic, _ in sources.partitions}),
            "groups": sources.groups,
        },
    }


def _describe_lake(sources: AuditSources) -> dict[str, Any] | None:
    if sources.lake is None:
        return None
    return {
        "id": sources.lake.identity.id,
        "entry": sources.state.seq,
        "digest": sources.state.digest,
    }


def _describe_journal(sources: AuditSources) -> dict[str, Any] | None:
    journal = sources.journal
    if journal is None:
        return None
    return {
        "topic": journal.name,
        "from": sources.journal_from,
        "events": journal.events,
        "daemons": journal.clients,
        "begin": journal.begin,
        "end": journal.end,
        "epochs": [
            [client, epoch, len(one.batches), one.events]
            for (client, epoch), one in sorted(journal.epochs.items())
        ],
    }


__all__ = ["AuditSources", "describe", "open_sources"]
