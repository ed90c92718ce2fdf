"""Supervision policies as small values: what to do, with whom, how often, and after what pause."""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


class Directive(enum.Enum):
    """What a supervisor does with a child that failed."""

    RESUME = "resume"
    """Go on with the next message; the instance and its state stay. Only for a handler's failure:
    an actor that could not start is restarted instead."""
    RESTART = "restart"
    STOP = "stop"
    ESCALATE = "escalate"


class Strategy(enum.Enum):
    """Whom a restart concerns (Erlang/OTP's terms)."""

    ONE_FOR_ONE = "one_for_one"
    """The child that failed."""
    ONE_FOR_ALL = "one_for_all"
    """All children: they stop, youngest first, and start again, oldest first."""
    REST_FOR_ONE = "rest_for_one"
    """The child that failed and those that were started after it."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pause before the n-th restart in a row: ``first * factor**n`` seconds, at most ``most``.

    ``jitter`` takes away up to that share of the pause, so that siblings do not come back in step.
    After ``reset`` seconds without a failure the pauses begin at ``first`` again.
    """

    first: float = 0.05
    factor: float = 2.0
    most: float = 10.0
    jitter: float = 0.2
    reset: float = 60.0

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after ``failures`` (1, 2, ...) failures in a row."""
        # The exponent is capped: 2.0 ** 2000 is an OverflowError, and `most` wins long before.
        pause = min(self.first * self.factor ** min(failures - 1, 64), self.most)
        return pause * (1.0 - self.jitter * rng.random())


@dataclass(frozen=True, slots=True)
class Intensity:
    """At most ``restarts`` restarts within ``window`` seconds (OTP's restart intensity)."""

    restarts: int = 5
    window: float = 30.0


def restart_always(_exc: BaseException) -> Directive:
    """The default: whatever went wrong, a new life."""
    return Directive.RESTART


@dataclass(frozen=True, slots=True)
class Supervision:
    """How a parent treats children that fail.

    ``decide`` gets the exception and answers with a directive; a ``decide`` that raises escalates.
    ``intensity`` counts per child with ``ONE_FOR_ONE``, else over all the siblings together.
    """

    decide: Callable[[BaseException], Directive] = restart_always
    intensity: Intensity = field(default_factory=Intensity)
    backoff: Backoff = field(default_factory=Backoff)
    strategy: Strategy = Strategy.ONE_FOR_ONE


@dataclass(frozen=True, slots=True)
class OnError:
    """A ``decide`` from a table of exception classes; the first that matches wins.

    >>> decide = OnError((ValueError, Directive.RESUME), (OSError, Directive.ESCALATE))
    """

    table: tuple[tuple[type[BaseException], Directive], ...]
    otherwise: Directive = Directive.RESTART

    def __init__(
        self,
        *table: tuple[type[BaseException], Directive],
        otherwise: Directive = Directive.RESTART,
    ) -> None:
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "otherwise", otherwise)

    def __call__(self, error: BaseException) -> Directive:
        """What to do about ``error``."""
        return next((to_do for kind, to_do in self.table if isinstance(error, kind)), self.otherwise)


STOP_ON_FAILURE = Supervision(decide=lambda _exc: Directive.STOP)
"""What pykka does: an actor without a supervisor dies of its first failure."""

ESCALATE = Supervision(decide=lambda _exc: Directive.ESCALATE)
"""The parent fails with the child."""


class RestartHistory:
    """Counts failures within the window of an :class:`Intensity`, and those in a row."""

    __slots__ = ("_failures", "_in_a_row", "_last")

    def __init__(self) -> None:
        self._failures: deque[float] = deque()
        self._last = float("-inf")
        self._in_a_row = 0

    def record(self, now: float, supervision: Supervision) -> int:
        """Note a failure at ``now``; return how many lie in the window, this one included."""
        if now - self._last >= supervision.backoff.reset:
            self._in_a_row = 0
        self._last = now
        self._in_a_row += 1
        failures = self._failures
        failures.append(now)
        while failures[0] <= now - supervision.intensity.window:
            failures.popleft()
        # One more than allowed says it all: the count does not grow with a window of days.
        while len(failures) > supervision.intensity.restarts + 1:
            failures.popleft()
        return len(failures)

    @property
    def in_a_row(self) -> int:
        """Failures without a pause of ``Backoff.reset`` seconds between them."""
        return self._in_a_row

    def exceeded(self, supervision: Supervision) -> bool:
        """Whether the next restart would be one too many."""
        return len(self._failures) > supervision.intensity.restarts
