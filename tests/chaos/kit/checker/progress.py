"""Progress: a partition with messages for a group is not silent for long, while clients ask.

Every daemon has clients of every group that ask all the time, so silence is the proxy's. Time in which a
fault is at work does not count for the first bound, which the plan sets; the second bound holds whatever happens, also for who delivers again
and again what was not committed. Such a finding says how long the partition was silent, and how often one message came.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter

from tests.chaos.kit.checker.evidence import NEVER, Evidence, GroupView
from tests.chaos.kit.checker.outcome import Outcome

HARD_BOUND = 8
"""As many times the plan's bound may pass without a delivery of something new, faults or not: 120 s of 15. Storms last 35 s."""


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add each silence that was too long."""
    for group in evidence.views:
        for partition in group.partitions:
            _check(evidence, group, partition, outcome)


def _check(evidence: Evidence, group: GroupView, partition: int, outcome: Outcome) -> None:
    consumed = group.partitions[partition]
    log = consumed.log
    heard = [each.t1 for found in consumed.deliveries if found is not None for each in found]
    # Of records that have been deleted or have expired since: a group that is behind is not silent.
    heard += [each.delivery.t1 for each in group.strays if each.partition == partition]
    heard.sort()
    times = [(each.t1, index) for index, found in enumerate(consumed.deliveries) for each in found or ()]
    firsts = sorted(
        (min(first.t1, group.life.until), index)
        for index in range(len(log.offsets))
        if (first := consumed.first(index)) is not None
    )
    if group.life.until < NEVER:  # what nobody had when the topic was deleted
        never = (index for index, each in enumerate(consumed.deliveries) if each is None)
        firsts = sorted([*firsts, *((group.life.seen, index) for index in never)])
    gone = _firsts_of_strays(group, partition)
    before = 0.0
    for t, index in firsts:
        if at := bisect_right(gone, t):
            before = max(before, gone[at - 1])
        since, before = max(before, log.times[index]), t
        if t - since < 1.0:
            continue
        calm, begin = _longest_calm(evidence, group.topic, heard, since, t)
        where = f"{group.name} {group.topic}/{partition} at {log.offsets[index]}"
        if calm > outcome.slowest[0]:
            outcome.slowest = (calm, where)
        if t - since > outcome.behind[0]:
            outcome.behind = (t - since, where)
        if calm > evidence.plan["silence"]:
            outcome.find("progress", f"{where}: no delivery for {calm:.1f} s without a fault", t, begin)
        elif t - since > HARD_BOUND * evidence.plan["silence"]:
            silence = max(end - start for start, end in itertools.pairwise(_within(heard, since, t)))
            again = max(Counter(each for at, each in times if since < at < t).values(), default=0)
            text = f"{where}: nothing new was delivered for {t - since:.1f} s"
            outcome.find(
                "progress", f"{text} (silent for {silence:.1f} s, one message {again} times)", t, since
            )


def _firsts_of_strays(group: GroupView, partition: int) -> list[float]:
    """List when records were first delivered that have been deleted or have expired since: they were new then."""
    firsts: dict[tuple[int, str], float] = {}
    for each in group.strays:
        if each.partition == partition:
            key = (each.offset, each.name)
            firsts[key] = min(firsts.get(key, each.delivery.t1), each.delivery.t1)
    return sorted(firsts.values())


def _longest_calm(
    evidence: Evidence, topic: str, heard: list[float], since: float, until: float
) -> tuple[float, float]:
    """Return the longest silence without a fault in this time, and when it began; repeated deliveries break it too."""
    times = _within(heard, since, until)
    return max((evidence.windows.calm(start, end, topic), start) for start, end in itertools.pairwise(times))


def _within(heard: list[float], since: float, until: float) -> list[float]:
    return [since, *heard[bisect_right(heard, since) : bisect_left(heard, until)], until]
