"""Supervision policies as small values: what to do with whom, how often, and after which pause."""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from actors._checks import count, number, one_of, seconds
from actors._core.error_fields import is_a


class Directive(enum.Enum):
    """A supervisor's decision on a child that failed."""

    RESUME = "resume"
    """Go on with the next message and the same instance. Only after a handler's failure: an actor whose
    start or task failed is restarted instead."""
    RESTART = "restart"
    """Make a new instance behind the same ref and mailbox."""
    STOP = "stop"
    """Stop the child for good."""
    ESCALATE = "escalate"
    """Stop the child for good, and fail in turn."""


class Strategy(enum.Enum):
    """The children that a restart concerns, in Erlang/OTP's terms."""

    ONE_FOR_ONE = "one_for_one"
    """The child that failed."""
    ONE_FOR_ALL = "one_for_all"
    """All children: they stop, youngest first, and start again, oldest first."""
    REST_FOR_ONE = "rest_for_one"
    """The child that failed and those that were started after it."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses before restarts in a row: ``first * factor**n`` seconds (n = 0, 1, ...), at most ``most``.

    ``jitter`` (0 to 1) takes away up to that share of a pause, so that siblings do not come back in
    step. After ``reset`` seconds without a failure the pauses begin at ``first`` again.
    """

    first: float = 0.05
    factor: float = 2.0
    most: float = 10.0
    jitter: float = 0.2
    reset: float = 60.0

    def __post_init__(self) -> None:
        for what in ("first", "most", "reset"):
            seconds(what, getattr(self, what))
        number("factor", self.factor)
        number("jitter", self.jitter)
        if not 0 < self.factor <= 1e4:
            raise ValueError(f"factor is above 0 and at most 10,000, not {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is a share from 0 to 1, not {self.jitter!r}")

    def delay(self, failures: int, rng: random.Random) -> float:
        """The pause in seconds after ``failures`` (1, 2, ...) failures in a row, with jitter from ``rng``.

        Args:
            failures: failures in a row, this one included: 1 or more.
            rng: gives the jitter.
        """
        # The exponent is capped: 2.0 ** 2000 raises OverflowError, and `most` is reached long before.
        pause = min(self.first * self.factor ** min(failures - 1, 64), self.most)
        return pause * (1.0 - self.jitter * rng.random())


@dataclass(frozen=True, slots=True)
class Intensity:
    """At most ``restarts`` restarts within ``window`` seconds (OTP's restart intensity)."""

    restarts: int = 5
    window: float = 30.0

    def __post_init__(self) -> None:
        count("restarts", self.restarts, 0)
        seconds("window", self.window, above_zero=True)


def restart_always(_exc: BaseException) -> Directive:
    """The default ``decide``: restart after any failure."""
    return Directive.RESTART


@dataclass(frozen=True, slots=True)
class Supervision:
    """Set how a parent treats a child that fails.

    ``decide`` gets the exception and returns a directive; if it raises, the failure escalates.
    ``intensity`` bounds the restarts: per child with ``ONE_FOR_ONE``, else over all siblings together.
    """

    decide: Callable[[BaseException], Directive] = restart_always
    intensity: Intensity = field(default_factory=Intensity)
    backoff: Backoff = field(default_factory=Backoff)
    strategy: Strategy = Strategy.ONE_FOR_ONE

    def __post_init__(self) -> None:
        if not callable(self.decide):
            raise TypeError(f"decide is a function of the exception, not {self.decide!r}")
        one_of("intensity", self.intensity, Intensity)
        one_of("backoff", self.backoff, Backoff)
        one_of("strategy", self.strategy, Strategy)


@dataclass(frozen=True, slots=True)
class OnError:
    """A ``decide`` from a table of exception classes; the first match wins.

    Args:
        table: pairs of an exception class and a directive.
        otherwise: the directive if no class matches.

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
        """The directive for ``error``."""
        return next((to_do for kind, to_do in self.table if is_a(error, kind)), self.otherwise)


STOP_ON_FAILURE = Supervision(decide=lambda _exc: Directive.STOP)
"""Stop at the first failure, as pykka does with every actor."""

ESCALATE = Supervision(decide=lambda _exc: Directive.ESCALATE)
"""Stop the child and fail in turn."""


class RestartHistory:
    """Counts failures that are answered with a restart: within the window of an :class:`Intensity`, and in a row."""

    __slots__ = ("_failures", "_in_a_row", "_last")

    def __init__(self) -> None:
        self._failures: deque[float] = deque()
        self._last = float("-inf")
        self._in_a_row = 0

    def record(self, now: float, supervision: Supervision) -> int:
        """Note a failure at ``now`` (the loop's time, in seconds); return the number in the window with it.

        Args:
            now: when it failed, in seconds of the loop's time.
            supervision: gives the window, and the pause that ends a row.
        """
        if now - self._last >= supervision.backoff.reset:
            self._in_a_row = 0
        self._last = now
        self._in_a_row += 1
        self.count(now, supervision)
        failures = self._failures
        failures.append(now)
        # One more than allowed is enough to know: a long window needs no more memory.
        while len(failures) > supervision.intensity.restarts + 1:
            failures.popleft()
        return len(failures)

    def count(self, now: float, supervision: Supervision) -> int:
        """Return the number of failures that lie in the window at ``now``.

        Args:
            now: the end of the window, in seconds of the loop's time.
            supervision: gives the length of the window.
        """
        failures = self._failures
        while failures and failures[0] <= now - supervision.intensity.window:
            failures.popleft()
        return len(failures)

    @property
    def in_a_row(self) -> int:
        """The failures without ``Backoff.reset`` seconds between two of them."""
        return self._in_a_row

    def exceeded(self, supervision: Supervision) -> bool:
        """Tell whether another restart would be more than the intensity allows."""
        return len(self._failures) > supervision.intensity.restarts
