"""What producers did wrong, or had to do again: gaps in their sequence numbers, and content that is there twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from pixy.pipeline.audit.contents import Evidence, find_twice, lake_rows, log_rows, of_contents
from pixy.pipeline.audit.facts import What
from pixy.pipeline.audit.findings import Finding
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.missing import Ranges
from pixy.pipeline.audit.open_sources import Gathered, Request
from pixy.pipeline.audit.sequence_scan import Sequences, of_sequences, scan_sequences
from pixy.wire.types import TopicPartition


def look(
    spark: SparkSession,
    request: Request,
    found: Gathered,
    ranges: Ranges,
    unarchived: Mapping[TopicPartition, tuple[int, int]],
    told: Callable[[str], None],
) -> list[Finding]:
    """Findings about producers.

    Args:
        ranges: what the judge knows, for the answers that daemons gave.
        unarchived: of each partition, what of the log lies behind the lake's end.

    Raises:
        SourceError: a source can not be read.
    """
    findings: list[Finding] = []
    sequences = Sequences()
    asked = request.proxy is not None and request.log
    if asked and request.sequences and request.proxy is not None:
        offsets = sum(end - start for start, end in found.bounds.values())
        told(f"sequence numbers: the headers of the batches of {offsets:,} offsets")
        sequences = scan_sequences(spark, request.proxy, found.bounds, found.configs)
        findings += of_sequences(sequences, found.configs)
    if request.contents:
        rows = _rows(spark, request, found, unarchived if asked else {})
        if rows is not None:
            told("contents: looking for the same twice")
            findings += of_contents(find_twice(rows), _evidence(found, ranges, sequences))
    return findings


def _rows(
    spark: SparkSession,
    request: Request,
    found: Gathered,
    unarchived: Mapping[TopicPartition, tuple[int, int]],
) -> DataFrame | None:
    parts: list[DataFrame | None] = []
    if found.lake is not None:
        topics = sorted({topic for topic, _ in found.places} & set(found.state.topics()))
        parts.append(lake_rows(spark, found.lake, found.state, topics))
    if request.proxy is not None:
        parts.append(log_rows(spark, request.proxy, unarchived))
    some = [each for each in parts if each is not None]
    return reduce(DataFrame.unionByName, some) if some else None


def _evidence(found: Gathered, ranges: Ranges, sequences: Sequences) -> Evidence:
    return Evidence(
        {place: ranges.get((What.R_ANSWERED, *place, None), Intervals()) for place in found.places},
        sequences.numbered,
        sequences.plain,
        {place: sequences.repeated(place) for place in sequences.told},
    )


__all__ = ["look"]
