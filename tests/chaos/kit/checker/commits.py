"""Commits: an offset is committed only after everything below it was acknowledged, or given up by a rule."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import Any

from tests.chaos.kit.checker.evidence import NEVER, Consumed, Evidence, GroupView
from tests.chaos.kit.checker.outcome import Outcome

SLACK = 0.01
"""Seconds: Kafka's times are whole milliseconds."""
_OVERTAKEN = 1.0
"""Seconds after a topic was made again in which a commit for the old one may still arrive; docs/delivery.md says so."""
_REPLACED = 10.0
"""Seconds in which the daemon replaces it: 5 s between two looks, and a busy machine."""
_HOLDING = frozenset({"daemon-freeze", "session-expiry", "broker-freeze", "hold-broker", "hold-brokers"})
"""Faults that hold what is on its way to Kafka until they end. A commit that was overtaken may arrive then."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add each commit of something that nobody had acknowledged."""
    overtaken = _overtaken(evidence)
    latest: dict[tuple[str, int, int], array[float]] = {}
    wrong: dict[tuple[str, int, int], int] = defaultdict(int)
    for each in evidence.commits():
        group = _group_of(evidence, each)
        if group is None or each["t"] >= group.life.until:
            continue
        consumed = group.partitions.get(each["partition"])
        if consumed is None or each["offset"] < 0:
            continue
        key = (group.name, each["partition"], group.life.number)
        if key not in latest:
            latest[key] = _latest(evidence, group, each["partition"], consumed)
        outcome.figures["commits"] += 1
        t = each["t"] + SLACK
        below = consumed.log.below(each["offset"])
        bad = below - 1 if below and latest[key][below - 1] > t else _bad_range(consumed, each, t)
        if bad is not None and (*key[:2], each["t"], each["offset"]) in overtaken:
            outcome.figures["commits that a topic made again overtook, replaced since"] += 1
        elif bad is not None and not _was_reset(group, each):
            wrong[key] += 1
            if wrong[key] == 1:
                _report(group, consumed, each, bad, outcome)
    for (name, partition, _), count in wrong.items():
        outcome.figures[f"commits too early of {name}/{partition}"] += count


def _group_of(evidence: Evidence, commit: dict[str, Any]) -> GroupView | None:
    """Return the group that made a commit, in the life that its topic had; None if it is none of ours."""
    known = evidence.groups.get(commit["group"])
    if known is None or known.topic != commit["topic"]:
        return None
    return evidence.view_at(known.name, commit["t"])


def _overtaken(evidence: Evidence) -> set[tuple[str, int, float, int]]:
    """Find commits that arrived just after their topic was made again, and that a lower one of the same group replaced."""
    holding = [(fault.t0, fault.t1) for fault in evidence.faults if fault.kind in _HOLDING]
    found = set()
    early: dict[tuple[str, int, int], list[tuple[float, int]]] = defaultdict(list)
    for each in evidence.commits():
        group = _group_of(evidence, each)
        since = 0.0 if group is None else group.life.since
        if group is None or not since or each["offset"] < 0:
            continue
        key = (each["group"], each["partition"], group.life.number)
        for t, offset in early[key]:
            if each["offset"] < offset and each["t"] - t <= _REPLACED:
                found.add((*key[:2], t, offset))
        arrives = [since, *(t1 for t0, t1 in holding if t0 <= since <= t1)]
        if any(begin <= each["t"] < begin + _OVERTAKEN for begin in arrives):
            early[key].append((each["t"], each["offset"]))
    return found


def _latest(evidence: Evidence, group: GroupView, partition: int, consumed: Consumed) -> array[float]:
    """Return for each record the time at which it, and all before it, were acknowledged or given up."""
    settled = array("d", consumed.settled)
    offsets = consumed.log.offsets
    if group.mode == "auto":
        lost = len(group.unknown)
        for index, t in enumerate(settled):
            if t == NEVER and lost:
                settled[index] = 0.0
                lost -= 1
    for t, number, old, new in group.resets:
        if number == partition:
            for index in range(consumed.log.below(old), consumed.log.below(new)):
                settled[index] = min(settled[index], t)
    found, worst = array("d"), 0.0
    for index in range(len(offsets)):
        worst = max(worst, settled[index])
        found.append(worst)
    return found


def _bad_range(consumed: Consumed, each: dict[str, object], t: float) -> int | None:
    """Return the first record that the commit's metadata calls done, and nobody had acknowledged."""
    for start, stop in sparse(int(each["offset"]), str(each["metadata"])):  # type: ignore[call-overload]
        for index in range(consumed.log.below(start), consumed.log.below(stop)):
            if consumed.settled[index] > t:
                return index
    return None


def sparse(offset: int, metadata: str) -> list[tuple[int, int]]:
    """Parse the ranges done beyond a committed offset: pairs of numbers in groups of five bits, lowest first.

    Args:
        offset: the committed one.
        metadata: of the commit.

    Returns:
        Ends exclusive; none if the metadata have another form.
    """
    numbers: list[int] = []
    value = shift = 0
    for char in metadata.rstrip("\0"):
        digit = _ALPHABET.find(char)
        if digit < 0:
            return []
        value |= (digit & 31) << shift
        shift += 5
        if digit < 32:
            numbers.append(value)
            value = shift = 0
    found = []
    for delta, length in zip(numbers[::2], numbers[1::2], strict=False):
        found.append((offset + delta, offset + delta + length))
        offset += delta + length
    return found


def _was_reset(group: GroupView, each: dict[str, object]) -> bool:
    return any(
        number == each["partition"] and new == each["offset"] and abs(float(each["t"]) - t) < 5.0  # type: ignore[arg-type]
        for t, number, _, new in group.resets
    )


def _report(
    group: GroupView, consumed: Consumed, each: dict[str, object], bad: int, outcome: Outcome
) -> None:
    while bad > 0 and consumed.settled[bad] <= float(each["t"]) + SLACK:  # type: ignore[arg-type]
        bad -= 1
    settled = consumed.settled[bad]
    when = "never" if settled == NEVER else f"{settled - float(each['t']):.2f} s later"  # type: ignore[arg-type]
    first = consumed.first(bad)
    had = "nobody had it" if first is None else f"d{first.d} delivered it"
    text = (
        f"{group.name} {group.topic}/{each['partition']}: committed {each['offset']} ({each['metadata']!r}), but "
        f"{consumed.log.offsets[bad]} ({consumed.log.ids[bad]}) was acknowledged {when}; {had}"
    )
    outcome.find("commits", text, float(each["t"]))  # type: ignore[arg-type]
