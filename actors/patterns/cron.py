"""Timers by a cron expression. The extra ``cron`` (``cronsim``) parses it and knows about summer time.

The wall clock decides. It is looked at once a minute, so a clock that is set, or a machine that slept, is noticed
then; occurrences that were missed give one message together. After a clock was set back by more than three hours the
schedule begins anew; by less, no message comes twice.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

from actors._actor import Actor
from actors._checks import one_of

LOOK = 60.0
"""Most seconds between two looks at the wall clock."""

SET_BACK = 3 * 3600.0
"""Seconds by which the clock may be set back before the schedule begins anew. Below that, the timer waits until the
clock is where it was, so that no occurrence comes twice. The number is that of Vixie cron."""


class Cron:
    """A schedule such as ``30 9 * * MON-FRI``: minute, hour, day of month, month, day of week.

    Args:
        expression: in cron's syntax, as cronsim documents it.
        zone: the time zone of the expression.

    Raises:
        TypeError: the expression is no text, or the zone no ``tzinfo``, such as a ``ZoneInfo``.
        ValueError: the expression is not valid, or names no date that exists.
        ModuleNotFoundError: cronsim is not installed.
    """

    def __init__(self, expression: str, zone: dt.tzinfo = dt.UTC) -> None:
        one_of("a cron expression", expression, str)
        one_of("a schedule's zone", zone, dt.tzinfo)
        self.expression, self.zone = expression, zone
        self.next_after(dt.datetime.now(zone))

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, {self.zone})"

    def next_after(self, moment: dt.datetime) -> dt.datetime:
        """Return the first occurrence after a moment, which has a time zone."""
        try:
            import cronsim
        except ModuleNotFoundError:
            raise ModuleNotFoundError("cron timers need cronsim: pip install cronsim") from None
        try:
            return next(cronsim.CronSim(self.expression, moment.astimezone(self.zone)))
        except (cronsim.CronSimError, StopIteration) as error:
            raise ValueError(f"{self.expression!r} is no schedule: {error or 'it never occurs'}") from None


class CronTimer:
    """A timer that :func:`start_cron` has started. ``sent`` and ``refused`` count its messages."""

    def __init__(self, actor: Actor, schedule: Cron, message: Any, now: Callable[[], dt.datetime]) -> None:
        self.schedule = schedule
        self.sent = self.refused = 0
        self._actor, self._message, self._now = actor, message, now
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Send no more messages; one that is in the mailbox is handled."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Send the messages; a task of the actor runs it."""
        self._task = asyncio.current_task()
        try:
            await self._send()
        except asyncio.CancelledError:
            if not self._cancelled:
                raise

    async def _send(self) -> None:
        latest = self._now()
        due = self.schedule.next_after(latest)
        while not self._cancelled:
            now = self._now()
            if (latest - now).total_seconds() > SET_BACK:
                latest, due = now, self.schedule.next_after(now)
            latest = max(latest, now)
            left = (due - now).total_seconds()
            if left > 0:
                await asyncio.sleep(min(left, LOOK))
                continue
            if self._actor.actor_ref.notify(self._message):
                self.sent += 1
            else:
                self.refused += 1
            due = self.schedule.next_after(now)


def start_cron(
    actor: Actor,
    schedule: Cron,
    message: Any,
    *,
    now: Callable[[], dt.datetime] | None = None,
) -> CronTimer:
    """Send an actor a message at each occurrence of a schedule, until this life of the actor ends.

    Call it in ``on_start``, so that a restart starts it again. A full mailbox misses the occurrence.

    Args:
        actor: the actor itself.
        schedule: when.
        message: what to send.
        now: the wall clock, with a time zone; None takes the machine's.

    Raises:
        TypeError: ``schedule`` is no :class:`Cron`.
        ValueError: what ``now`` returns has no time zone.
        TooManyTasks: the actor has ``max_tasks`` tasks.
    """
    one_of("schedule", schedule, Cron)
    wall = now or (lambda: dt.datetime.now(dt.UTC))
    if wall().utcoffset() is None:
        raise ValueError("now() returns a time without a zone; write lambda: datetime.now(timezone.utc)")
    timer = CronTimer(actor, schedule, message, wall)
    actor.start_task(timer.run())
    return timer
