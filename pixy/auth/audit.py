"""The audit log: who did what, with which result, as JSON lines in a file, in a Kafka topic, or both.

A request never waits for it (:mod:`pixy.json_lines`). Nobody can fill the disk either: of refusals a hundred records a
second are kept of strangers, and as many of callers with a credential, who have no right or are over their limits. The others are counted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from pixy.auth.buckets import RefusalBound
from pixy.auth.principal import Caller, traceparent
from pixy.auth.rules import MAX_NAME, Access
from pixy.config.security import Audit
from pixy.errors import PixyError, Unauthenticated
from pixy.json_lines import File, JsonLines, Record, Target

CANCELLED: Final = "cancelled"
"""The result of an operation that has changed nothing: its caller had gone before it began, or it only reads or waits."""
UNKNOWN: Final = "unknown"
"""The result of a change of which it is not known whether it was made."""


class AuditLog:
    """Writes records of what callers do.

    Args:
        config: the section ``audit``, with a path or a topic.
        topic: writes to the topic, if there is one.
        wall: seconds since 1970.
        clock: seconds.
        chance: a number from 0 to 1, another one each time.
    """

    def __init__(
        self,
        config: Audit,
        topic: Target | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._verbs = frozenset(config.verbs)
        self._all = "*" in self._verbs
        self._sample = config.sample
        self._wall = wall
        self._chance = chance
        self._refusals = RefusalBound(clock)
        targets: list[Target] = [File(config.path, "audit.path")] if config.path else []
        targets += [topic] if topic is not None else []
        # Each with a queue of its own: Kafka that is down does not hold the file up.
        self._outputs: Sequence[JsonLines] = [JsonLines(each, config.max_queued, wall) for each in targets]

    def start(self) -> None:
        """Open the file and begin to write. Raises OSError."""
        for output in self._outputs:
            output.start()

    def stop(self) -> None:
        """Write what waits, and end. Blocks, for some seconds at most."""
        for output in self._outputs:
            output.stop()

    def reopen(self) -> None:
        """Go on in a new file of the same name: the earlier one was renamed."""
        for output in self._outputs:
            output.target.reopen()

    # -- records ----------------------------------------------------------------------------------

    def wants(self, verb: str) -> bool:
        """Return whether an operation of this verb is recorded; draws lots for those that are sampled."""
        return self._all or verb in self._verbs or (self._sample > 0 and self._chance() < self._sample)

    def done(
        self,
        caller: Caller,
        access: Access,
        seconds: float,
        error: BaseException | None,
        action: str = "",
        *,
        answered: bool = True,
    ) -> None:
        """Record an operation that is over.

        Args:
            caller: who.
            access: what.
            seconds: how long it took.
            error: why it failed; None: it did not.
            action: an operator's; empty: it was something else.
            answered: whether the caller was still there to hear of it.
        """
        result = "ok" if error is None else type(error).__name__
        more = {} if answered else {"answered": False}
        self._offer(result, caller, access, **_named(action), ms=_ms(seconds), error=_text(error), **more)

    def given_up(self, result: str, caller: Caller, access: Access, seconds: float, action: str = "") -> None:
        """Record an operation that nobody knows the end of, because whoever waited for it has stopped to.

        Args:
            result: :data:`CANCELLED` or :data:`UNKNOWN`.
            caller: who.
            access: what.
            seconds: how long it took.
            action: as of :meth:`done`.
        """
        self._offer(result, caller, access, **_named(action), ms=_ms(seconds), answered=False)

    def refused(self, caller: Caller, access: Access, error: PixyError, action: str = "") -> None:
        """Record an operation that was not permitted. There is a bound on such records; others are counted."""
        if self._keeps_refusal(known=caller.known):
            self._offer(type(error).__name__, caller, access, **_named(action), error=_text(error))

    def unauthenticated(self, address: str, trace: str, error: Unauthenticated) -> None:
        """Record a caller who was not recognized. There is a bound on such records; others are counted.

        Args:
            address: the peer's.
            trace: the request's ``traceparent`` header; empty: none.
            error: names the reason.
        """
        if self._keeps_refusal(known=False):
            self._put(
                {
                    "result": "Unauthenticated",
                    "address": address,
                    "trace": traceparent(trace),
                    "reason": error.reason,
                    "error": str(error),
                }
            )

    def _keeps_refusal(self, *, known: bool) -> bool:
        if self._refusals.keeps(known=known):
            return True
        for output in self._outputs:
            output.drop()
        return False

    def _offer(self, result: str, caller: Caller, access: Access, **more: Any) -> None:
        self._put(
            {
                "result": result,
                "principal": caller.principal.name,
                "verb": access.verb,
                "cluster": access.cluster[:MAX_NAME],
                "topic": access.topic and access.topic[:MAX_NAME],
                "group": access.group and access.group[:MAX_NAME],
                "address": caller.address,
                "trace": traceparent(caller.trace),
                **more,
            }
        )

    def _put(self, record: Record) -> None:
        record["time"] = self._wall()
        for output in self._outputs:
            output.put(record)


def _named(action: str) -> dict[str, str]:
    return {"action": action} if action else {}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _text(error: BaseException | None) -> str | None:
    return None if error is None else str(error) or None


__all__ = ["CANCELLED", "UNKNOWN", "AuditLog"]
