"""Turns: the actors of a system share each turn of the event loop with everything else that runs on it.

A turn of the loop runs all callbacks that are ready, so a callback per actor would let ten busy actors keep the
loop ten times as long as one: a timer that is due waits for all of them, up to three times (for the turn in
which it becomes due, for its callback, for the task that its callback wakes). Therefore the actors that have
messages stand in one queue, and one callback serves it for ``turn_time``; who is left goes on in the loop's
next turn.

A coroutine handler runs in a task, in the loop's next turn. The tasks report what they took, and the queue
starts as many of them per turn as fit into ``turn_time`` at that cost, one at least.

The clock costs nothing extra: a cell reads it after each message for its statistics.

Who awaits the reply of the only actor that has messages does not wait for its turn: the actor takes it at once,
inside the ``await``. If its handler is a plain one, the reply is there without a turn of the loop: 2.1 of 8.3
microseconds an ask, where a bare queue and future take 5.6 (one process each, on one core). All that is handled so
between two turns has one ``turn_time``; after it, an ``await`` waits for the loop as ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._core.cell import Cell

THROUGHPUT = 64
"""Messages that one actor handles before other actors and callbacks of the loop get their turn."""

TURN_TIME = 0.001
"""Seconds after which an actor, and all actors together, let other callbacks of the loop run."""

MAX_TURN_TIME = 60.0
"""Longest ``turn_time`` in seconds."""

DEEP = 500
"""Frames on the stack above which no actor takes its turn at once: of the 1,000 that Python allows it needs some itself."""

_MAIN = threading.main_thread().ident
"""The thread that Python's signal handlers run in."""

NEVER = 1
"""A time that has passed: no actor takes a turn inside another one's."""


def turn_ns(seconds: float) -> int:
    """Check a ``turn_time`` and convert it to nanoseconds.

    Raises:
        ValueError: it is not above 0, or above ``MAX_TURN_TIME``.
    """
    if not 0 < seconds <= MAX_TURN_TIME:
        raise ValueError(f"turn_time is above 0 and at most {MAX_TURN_TIME:g} seconds, not {seconds}")
    return int(seconds * 1e9)


class Turns:
    """The actors of one system that have messages to handle, in the order in which they were woken.

    Args:
        loop: the system's.
        clock: nanoseconds.
        turn_time: seconds that the actors may keep the loop; they keep it longer by one message at most.
    """

    __slots__ = (
        "_asked",
        "_asker",
        "_clock",
        "_context",
        "_cost",
        "_loop",
        "_shared",
        "_tells_thread",
        "_turn",
        "_until",
        "gives_way",
        "limit",
        "number",
        "pending",
        "ready",
        "spent",
        "standbys",
        "tasks",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], int], turn_time: float = TURN_TIME
    ) -> None:
        self.limit = turn_ns(turn_time)
        """The turn time in nanoseconds."""
        self.ready: deque[Cell] = deque()
        self.number = 0
        """Turns so far: a task whose handler ends in the turn in which it began did not wait."""
        self.spent = 0
        """Nanoseconds that handlers in tasks took since ``_cost`` was computed."""
        self.tasks = 0
        """The number of these tasks."""
        self.standbys = 0
        """Tasks that stand by for their actors' next coroutine handler, or handle a message; see ``standby``."""
        self._loop, self._clock = loop, clock
        self._tells_thread = hasattr(loop, "_thread_id")
        """Whether the loop tells which thread runs it: uvloop does not."""
        self._context = contextvars.Context()
        self._turn = self._run
        self.pending = False
        """Whether a turn is scheduled. Reset before the queue is read: an actor that a thread adds is seen
        either by that turn or by the thread, which then schedules one."""
        self._cost = 0
        self.gives_way = False
        """Whether an interrupt, which a handler has raised, has to leave the loop first."""
        self._asker, self._asked, self._shared = 0, -2, -2
        """The task that was answered at once last, the turn in which that was, and the last one with several such tasks."""
        self._until = 0
        """Until when actors may take their turn at once, in ns: 0 until the first does so, ``NEVER`` during a turn."""

    def add(self, cell: Cell) -> None:
        """Give an actor its turn, soon. Called by any thread.

        Raises:
            RuntimeError: the loop is closed.
        """
        self.ready.append(cell)
        if self.pending:
            if self._loop.is_closed():
                raise RuntimeError("the event loop is closed")
            return
        self.pending = True
        try:
            # As loops.runs_here(), without the call.
            if getattr(self._loop, "_thread_id", None) == get_ident() and (
                # Else it may be a signal handler that has interrupted the loop's sleep: call_soon does not end that.
                asyncio.current_task(self._loop) is not None or self._until == NEVER or get_ident() != _MAIN
            ):
                self._loop.call_soon(self._turn, context=self._context)
            else:
                self._loop.call_soon_threadsafe(self._turn, context=self._context)
        except BaseException:
            self.pending = False
            raise

    def at_once(self, cell: Cell, thread: int) -> bool:
        """Let an actor handle its messages now if it is the only one that has any, and there is time.

        Called by code that awaits the actor's reply, in the thread that the system's loop is supposed to run in. Tasks that
        ask in turns get one ask each: the one that comes first would take all the time otherwise.

        Args:
            cell: the actor's.
            thread: the calling thread's id.

        Returns:
            whether the caller has to let the loop go on before it looks at the reply.
        """
        loop: Any = self._loop
        # As loops.runs_here(), without the calls.
        if not (loop._thread_id == thread if self._tells_thread else asyncio._get_running_loop() is loop):
            return False  # it is another loop's code that awaits
        asker, number, asked = id(asyncio.current_task(loop)), self.number, self._asked
        self._asked = number
        again = asker == self._asker
        if not again:
            self._asker = asker
            if number - asked <= 1:
                self._shared = number
        ready, until, now = self.ready, self._until, self._clock()
        if (
            len(ready) != 1
            or ready[0] is not cell
            or 0 < until <= now
            or (again and number - self._shared <= 1)
        ):
            return False
        try:
            sys._getframe(DEEP)
        except ValueError:  # the usual case, 0.3 us
            pass
        else:
            return False  # a handler would find no room on the asker's stack
        self._until, self.gives_way = NEVER, False
        try:
            ready.popleft()
            cell.handling_context().run(cell.run)
        except BaseException:  # a caller at its recursion limit, or Ctrl-C: the actor's turn comes again
            ready.append(cell)
            raise
        finally:
            self._until = until or now + self.limit
        return self.gives_way

    def took(self, nanoseconds: int) -> None:
        """Take note of what a task took whose handlers did not wait."""
        self.spent += nanoseconds
        self.tasks += 1

    def _run(self) -> None:
        """Let each waiting actor handle messages until the time is over."""
        self.pending = False
        self.number += 1
        self._until = NEVER
        cell: Cell | None = None
        try:
            ready = self.ready
            if len(ready) == 1:  # asks one by one: 300 ns of 8 us less than the loop below
                cell = ready[
                    0
                ]  # not the value of popleft(): Ctrl-C comes after a call, and takes its value along
                del ready[0]
                cell.handling_context().run(cell.run)
            elif ready:
                self._run_all()
        except (KeyboardInterrupt, SystemExit):
            self._run_again(cell)
            raise
        finally:
            self._until = 0

    def _run_all(self) -> None:
        ready, end = self.ready, self._clock() + self.limit
        if self.tasks:
            self._cost = self.spent // self.tasks
            self.spent = self.tasks = 0
        cell: Cell | None = None
        try:
            # Not those that are woken meanwhile: other callbacks of the loop come first.
            for _ in range(len(ready)):
                cell = ready[0]
                del ready[0]
                cell.handling_context().run(cell.run)
                if cell.task is not None:
                    end -= self._cost
                if cell.began >= end:
                    break
        except (KeyboardInterrupt, SystemExit):
            self._run_again(cell)
            raise
        finally:
            if ready and not self.pending:
                self.pending = True
                self._loop.call_soon(self._turn, context=self._context)

    def look_again(self) -> None:
        """Schedule a turn, although one seems to be scheduled: Ctrl-C in the loop's own code may have lost it. In any thread."""
        self.pending = True
        self._loop.call_soon_threadsafe(self._turn, context=self._context)

    def _run_again(self, cell: Cell | None) -> None:
        """Schedule a turn after Ctrl-C, also for the actor that it has hit, perhaps before it has begun."""
        if cell is not None:
            self.ready.append(cell)
        self.pending = True
        self._loop.call_soon(self._turn, context=self._context)
