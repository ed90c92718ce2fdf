"""The offsets that the table should have: by partition, from the broker's log and the lake's ranges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pixy.kafka.blocking import ClusterView
from pixy.pipeline.errors import SourceError
from pixy.pipeline.table_audit.request import TableRequest
from pixy.pipeline.table_audit.table import PartitionRows, Survey
from pixy.wire.types import TopicPartition

LakeBounds = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the first archived offset and the one after the last."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The offsets ``[start, end)`` that the table should have of one partition.

    Attributes:
        log_start: log start offset; lower offsets are gone from the broker.
        table_end: the offset after the table's last one; above it the table is not finished.
        late_before: above ``table_end`` the table is late with records of a timestamp below this, milliseconds.
        lake: the offsets that the lake covers.
        erased: ranges of offsets of which records were erased from the lake, each with the request.
        compacted: whether ``cleanup.policy`` names ``compact``.
        deleting: whether it names ``delete``.
        retention_ms: the topic's setting.
        retention_bytes: the topic's setting.
        now: when the broker was asked, milliseconds since 1970.
    """

    topic: str
    partition: int
    start: int
    end: int
    log_start: int
    table_end: int
    late_before: int
    lake: tuple[int, int] = (0, 0)
    compacted: bool = False
    deleting: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    now: int = 0
    erased: tuple[tuple[int, int, str], ...] = ()


def expected(request: TableRequest, view: ClusterView, survey: Survey, lake: LakeBounds) -> list[Expected]:
    """Ask the broker which offsets it has, and return the partitions to audit, sorted.

    Args:
        request: names the topics and the bound.
        view: the cluster.
        survey: the table's partitions.
        lake: the lake's.

    Raises:
        SourceError: a topic is neither in the cluster nor in the lake.
        KafkaError: the brokers do not answer.
    """
    counts = view.topics()
    topics = set(request.topics) or {topic for topic, _ in survey.partitions}
    unknown = sorted(topics - set(counts) - {topic for topic, _ in lake})
    if unknown:
        raise SourceError(
            f"topic {', '.join(unknown[:5])} is neither in the cluster nor in the lake; --topics names those to audit"
        )
    if not topics:
        raise SourceError("the table has no rows, so --topics must name the topics to audit")
    existing = [(topic, number) for topic in sorted(topics) for number in range(counts.get(topic, 0))]
    bounds = view.bounds(existing) if existing else {}
    now = time.time_ns() // 1_000_000
    configs = view.configs({topic for topic, _ in existing}) if existing else {}
    partitions = sorted({*existing, *survey.partitions, *(tp for tp in lake if tp[0] in topics)})
    made = []
    for tp in partitions:
        # A partition that the cluster lacks: only the lake knows it.
        log = bounds.get(tp, (lake.get(tp, (0, 0))[1],) * 2)
        made.append(
            _expected(
                request,
                tp,
                survey.partitions.get(tp),
                log,
                lake.get(tp),
                configs.get(tp[0], {}),
                now,
            )
        )
    return made


def _expected(
    request: TableRequest,
    tp: TopicPartition,
    rows: PartitionRows | None,
    log: tuple[int, int],
    lake: tuple[int, int] | None,
    config: Mapping[str, str],
    now: int,
) -> Expected:
    known = [log[0]] + ([lake[0]] if lake else []) + ([rows.first] if rows else [])
    start = rows.first if rows and request.since_table else min(known)
    end = max(log[1], lake[1] if lake else 0)
    policy = config.get("cleanup.policy", "delete").split(",")
    return Expected(
        *tp,
        min(start, end),
        end,
        log[0],
        rows.last + 1 if rows else min(start, end),
        now - request.late_after,
        lake or (0, 0),
        "compact" in policy,
        "delete" in policy,
        int(config.get("retention.ms", -1)),
        int(config.get("retention.bytes", -1)),
        now,
    )


__all__ = ["Expected", "LakeBounds", "expected"]
