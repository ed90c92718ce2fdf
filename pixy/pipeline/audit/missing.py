"""What is missing, and why: the lake against the log, answers against the log, ranges against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pixy.config.model import Proxy
from pixy.pipeline.audit.facts import What
from pixy.pipeline.audit.gaps import Gap, Log, Why, classify
from pixy.pipeline.audit.intervals import Intervals, overlaps
from pixy.pipeline.audit.log_scan import scan
from pixy.pipeline.audit.open_sources import Gathered
from pixy.wire.types import TopicPartition

Ranges = Mapping[tuple[What, str, int, str | None], Intervals]


@dataclass(slots=True)
class PartitionView:
    """One partition: its ranges in each source, and what is missing."""

    topic: str
    partition: int
    log: tuple[int, int] | None
    """Log start and end; None: the cluster was not asked, or has no such partition."""
    archived: tuple[int, int] | None
    """First and next offset of the lake's ranges."""
    rows: int = 0
    """Different offsets that the lake has."""
    gaps: list[Gap] = field(default_factory=list)
    """Offsets within the archived range that the lake has not."""
    overlapping: list[tuple[int, int, int]] = field(default_factory=list)
    """Ranges of the lake's log that cover the same offsets: (start, end, how many)."""
    log_lost: list[Gap] = field(default_factory=list)
    """Confirmed to a producer and gone."""
    stamps: dict[int, int] = field(default_factory=dict)
    """Timestamps of offsets that are in the log and not in the lake."""

    @property
    def archive_lost(self) -> Intervals:
        """Offsets that are lost to the lake."""
        return Intervals.of((gap.start, gap.end) for gap in self.gaps if gap.why is Why.LOSS)

    @property
    def unarchived(self) -> int:
        """Offsets behind the lake's end: not archived yet."""
        if self.log is None or self.archived is None:
            return 0
        return max(0, self.log[1] - max(self.archived[1], self.log[0]))


def look(
    found: Gathered, ranges: Ranges, proxy: Proxy | None, told: Callable[[str], None]
) -> list[PartitionView]:
    """Every partition; asks the broker where something is missing. Raises SourceError."""
    return [_look(found, ranges, proxy, place, told) for place in found.places]


def _look(
    found: Gathered, ranges: Ranges, proxy: Proxy | None, place: TopicPartition, told: Callable[[str], None]
) -> PartitionView:
    def offsets(what: What) -> Intervals:
        return ranges.get((what, *place, None), Intervals())

    listed = [(each.range.start, each.range.end) for each in found.state.ranges.get(place, ())]
    view = PartitionView(*place, found.bounds.get(place), None)
    archived = offsets(What.R_ARCHIVED)
    missing = Intervals()
    if listed:
        view.archived = (min(start for start, _ in listed), max(end for _, end in listed))
        view.rows, view.overlapping = archived.count, overlaps(listed)
        missing = Intervals.span(*view.archived) - archived
    unseen = offsets(What.R_ANSWERED) - archived - offsets(What.R_LOGGED)
    log = _log(found, proxy, place, missing | unseen)
    if missing or unseen:
        told(f"{place[0]}/{place[1]}: looking into {(missing | unseen).count:,} missing offsets")
    newest = _newest(found, place)
    view.gaps = classify(missing, log, newest)
    has = Intervals.of(each for span in (log.spans if log else ()) for each in span.records)
    view.log_lost = [gap for gap in classify(unseen - has, log, newest) if gap.why is Why.LOSS]
    view.stamps = dict(pair for span in (log.spans if log else ()) for pair in span.stamps)
    return view


def _log(found: Gathered, proxy: Proxy | None, place: TopicPartition, missing: Intervals) -> Log | None:
    bounds = found.bounds.get(place)
    if bounds is None or proxy is None:
        return None
    config = found.configs.get(place[0], {})
    policy = config.get("cleanup.policy", "delete").split(",")
    start, end = bounds
    return Log(
        start,
        end,
        scan(proxy, *place, missing & Intervals.span(0, end), start),
        compacted="compact" in policy,
        deleting="delete" in policy,
        retention_ms=int(config.get("retention.ms", -1)),
        retention_bytes=int(config.get("retention.bytes", -1)),
        now=found.now // 1000,
    )


def _newest(found: Gathered, place: TopicPartition) -> int:
    """The newest record that the lake has of what the log has no more, milliseconds."""
    bounds = found.bounds.get(place)
    if bounds is None:
        return -1
    return max(
        (
            each.range.stats.max_timestamp
            for each in found.state.ranges.get(place, ())
            if each.range.end <= bounds[0]
        ),
        default=-1,
    )


__all__ = ["PartitionView", "Ranges", "look"]
