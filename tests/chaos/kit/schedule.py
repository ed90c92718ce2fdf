"""The faults of a run, drawn from its seed: storms of several at once, and calms in which all must recover."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.kit.kinds import KINDS
from tests.chaos.kit.plan import BROKERS, DAEMONS

WARM_UP = 8.0
"""Seconds before the first fault."""
STORM, CALM = 35.0, 25.0
"""Seconds of a storm, in which faults begin, and of the calm after it."""
PER_STORM = 8
"""Faults in a storm."""
BROKER_REST = 9.0
"""Seconds between two faults of brokers: the first must be whole again, or a partition has no majority."""


@dataclass(frozen=True)
class Planned:
    """One fault to come.

    Attributes:
        at: seconds after the start.
        kind: a key of :data:`tests.chaos.kit.kinds.KINDS`.
        daemon: 1, 2, ...
        broker: 1, 2, ...
        seconds: how long it lasts.
        dice: between 0 and 1, for further choices.
    """

    at: float
    kind: str
    daemon: int
    broker: int
    seconds: float
    dice: float


def draw(seed: int, minutes: float, kinds: Sequence[str]) -> list[Planned]:
    """Draw the faults of a run, in the order of their times.

    Args:
        seed: the same seed gives the same faults.
        minutes: the length of the run.
        kinds: kinds to draw from.

    Raises:
        ValueError: there is no such kind.
    """
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    rng = random.Random(f"schedule:{seed}")
    names = sorted(kinds)
    bag: list[str] = []
    found: list[Planned] = []
    start, end = WARM_UP, minutes * 60 - CALM
    while start < end:
        storm: list[Planned] = []
        for _ in range(PER_STORM):
            if not bag:
                bag = rng.sample(names, len(names))
            planned = _place(rng, bag.pop(), start, min(start + STORM, end), storm)
            if planned is not None:
                storm.append(planned)
        found += sorted(storm, key=lambda planned: planned.at)
        start += STORM + CALM
    return found


def _place(
    rng: random.Random, kind: str, start: float, end: float, storm: Sequence[Planned]
) -> Planned | None:
    """Find a time and a target that no other fault of the storm uses; None after twenty attempts."""
    about = KINDS[kind]
    for _ in range(20):
        planned = Planned(
            at=round(rng.uniform(start, end), 2),
            kind=kind,
            daemon=rng.randint(1, DAEMONS),
            broker=rng.randint(1, BROKERS),
            seconds=round(rng.uniform(*about.seconds), 2),
            dice=rng.random(),
        )
        if not any(_clash(planned, other) for other in storm):
            return planned
    return None


def _clash(one: Planned, other: Planned) -> bool:
    ours, theirs = KINDS[one.kind].uses, KINDS[other.kind].uses
    if not ours or not theirs:
        return False
    daemons = {ours, theirs} <= {"daemon", "daemons"}
    if ours != theirs and not daemons:
        return False
    if ours == theirs == "daemon" and one.daemon != other.daemon:
        return False
    rest = BROKER_REST if ours == "broker" else 4.0
    first, second = sorted((one, other), key=lambda planned: planned.at)
    return second.at < first.at + first.seconds + rest


__all__ = ["CALM", "STORM", "Planned", "draw"]
