"""Duplicates: each repeated delivery needs an event that explains it.

A message whose acknowledgement was accepted before it was asked for again is repeated only if a fault made
the daemon forget the acknowledgement, or if two daemons had the partition. A message without one is also
repeated when its time for the acknowledgement is over, or when the partition moves.
"""

from __future__ import annotations

import itertools
import math

from tests.chaos.kit.checker.evidence import Consumed, Delivery, Evidence, GroupView
from tests.chaos.kit.checker.outcome import Outcome
from tests.chaos.kit.checker.windows import LEAD


def check(evidence: Evidence, outcome: Outcome) -> None:
    """Add each repetition without a reason, and count the others by reason."""
    for group in evidence.views:
        for partition, consumed in group.partitions.items():
            for index, deliveries in enumerate(consumed.deliveries):
                if deliveries is None or len(deliveries) < 2:
                    continue
                deliveries.sort(key=lambda each: each.t1)
                for before, again in itertools.pairwise(deliveries):
                    why = _explain(evidence, group, partition, consumed, index, before, again)
                    if why:
                        outcome.repeated[why] += 1
                    else:
                        _find(group, partition, consumed, index, before, again, outcome)


def _explain(
    evidence: Evidence,
    group: GroupView,
    partition: int,
    consumed: Consumed,
    index: int,
    before: Delivery,
    again: Delivery,
) -> str:
    offset = consumed.log.offsets[index]
    accepted = consumed.accepted[index]
    for t, number, _old, new in group.resets:
        # What was acknowledged from the new offset on is forgotten, also what lay beyond the committed one.
        if number == partition and new <= offset:
            if before.t0 <= t <= again.t1:
                return "offsets set back"
            if accepted < t <= before.t0:
                accepted = math.inf
    daemons = (before.d, again.d, consumed.acked_by.get(index, before.d))
    if accepted < again.t0:
        # Without a fault the acknowledgement was committed soon after it was accepted.
        forgot = evidence.windows.ungraceful(accepted, accepted, group.topic, daemons)
        two = evidence.windows.ungraceful(again.t0, again.t1, group.topic, daemons)
        fault = forgot or two
        return "" if fault is None else f"{fault.kind}, acknowledged"
    timeout = evidence.plan["ack_timeout"]
    if group.mode == "ack" and again.t1 - before.t0 >= timeout:
        return "ack timeout"
    fault = evidence.windows.any(before.t0 - LEAD, again.t1, group.topic, daemons=daemons)
    if fault is not None:
        return f"{fault.kind}, not acknowledged"
    if group.rebalanced(before.t0 - 1.0, again.t1 + 1.0):
        return "rebalance, not acknowledged"
    return ""


def _find(
    group: GroupView,
    partition: int,
    consumed: Consumed,
    index: int,
    before: Delivery,
    again: Delivery,
    outcome: Outcome,
) -> None:
    accepted = consumed.accepted[index]
    acked = (
        f"acknowledged after {accepted - before.t1:.2f} s"
        if accepted < again.t0
        else "not acknowledged before"
    )
    text = (
        f"{group.name} {group.topic}/{partition} {consumed.log.offsets[index]}: delivered again by d{again.d} "
        f"{again.t1 - before.t1:.2f} s after d{before.d}, {acked}"
    )
    outcome.find("duplicates", text, again.t1, before.t0)
