"""Order: within a partition, messages are delivered for the first time in the order of their offsets.

Two requests that are under way at once may be answered in either order. So a message is out of order if it
was asked for after a message behind it had been received.
"""

from __future__ import annotations

from bisect import bisect_left

from tests.chaos.kit.checker.evidence import NEVER, Delivery, Evidence, GroupView
from tests.chaos.kit.checker.outcome import Outcome

MEMORY = 60.0
"""Seconds after which a lost answer explains nothing any more."""


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add what is out of order."""
    for group in evidence.views:
        for partition, consumed in group.partitions.items():
            earliest, behind = NEVER, -1
            overtaker: Delivery | None = None
            for index in range(len(consumed.deliveries) - 1, -1, -1):
                first = consumed.first(index)
                if first is None:
                    continue
                if overtaker is not None and first.t0 > earliest:
                    why = _explain(evidence, group, partition, first, overtaker)
                    if why:
                        outcome.figures[f"out of order, explained: {why}"] += 1
                    else:
                        offset = consumed.log.offsets[index]
                        text = (
                            f"{group.name} {group.topic}/{partition}: {offset} was first delivered (d{first.d}) "
                            f"{first.t0 - earliest:.2f} s after {consumed.log.offsets[behind]} (d{overtaker.d})"
                        )
                        outcome.find("order", text, first.t1, overtaker.t0)
                if first.t1 < earliest:
                    earliest, behind, overtaker = first.t1, index, first


def _explain(
    evidence: Evidence, group: GroupView, partition: int, late: Delivery, overtaker: Delivery
) -> str:
    """Say why a message may come late: an answer with it was lost, or two daemons had the partition."""
    at = bisect_left(group.unknown, (late.t0 - MEMORY, 0.0, 0))
    for t0, _, _ in group.unknown[at:]:
        if t0 > overtaker.t1:
            break
        return "an answer was lost"
    if any(number == partition and t <= late.t1 for t, number, _, _ in group.resets):
        return "offsets were set"
    since = min(overtaker.t0, late.t0) - evidence.plan["session_timeout"]
    fault = evidence.windows.ungraceful(since, late.t1, group.topic, (late.d, overtaker.d))
    return "" if fault is None else fault.kind
