"""Inspect each partition for offsets that the lake or the log lacks, and for overlapping archived ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pixy.config.model import Proxy
from pixy.pipeline.audit.gaps import Gap, PartitionLog, Reason, explain_gaps
from pixy.pipeline.audit.intervals import Intervals, overlaps
from pixy.pipeline.audit.log_scan import scan_log
from pixy.pipeline.audit.open_sources import AuditSources
from pixy.pipeline.audit.removals import find_removals
from pixy.pipeline.audit.tallies import TallyKind
from pixy.pipeline.datasource.access import from_proxy
from pixy.wire.types import TopicPartition

Ranges = Mapping[tuple[TallyKind, str, int, str | None], Intervals]
"""Sets of offsets by (kind, topic, partition, group)."""


@dataclass(slots=True)
class PartitionView:
    """One partition: its range in each source, and the offsets that are missing.

    Attributes:
        log: log start and end; None if no cluster was asked or it lacks the partition.
        archived: first archived offset and the one after the last; None if nothing is archived.
        archived_records: number of distinct archived offsets.
        gaps: offsets within the archived range that the lake lacks; expired and erased ones, too.
        overlapping: offsets that several entries of the lake's log cover: (start, end, number of entries).
        log_lost: offsets confirmed to a producer that are lost.
        timestamps: by offset, for records that the log has and the lake lacks, milliseconds.
    """

    topic: str
    partition: int
    log: tuple[int, int] | None
    archived: tuple[int, int] | None
    archived_records: int = 0
    gaps: list[Gap] = field(default_factory=list)
    overlapping: list[tuple[int, int, int]] = field(default_factory=list)
    log_lost: list[Gap] = field(default_factory=list)
    timestamps: dict[int, int] = field(default_factory=dict)

    @property
    def archive_lost(self) -> Intervals:
        """Offsets that the lake lost."""
        return Intervals.of((gap.start, gap.end) for gap in self.gaps if gap.reason is Reason.LOSS)

    @property
    def unarchived(self) -> int:
        """Number of offsets of the log above the lake's end."""
        if self.log is None or self.archived is None:
            return 0
        return max(0, self.log[1] - max(self.archived[1], self.log[0]))


def inspect_partitions(
    sources: AuditSources, ranges: Ranges, proxy: Proxy | None, on_progress: Callable[[str], None]
) -> list[PartitionView]:
    """Inspect every audited partition; asks the broker only where offsets are missing.

    Args:
        sources: the opened sources.
        ranges: the sets of offsets that classification found.
        proxy: the cluster; None leaves gaps without a reason.
        on_progress: gets a line of text for each partition with missing offsets.

    Raises:
        SourceError: the broker cannot be asked.
    """
    return [_inspect(sources, ranges, proxy, tp, on_progress) for tp in sources.partitions]


def _inspect(
    sources: AuditSources,
    ranges: Ranges,
    proxy: Proxy | None,
    tp: TopicPartition,
    on_progress: Callable[[str], None],
) -> PartitionView:
    def offsets(kind: TallyKind) -> Intervals:
        return ranges.get((kind, *tp, None), Intervals())

    ranges_of_lake, looked_at = sources.ranges.get(tp, []), Intervals.span(*sources.slice(tp))
    listed = [(each.range.start, each.range.end) for each in ranges_of_lake]
    view = PartitionView(*tp, sources.bounds.get(tp), None)
    archived = offsets(TallyKind.R_ARCHIVED)
    missing = Intervals()
    if listed:
        view.archived = (min(start for start, _ in listed), max(end for _, end in listed))
        view.archived_records, view.overlapping = archived.count, overlaps(listed)
        missing = (Intervals.span(*view.archived) & looked_at) - archived
    removals = find_removals(missing, archived, ranges_of_lake, sources.removed.get(tp, []), looked_at)
    missing = missing - removals.offsets
    unseen = offsets(TallyKind.R_ANSWERED) - archived - offsets(TallyKind.R_LOGGED) - removals.offsets
    if missing or unseen:
        on_progress(f"{tp[0]}/{tp[1]}: searching the log for {(missing | unseen).count:,} missing offsets")
    log = _read_log(sources, proxy, tp, missing | unseen)
    newest_gone = _newest_gone(sources, tp)
    gaps = removals.gaps + removals.losses(explain_gaps(missing, log, newest_gone))
    view.gaps = sorted(gaps, key=lambda gap: gap.start)
    spans = log.spans if log else ()
    present = Intervals.of(each for span in spans for each in span.records)
    unexplained = explain_gaps(unseen - present, log, newest_gone)
    view.log_lost = [gap for gap in unexplained if gap.reason is Reason.LOSS]
    view.timestamps = dict(pair for span in spans for pair in span.timestamps)
    return view


def _read_log(
    sources: AuditSources, proxy: Proxy | None, tp: TopicPartition, missing: Intervals
) -> PartitionLog | None:
    bounds = sources.bounds.get(tp)
    if bounds is None or proxy is None:
        return None
    config = sources.configs.get(tp[0], {})
    policy = config.get("cleanup.policy", "delete").split(",")
    start, end = bounds
    return PartitionLog(
        start,
        end,
        scan_log(from_proxy(proxy), *tp, missing & Intervals.span(0, end), start),
        compacted="compact" in policy,
        deleting="delete" in policy,
        retention_ms=int(config.get("retention.ms", -1)),
        retention_bytes=int(config.get("retention.bytes", -1)),
        now=sources.now // 1000,
    )


def _newest_gone(sources: AuditSources, tp: TopicPartition) -> int:
    """Return the newest timestamp of archived records below the log's start, milliseconds; -1 if there are none."""
    bounds = sources.bounds.get(tp)
    if bounds is None:
        return -1
    return max(
        (
            each.range.stats.max_timestamp
            for each in sources.ranges.get(tp, ())
            if each.range.end <= bounds[0]
        ),
        default=-1,
    )


__all__ = ["PartitionView", "Ranges", "inspect_partitions"]
