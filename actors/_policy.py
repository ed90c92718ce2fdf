"""Supervision policies as small values: what to do, how often, and after what pause."""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


class Directive(enum.Enum):
    """What a supervisor does with a child that failed."""

    RESTART = "restart"
    STOP = "stop"
    ESCALATE = "escalate"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pause before the n-th restart in a row: ``first * factor**n`` seconds, at most ``most``.

    ``jitter`` takes away up to that share of the pause, so that siblings do not come back in step.
    """

    first: float = 0.05
    factor: float = 2.0
    most: float = 10.0
    jitter: float = 0.2

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after ``failures`` (1, 2, ...) failures within the window."""
        # The exponent is capped: 2.0 ** 2000 is an OverflowError, and `most` wins long before.
        pause = min(self.first * self.factor ** min(failures - 1, 64), self.most)
        return pause * (1.0 - self.jitter * rng.random())


@dataclass(frozen=True, slots=True)
class Intensity:
    """At most ``restarts`` restarts within ``window`` seconds (OTP's restart intensity)."""

    restarts: int = 5
    window: float = 30.0


def _always_restart(_exc: BaseException) -> Directive:
    return Directive.RESTART


@dataclass(frozen=True, slots=True)
class Supervision:
    """One-for-one supervision: each child is decided on alone."""

    decide: Callable[[BaseException], Directive] = _always_restart
    intensity: Intensity = field(default_factory=Intensity)
    backoff: Backoff = field(default_factory=Backoff)


STOP_ON_FAILURE = Supervision(decide=lambda _exc: Directive.STOP)
"""What pykka does: an actor without a supervisor dies of its first failure."""

ESCALATE = Supervision(decide=lambda _exc: Directive.ESCALATE)
"""The parent fails with the child."""


class RestartHistory:
    """Counts a child's failures within the window of an :class:`Intensity`."""

    __slots__ = ("_failures", "_intensity")

    def __init__(self, intensity: Intensity) -> None:
        self._intensity = intensity
        self._failures: deque[float] = deque()

    def record(self, now: float) -> int:
        """Note a failure at ``now``; return how many lie in the window, this one included."""
        failures = self._failures
        failures.append(now)
        while failures[0] <= now - self._intensity.window:
            failures.popleft()
        return len(failures)

    def exceeded(self) -> bool:
        """Whether the next restart would be one too many."""
        return len(self._failures) > self._intensity.restarts
