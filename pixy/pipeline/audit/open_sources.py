"""Open the audit's sources, in an order that makes them consistent with each other.

The groups' committed offsets are read *before* the end of the journal is determined, with a pause in between
in which the daemons write their pending events. So the journal has every ack that a committed offset counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pixy.config.model import Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit import frames, spark_jobs
from pixy.pipeline.audit.journal_view import JournalView
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.errors import SourceError, UsageError
from pixy.pipeline.lake import Lake, State
from pixy.pipeline.spark.hadoop_store import store_for
from pixy.wire.types import TopicPartition


@dataclass(slots=True)
class AuditSources:
    """The opened sources; an absent one is None or empty.

    Attributes:
        now: when the sources were read, microseconds since 1970.
        state: the lake's live files and ranges.
        journal_from: ``kafka`` or ``lake``.
        partitions: the partitions to audit, sorted.
        committed: committed offsets by (group, topic, partition).
        bounds: log start and last stable offset of the partitions that the cluster has.
        configs: topic settings by topic.
    """

    now: int
    lake: Lake | None = None
    state: State = field(default_factory=State)
    view: ClusterView | None = None
    journal: JournalView | None = None
    journal_frame: DataFrame | None = None
    journal_from: str = ""
    partitions: list[TopicPartition] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    bounds: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def archived_end(self, tp: TopicPartition) -> int | None:
        """Return the offset after the last archived one; None if the lake lacks the partition."""
        ranges = self.state.ranges.get(tp)
        return max(each.range.end for each in ranges) if ranges else None

    def archived_topics(self) -> list[str]:
        """Return the audited topics that the lake has, sorted."""
        return sorted({topic for topic, _ in self.partitions} & set(self.state.topics()))


def open_sources(
    spark: SparkSession, request: AuditRequest, on_progress: Callable[[str], None]
) -> AuditSources:
    """Open the lake, the cluster and the journal, and select partitions and groups.

    Args:
        spark: the session that reads lake and journal.
        request: names the sources.
        on_progress: gets a line of text for each source.

    Raises:
        PixyError: a named source does not exist or cannot be read; the text names it.
    """
    sources = AuditSources(time.time_ns() // 1000)
    if request.lake:
        sources.lake = Lake.open(request.lake, store_for(request.lake, spark))
        sources.state = sources.lake.state()
        on_progress(f"lake {request.lake}: {len(sources.state.files):,} files, log entry {sources.state.seq}")
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
    return sources


def _select_partitions(request: AuditRequest, sources: AuditSources, cluster_topics: dict[str, int]) -> None:
    partitions = set(sources.state.ranges)
    if sources.journal is not None:
        partitions |= sources.journal.partitions()
    topics = set(request.topics) or {topic for topic, _ in partitions}
    topics -= {_journal_topic(request)}
    partitions |= {(topic, number) for topic in topics for number in range(cluster_topics.get(topic, 0))}
    missing = topics - {topic for topic, _ in partitions}
    if missing:
        raise SourceError(
            f"topic {', '.join(sorted(missing))} does not exist in the cluster, the lake or the journal"
        )
    sources.partitions = sorted(tp for tp in partitions if tp[0] in topics)
    if not sources.partitions:
        raise SourceError(
            "there is nothing to audit: neither lake nor journal has a topic; name topics with --topics"
        )


def _journal_topic(request: AuditRequest) -> str:
    return request.journal or (request.proxy.journal.topic if request.proxy is not None else "")


def _open_journal(
    spark: SparkSession,
    request: AuditRequest,
    sources: AuditSources,
    cluster_topics: dict[str, int],
    on_progress: Callable[[str], None],
) -> None:
    topic = _journal_topic(request)
    if not topic:
        _open_without_journal(request, sources)
        return
    if topic in cluster_topics:
        _open_journal_of_kafka(spark, request, sources, topic, cluster_topics[topic])
    elif sources.lake is not None and topic in sources.state.topics():
        frame = frames.journal_of_lake(spark, sources.lake, sources.state, topic)
        sources.journal = JournalView(spark_jobs.survey_journal(frame), topic)
        sources.journal_frame, sources.journal_from = frame, "lake"
    else:
        raise SourceError(f"journal topic {topic} does not exist in the cluster or the lake")
    assert sources.journal is not None
    sources.groups = sorted(request.groups) or sources.journal.groups()
    on_progress(
        f"journal {topic} from {sources.journal_from}: {sources.journal.events:,} events of "
        f"{len(sources.journal.clients)} daemons"
    )


def _open_without_journal(request: AuditRequest, sources: AuditSources) -> None:
    sources.groups = sorted(request.groups)
    if request.groups and sources.view is None:
        raise UsageError("--group needs a journal, or --config to ask the cluster for the group's offsets")


def _open_journal_of_kafka(
    spark: SparkSession, request: AuditRequest, sources: AuditSources, topic: str, count: int
) -> None:
    assert sources.view is not None
    assert request.proxy is not None
    partitions = [(topic, number) for number in range(count)]
    before = sources.view.bounds(partitions)
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
