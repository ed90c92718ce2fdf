"""Tell the offsets whose records have expired or were erased from those that the lake has lost. Pure.

The lake's entries count the records that were archived and those that were removed. If a part of a partition has as many as
that leaves, nothing is lost there; if it has fewer, the missing offsets that nothing else explains are losses, even where Kafka's
own log no longer has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pixy.pipeline.audit.gaps import Gap, Reason
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.lake.removal import Segment, segments
from pixy.pipeline.lake.state import Archived

_NEVER_ARCHIVED: Final = (Reason.MARKER, Reason.ABORTED)


@dataclass(slots=True)
class Removals:
    """What the lake's history says about missing offsets.

    Attributes:
        gaps: expired and erased ones.
        short: parts of the partition that have fewer records than the entries leave, and how many fewer.
    """

    gaps: list[Gap] = field(default_factory=list)
    short: list[tuple[Segment, int]] = field(default_factory=list)

    @property
    def offsets(self) -> Intervals:
        """The expired and erased offsets."""
        return Intervals.of((gap.start, gap.end) for gap in self.gaps)

    def losses(self, gaps: Iterable[Gap]) -> list[Gap]:
        """Return the other gaps, those of short parts as losses unless they were never archived."""
        found: list[Gap] = []
        for gap in gaps:
            left = Intervals.span(gap.start, gap.end)
            for part, count in self.short if gap.reason not in (*_NEVER_ARCHIVED, Reason.LOSS) else ():
                why = f"the entries count {count} more records of offsets {part.start} to {part.end - 1} than the lake has"
                here = left & Intervals.span(part.start, part.end)
                found += (Gap(start, end, Reason.LOSS, why) for start, end in here)
                left = left - here
            found += (replace(gap, start=start, end=end) for start, end in left)
        return found


def find_removals(
    missing: Intervals,
    present: Intervals,
    archived: Sequence[Archived],
    removed: Sequence[Archived],
    looked_at: Intervals,
) -> Removals:
    """Explain missing offsets by the lake's history.

    Args:
        missing: offsets within the archived ranges that the lake lacks.
        present: offsets that it has.
        archived: the ranges of the partition.
        removed: those of expiries and erasures.
        looked_at: the offsets that were read; parts that go beyond are not counted.
    """
    found = Removals()
    if not missing or not (removed or _count(archived) > present.count):
        return found
    for part in segments(archived, removed):
        span = Intervals.span(part.start, part.end)
        short = 0 if span - looked_at else part.expected.count - (present & span).count
        if short > 0:
            found.short.append((part, short))
        left = missing & span
        for each in sorted(part.removed, key=lambda one: one.range.end - one.range.start):
            range_ = each.range
            if short > 0 and range_.stats.count < range_.end - range_.start:
                continue  # which of its offsets were removed, and which are lost, is unknown
            here = left & Intervals.span(range_.start, range_.end)
            found.gaps += (Gap(start, end, Reason(range_.reason), _why(each)) for start, end in here)
            left = left - here
    return found


def _count(ranges: Iterable[Archived]) -> int:
    return sum(each.range.stats.count for each in ranges)


def _why(each: Archived) -> str:
    _, _, what = each.range.skipped.partition(": ")
    return f"{what}, entry {each.seq}: {each.range.stats.count} records"


__all__ = ["Removals", "find_removals"]
