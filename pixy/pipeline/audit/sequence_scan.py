"""Sequence numbers in a cluster's log: headers of all batches, by ``format("pixy")``, and the findings.

Every batch's header is read, so every byte of the log comes over the network; nothing is decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession

from pixy.config.model import Proxy
from pixy.pipeline.audit import engine
from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.sequences import Event, Header, SequenceTracker, Told
from pixy.wire.types import TopicPartition

MOST_EXPLAINED = 1000
"""Holes that compaction explains and that are told one by one, of a partition."""

_COLUMNS = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, producerId bigint, producerEpoch int, "
    "baseSequence int, isControl boolean"
)
_TOLD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("event", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("sequence", pa.int64()),
        ("size", pa.int64()),
        ("uncovered", pa.int64()),
    ]
)
_TOLD_DDL = (
    "topic string, partition int, event string, start bigint, `end` bigint, producer_id bigint, "
    "producer_epoch int, sequence bigint, size bigint, uncovered bigint"
)


@dataclass(slots=True)
class Sequences:
    """What the log's headers told.

    Attributes:
        numbered: offsets written by idempotent producers; ``plain`` those by others.
    """

    told: dict[TopicPartition, list[Told]] = field(default_factory=dict)
    numbered: dict[TopicPartition, Intervals] = field(default_factory=dict)
    plain: dict[TopicPartition, Intervals] = field(default_factory=dict)

    def repeated(self, place: TopicPartition) -> Intervals:
        """Offsets whose sequence numbers were there before."""
        return Intervals.of(
            (each.start, each.end) for each in self.told.get(place, ()) if each.event is Event.REPEATED
        )


def scan_sequences(
    spark: SparkSession,
    proxy: Proxy,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    configs: Mapping[str, Mapping[str, str]],
) -> Sequences:
    """Look at every batch of these ranges of offsets; ``configs`` are the topics' settings.

    Raises SourceError if a batch can not be read.
    """
    # One task a partition, so that its batches come in their order.
    rows = engine.read_log(spark, proxy, bounds, _COLUMNS, mode="batches")
    if rows is None:
        return Sequences()
    track = _track(frozenset(topic for topic, _ in bounds if _compacted(configs, topic)))
    return _sequences(
        engine.run(lambda: rows.mapInArrow(track, _TOLD_DDL).toArrow(), "the log can not be read")
    )


def _track(compacted: frozenset[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with the headers of a partition."""

    def track(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        trackers: dict[TopicPartition, _Partition] = {}
        for batch in batches:
            topics, partitions, *columns = (column.to_pylist() for column in batch.columns)
            rows: list[tuple[TopicPartition, Told]] = []
            for place, header in zip(
                zip(topics, partitions, strict=True), map(Header, *columns), strict=True
            ):
                if place not in trackers:
                    trackers[place] = _Partition(place[0] in compacted)
                rows += [(place, told) for told in trackers[place].see(header)]
            if rows:
                yield _made(rows)
        rest = [(place, told) for place, tracker in trackers.items() for told in tracker.finish()]
        if rest:
            yield _made(rest)

    return track


class _Partition:
    """A tracker that tells the first MOST_EXPLAINED holes of compaction, and the others in one."""

    def __init__(self, compacted: bool) -> None:
        self._tracker = SequenceTracker()
        self._compacted = compacted
        self._explained = 0
        self._more: Told | None = None

    def see(self, header: Header) -> Iterator[Told]:
        for told in self._tracker.see(header):
            if not (self._compacted and told.event is Event.MISSING and told.uncovered >= told.size):
                yield told
                continue
            self._explained += 1
            if self._explained <= MOST_EXPLAINED:
                yield told
            else:
                more = self._more or told._replace(
                    producer_id=-1, producer_epoch=-1, sequence=-1, size=0, uncovered=0
                )
                self._more = more._replace(
                    end=told.end, size=more.size + told.size, uncovered=more.uncovered + told.uncovered
                )

    def finish(self) -> Iterator[Told]:
        if self._more is not None:
            yield self._more
        yield from self._tracker.finish()


def _made(rows: list[tuple[TopicPartition, Told]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"topic": topic, "partition": partition, **told._asdict()} for (topic, partition), told in rows],
        schema=_TOLD,
    )


def _sequences(table: pa.Table) -> Sequences:
    found = Sequences()
    kinds: dict[Event, dict[TopicPartition, list[tuple[int, int]]]] = {Event.NUMBERED: {}, Event.PLAIN: {}}
    for row in table.to_pylist():
        place = row.pop("topic"), row.pop("partition")
        told = Told(**{**row, "event": Event(row["event"])})
        if told.event in kinds:
            kinds[told.event].setdefault(place, []).append((told.start, told.end))
        else:
            found.told.setdefault(place, []).append(told)
    found.numbered = {place: Intervals.of(ranges) for place, ranges in kinds[Event.NUMBERED].items()}
    found.plain = {place: Intervals.of(ranges) for place, ranges in kinds[Event.PLAIN].items()}
    return found


def of_sequences(found: Sequences, configs: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Findings; ``configs`` are the topics' settings."""
    for (topic, partition), every in found.told.items():
        for told in every:
            yield _finding(topic, partition, told, _compacted(configs, topic))


def _compacted(configs: Mapping[str, Mapping[str, str]], topic: str) -> bool:
    return "compact" in configs.get(topic, {}).get("cleanup.policy", "").split(",")


def _finding(topic: str, partition: int, told: Told, compacted: bool) -> Finding:
    last = (told.sequence + told.size - 1) % (1 << 31)
    if told.producer_id < 0:
        return Finding(
            Severity.EXPLAINED,
            "sequence missing",
            topic,
            partition,
            None,
            told.start,
            told.end,
            f"compaction, {told.size} more numbers of any producers",
        )
    which = f"producer {told.producer_id}, epoch {told.producer_epoch}: sequence {told.sequence} to {last}"
    if told.event is Event.REPEATED:
        return Finding(
            Severity.FAULT,
            "sequence repeated",
            topic,
            partition,
            None,
            told.start,
            told.end,
            f"{which} was there before: a retry was written again",
        )
    if compacted and told.uncovered >= told.size:
        return Finding(
            Severity.EXPLAINED,
            "sequence missing",
            topic,
            partition,
            None,
            told.start,
            told.end,
            f"{which}: compaction, {told.uncovered} offsets have no batch",
        )
    why = (
        f"the log has no batch for {told.uncovered} offsets"
        if told.uncovered >= told.size
        else f"sent and never written, before offset {told.end}"
    )
    return Finding(
        Severity.LOSS, "sequence missing", topic, partition, None, told.start, told.end, f"{which}: {why}"
    )


__all__ = ["Sequences", "of_sequences", "scan_sequences"]
