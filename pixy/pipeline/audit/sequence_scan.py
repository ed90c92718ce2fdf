"""Scan a cluster's log for sequence numbers: read the headers of all batches with ``format("pixy")``.

The header of every batch is read, so every byte of the log comes over the network; nothing is decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession

from pixy.config.model import Proxy
from pixy.pipeline.audit import spark_jobs
from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.sequences import Header, Observation, ObservationKind, SequenceTracker
from pixy.wire.types import TopicPartition

MAX_EXPLAINED = 1000
"""Gaps of compaction that are reported one by one, per partition; the others are reported as one."""

Configs = Mapping[str, Mapping[str, str]]
"""Topic settings by topic."""

_COLUMNS = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, producerId bigint, producerEpoch int, "
    "baseSequence int, isControl boolean"
)
_OBSERVATIONS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("kind", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("sequence", pa.int64()),
        ("size", pa.int64()),
        ("uncovered", pa.int64()),
    ]
)
_OBSERVATIONS_DDL = (
    "topic string, partition int, kind string, start bigint, `end` bigint, producer_id bigint, "
    "producer_epoch int, sequence bigint, size bigint, uncovered bigint"
)


@dataclass(slots=True)
class Sequences:
    """Sequence numbers in the headers of a log, by partition.

    Attributes:
        observations: missing and repeated sequence numbers.
        numbered: offsets that idempotent producers wrote.
        unnumbered: offsets that other producers wrote.
    """

    observations: dict[TopicPartition, list[Observation]] = field(default_factory=dict)
    numbered: dict[TopicPartition, Intervals] = field(default_factory=dict)
    unnumbered: dict[TopicPartition, Intervals] = field(default_factory=dict)

    def repeated(self, tp: TopicPartition) -> Intervals:
        """Return the offsets whose sequence numbers occurred before."""
        return Intervals.of(
            (each.start, each.end)
            for each in self.observations.get(tp, ())
            if each.kind is ObservationKind.REPEATED
        )


def scan_sequences(
    spark: SparkSession,
    proxy: Proxy,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    configs: Configs,
) -> Sequences:
    """Track the sequence numbers of every batch in ranges of the log.

    Args:
        spark: the session to run on.
        proxy: the cluster.
        bounds: by partition, the offsets ``[start, end)`` to read.
        configs: topic settings, which say whether a topic is compacted.

    Raises:
        SourceError: a batch cannot be read.
    """
    # One task per partition, so that its batches come in order.
    rows = spark_jobs.read_log(spark, proxy, bounds, _COLUMNS, mode="batches")
    if rows is None:
        return Sequences()
    track = _track(frozenset(topic for topic, _ in bounds if _is_compacted(configs, topic)))
    return _collect(
        spark_jobs.run(lambda: rows.mapInArrow(track, _OBSERVATIONS_DDL).toArrow(), "the log cannot be read")
    )


def _track(compacted: frozenset[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that tracks a task's headers, for ``mapInArrow``."""

    def track(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        trackers: dict[TopicPartition, _PartitionTracker] = {}
        for batch in batches:
            topics, partitions, *columns = (column.to_pylist() for column in batch.columns)
            rows: list[tuple[TopicPartition, Observation]] = []
            for tp, header in zip(zip(topics, partitions, strict=True), map(Header, *columns), strict=True):
                if tp not in trackers:
                    trackers[tp] = _PartitionTracker(tp[0] in compacted)
                rows += [(tp, observation) for observation in trackers[tp].add(header)]
            if rows:
                yield _record_batch(rows)
        rest = [(tp, observation) for tp, tracker in trackers.items() for observation in tracker.finish()]
        if rest:
            yield _record_batch(rest)

    return track


class _PartitionTracker:
    """A tracker that yields the first MAX_EXPLAINED gaps of compaction, and the others as one."""

    def __init__(self, compacted: bool) -> None:
        self._tracker = SequenceTracker()
        self._compacted = compacted
        self._explained = 0
        self._rest: Observation | None = None

    def add(self, header: Header) -> Iterator[Observation]:
        for observation in self._tracker.add(header):
            if not (self._compacted and _may_be_compaction(observation)):
                yield observation
                continue
            self._explained += 1
            if self._explained <= MAX_EXPLAINED:
                yield observation
                continue
            rest = self._rest or observation._replace(
                producer_id=-1, producer_epoch=-1, sequence=-1, size=0, uncovered=0
            )
            self._rest = rest._replace(
                end=observation.end,
                size=rest.size + observation.size,
                uncovered=rest.uncovered + observation.uncovered,
            )

    def finish(self) -> Iterator[Observation]:
        if self._rest is not None:
            yield self._rest
        yield from self._tracker.finish()


def _may_be_compaction(observation: Observation) -> bool:
    """Return whether enough offsets have no batch to have held all missing numbers."""
    return observation.kind is ObservationKind.MISSING and observation.uncovered >= observation.size


def _record_batch(rows: list[tuple[TopicPartition, Observation]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"topic": topic, "partition": partition, **observation._asdict()}
            for (topic, partition), observation in rows
        ],
        schema=_OBSERVATIONS,
    )


def _collect(table: pa.Table) -> Sequences:
    result = Sequences()
    ranges: dict[ObservationKind, dict[TopicPartition, list[tuple[int, int]]]] = {
        ObservationKind.NUMBERED: {},
        ObservationKind.UNNUMBERED: {},
    }
    for row in table.to_pylist():
        tp = row.pop("topic"), row.pop("partition")
        observation = Observation(**{**row, "kind": ObservationKind(row["kind"])})
        if observation.kind in ranges:
            ranges[observation.kind].setdefault(tp, []).append((observation.start, observation.end))
        else:
            result.observations.setdefault(tp, []).append(observation)
    result.numbered = {tp: Intervals.of(each) for tp, each in ranges[ObservationKind.NUMBERED].items()}
    result.unnumbered = {tp: Intervals.of(each) for tp, each in ranges[ObservationKind.UNNUMBERED].items()}
    return result


def sequence_findings(sequences: Sequences, configs: Configs) -> Iterator[Finding]:
    """Return a finding for each missing or repeated range; ``configs`` says which topics are compacted."""
    for (topic, partition), observations in sequences.observations.items():
        for observation in observations:
            severity, kind, why = _explain(observation, _is_compacted(configs, topic))
            yield Finding(severity, kind, topic, partition, None, observation.start, observation.end, why)


def _is_compacted(configs: Configs, topic: str) -> bool:
    return "compact" in configs.get(topic, {}).get("cleanup.policy", "").split(",")


def _explain(observation: Observation, compacted: bool) -> tuple[Severity, str, str]:
    missing = "sequence missing"
    if observation.producer_id < 0:
        why = f"compaction removed {observation.size:,} more numbers, of any producers"
        return Severity.EXPLAINED, missing, why
    last = (observation.sequence + observation.size - 1) % (1 << 31)
    which = (
        f"producer {observation.producer_id}, epoch {observation.producer_epoch}, "
        f"sequence {observation.sequence} to {last}"
    )
    if observation.kind is ObservationKind.REPEATED:
        return Severity.FAULT, "sequence repeated", f"{which}: a retry was written again"
    uncovered = f"{observation.uncovered:,} offsets have no batch"
    if not _may_be_compaction(observation):
        why = f"sent but never written before offset {observation.end}"
        return Severity.LOSS, missing, f"{which}: {why}"
    if compacted:
        return Severity.EXPLAINED, missing, f"{which}: removed by compaction, {uncovered}"
    return Severity.LOSS, missing, f"{which}: lost from the log, {uncovered}"


__all__ = ["MAX_EXPLAINED", "Sequences", "scan_sequences", "sequence_findings"]
