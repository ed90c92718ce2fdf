"""Check producers' records: gaps in their sequence numbers, and content that was written twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from pixy.pipeline.audit.duplicate_contents import (
    Evidence,
    contents_findings,
    find_duplicates,
    lake_rows,
    log_rows,
)
from pixy.pipeline.audit.findings import Finding
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.open_sources import AuditSources
from pixy.pipeline.audit.partitions import Ranges
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.sequence_scan import Sequences, scan_sequences, sequence_findings
from pixy.pipeline.audit.tallies import TallyKind
from pixy.wire.types import TopicPartition


def check_producers(
    spark: SparkSession,
    request: AuditRequest,
    sources: AuditSources,
    ranges: Ranges,
    unarchived: Mapping[TopicPartition, tuple[int, int]],
    on_progress: Callable[[str], None],
) -> list[Finding]:
    """Return the findings about producers.

    Args:
        spark: the session to run on.
        request: says which checks to make.
        sources: the opened sources.
        ranges: the sets of offsets that classification found; supplies the confirmed ones.
        unarchived: by partition, the part of the log above the lake's end.
        on_progress: gets a line of text for each check.

    Raises:
        SourceError: a source cannot be read.
    """
    findings: list[Finding] = []
    sequences = Sequences()
    if request.proxy is not None and request.log and request.sequences:
        bounds = sources.clipped(sources.bounds)
        offsets = sum(end - start for start, end in bounds.values())
        on_progress(f"checking the sequence numbers of {offsets:,} offsets")
        sequences = scan_sequences(spark, request.proxy, bounds, sources.configs)
        findings += sequence_findings(sequences, sources.configs)
    if request.contents:
        rows = _content_rows(spark, request, sources, unarchived if request.log else {})
        if rows is not None:
            on_progress("searching for content that was written twice")
            findings += contents_findings(find_duplicates(rows), _evidence(sources, ranges, sequences))
    return findings


def _content_rows(
    spark: SparkSession,
    request: AuditRequest,
    sources: AuditSources,
    unarchived: Mapping[TopicPartition, tuple[int, int]],
) -> DataFrame | None:
    parts: list[DataFrame | None] = []
    if sources.lake is not None:
        parts.append(
            lake_rows(spark, sources.lake, sources.state, sources.archived_topics(), sources.is_wanted)
        )
    if request.proxy is not None:
        parts.append(log_rows(spark, request.proxy, unarchived))
    present = [each for each in parts if each is not None]
    return reduce(DataFrame.unionByName, present) if present else None


def _evidence(sources: AuditSources, ranges: Ranges, sequences: Sequences) -> Evidence:
    return Evidence(
        confirmed={
            tp: ranges.get((TallyKind.R_ANSWERED, *tp, None), Intervals()) for tp in sources.partitions
        },
        numbered=sequences.numbered,
        unnumbered=sequences.unnumbered,
        repeated={tp: sequences.repeated(tp) for tp in sequences.observations},
    )


__all__ = ["check_producers"]
