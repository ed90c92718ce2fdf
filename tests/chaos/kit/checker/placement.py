"""Producers: no message is refused without a reason, and each goes to a partition of its topic as it is now.

A topic that is made again may have fewer or more partitions, and a key may then go elsewhere. A request for a partition
that does not exist is refused, and that is no loss.
"""

from __future__ import annotations

from typing import Any

from tests.chaos.kit.checker.evidence import Evidence
from tests.chaos.kit.checker.lives import Layout
from tests.chaos.kit.checker.outcome import Outcome
from tests.chaos.kit.plan import PARTITIONERS

KNOWN_AFTER = 20.0
"""Seconds after a change of a topic's partitions until every producer must know them; it asks for them each 10 s."""


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add what was refused without a reason, or written to another partition than it should be."""
    for each in evidence.unproduced():
        if "d" in each:
            _check_refusal(evidence, each, outcome)
    for each in evidence.produced():
        _check_place(evidence, each, outcome)


def _check_refusal(evidence: Evidence, each: dict[str, Any], outcome: Outcome) -> None:
    t0, t1, topic = each["t0"], each["t1"], each["topic"]
    layout = _layout(evidence, topic, t0, t1, 0.0)
    asked = each.get("asked")
    if asked is not None and layout is not None and asked >= layout.partitions:
        outcome.figures["refused: the partition is gone"] += len(each["ids"])
        return
    if evidence.windows.any(t0, t1, topic, daemons=(each["d"],)) is None:
        where = topic if asked is None else f"{topic}/{asked}"
        text = f"{where}: d{each['d']} refused {each['ids'][0]} without a fault: {each['error'][:120]}"
        outcome.find("refusals", text, t1, t0)


def _check_place(evidence: Evidence, each: dict[str, Any], outcome: Outcome) -> None:
    t0, t1, topic = each["t0"], each["t1"], each["topic"]
    asked, key = each.get("asked"), each.get("key")
    if asked is not None:
        wrong = [at for at, _ in each["at"] if at != asked]
    else:
        layout = _layout(evidence, topic, t0, t1, KNOWN_AFTER)
        if key is None or layout is None or PARTITIONERS[each["d"] - 1] != "hash":
            return
        asked = _hashed(key.encode(), layout.partitions)
        wrong = [at for at, _ in each["at"] if at != asked]
        if wrong and evidence.windows.any(t0, t1, topic, daemons=(each["d"],)) is not None:
            return
    if wrong:
        text = (
            f"{topic}: {each['ids'][0]} (key {key}) of d{each['d']} went to partition {wrong[0]}, not {asked}"
        )
        outcome.find("placement", text, t1, t0)


def _layout(evidence: Evidence, topic: str, t0: float, t1: float, after: float) -> Layout | None:
    """Return the layout that a topic had in all this time, and so many seconds before; None if it changed."""
    for layout in evidence.layouts[topic]:
        if (layout.since == 0.0 or layout.since + after <= t0) and t1 <= layout.until:
            return layout
    return None


def _hashed(key: bytes, partitions: int) -> int:
    """Return the partition of a key: FNV-1a, 32 bits, signed as Sarama does it."""
    value = 2166136261
    for byte in key:
        value = ((value ^ byte) * 16777619) % 2**32
    return abs(value - 2**32 if value >= 2**31 else value) % partitions
