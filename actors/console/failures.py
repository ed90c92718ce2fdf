"""Failures, restarts, dead letters and other events, grouped and bounded.

Events that are rare (a failure, a restart, a blocked loop) are kept from the console's start on: who opens the page after a
crash wants to see it. Those that can be frequent (dead, dropped and unhandled messages) are collected while a page is open.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from actors._core.interruption import failed_itself
from actors._events import (
    ActorFailed,
    ActorRestarting,
    AskCycleFound,
    DeadLetter,
    Dropped,
    Event,
    LoopBlocked,
    SlowHandler,
    Unhandled,
)
from actors.tracing.crashes import Crashes
from actors.tracing.protocol import MAX_STACK, Redact, plain, type_name

if TYPE_CHECKING:
    from actors._system import ActorSystem

RARE = (ActorFailed, ActorRestarting, AskCycleFound, LoopBlocked, SlowHandler)
FREQUENT = (DeadLetter, Dropped, Unhandled)

MAX_EVENTS = 300
"""Most rare events that are kept, the latest."""

MAX_LOST = 300
"""Most groups of lost messages that are kept, those hit latest; ``forgotten`` counts the others."""

MAX_SHOWN = 100
"""Most groups, reports and events of one frame."""


class EventLog:
    """What went wrong in a system.

    Args:
        system: the system.
        redact: maps a message or an error to the text that is shown.
        crashes: the failures, if the program collects them already; None collects them.
    """

    def __init__(self, system: ActorSystem, redact: Redact, crashes: Crashes | None) -> None:
        self.system = system
        self.crashes = crashes or Crashes(system, redact=redact)
        self.forgotten = 0
        self._owned = crashes is None
        self._redact = redact
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._lost: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()
        self._lock = threading.RLock()  # actors with a thread of their own publish, too
        self._end: Callable[[], None] | None = None

    def start(self) -> None:
        """Collect rare events from now on."""
        if self._owned:
            self.crashes.start()
        if self._end is None:
            self._end = self.system.events.subscribe(self._on_rare, *RARE)

    def stop(self) -> None:
        """Collect no longer."""
        if self._owned:
            self.crashes.stop()
        end, self._end = self._end, None
        if end is not None:
            end()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Collect frequent events, too, in a ``with`` block."""
        end = self.system.events.subscribe(self._on_lost, *FREQUENT)
        try:
            yield
        finally:
            end()

    def shown(self) -> dict[str, Any]:
        """Return ``crashes``, ``lost`` and ``events``, the latest of each first."""
        with self._lock:
            lost = [dict(each) for each in list(reversed(self._lost.values()))[:MAX_SHOWN]]
            events = list(reversed(self._events))[:MAX_SHOWN]
        reports = self.crashes.reports()
        return {
            "crashes": [_report(each) for each in reports[:MAX_SHOWN]],
            "lost": lost,
            "events": events,
            "dead_letters": self.system.dead_letters,
            "forgotten": self.forgotten + self.crashes.forgotten + max(0, len(reports) - MAX_SHOWN),
        }

    def about(self, path: str) -> list[dict[str, Any]]:
        """Return the rare events of one actor, the latest first."""
        return [each for each in reversed(self._events) if each["path"] == path]

    def _on_rare(self, event: Event) -> None:
        path: str | None = getattr(event, "path", None)
        found: dict[str, Any] = {
            "at": time.time(),
            "type": type_name(event),
            "path": path,
            "text": "",
            "stack": None,
        }
        if isinstance(event, ActorFailed):
            found["text"] = f"{self._show(event.error)} in {event.where}"
            if event.message:
                found["text"] += f", handling {event.message}"
            found["text"] += f": {event.directive}"
        elif isinstance(event, ActorRestarting):
            found["text"] = (
                f"restart {event.restarts} of {event.intensity} in the window, in {event.delay:.3g} s"
            )
        elif isinstance(event, AskCycleFound):
            found["path"], found["text"] = event.paths[0], " → ".join(event.paths)
        elif isinstance(event, LoopBlocked):
            found["text"], found["stack"] = (
                f"the loop stood still for {event.seconds:.2f} s",
                event.stack[-MAX_STACK:],
            )
        elif isinstance(event, SlowHandler):
            found["text"] = f"{event.message} took {event.seconds:.2f} s"
        self._events.append(found)

    def _on_lost(self, event: DeadLetter | Dropped | Unhandled) -> None:
        reason = "no handler" if isinstance(event, Unhandled) else event.reason
        sender = None if isinstance(event, Unhandled) else event.sender
        key = type(event), event.recipient, type(event.message), reason
        with self._lock:
            found = self._lost.pop(key, None)
            if found is None:
                found = {
                    "type": type_name(event),
                    "path": event.recipient,
                    "message": self._show(event.message),
                    "reason": reason,
                    "count": 0,
                    "first": time.time(),
                }
                if len(self._lost) >= MAX_LOST:
                    self._lost.popitem(last=False)
                    self.forgotten += 1
            found["count"] += 1
            found["last"], found["sender"] = time.time(), sender
            self._lost[key] = found

    def _show(self, value: Any) -> str:
        try:
            return str(plain(self._redact(value)))
        except BaseException as error:  # a failing redact function must not lose the event
            failed_itself(error)
            return type_name(value)


def _report(report: dict[str, Any]) -> dict[str, Any]:
    return {**report, "recent": report["recent"][-10:]}


__all__ = ["EventLog"]
