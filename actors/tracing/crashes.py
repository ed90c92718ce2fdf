"""Group crash reports: a failure that happens a thousand times is one report with a count."""

from __future__ import annotations

import hashlib
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from actors._core.error_fields import CAUSE, CONTEXT, traceback_of
from actors._core.interruption import failed_itself
from actors._events import ActorFailed
from actors.tracing._switch import Switch
from actors.tracing.protocol import MAX_STACK, Redact, plain, text, type_name

if TYPE_CHECKING:
    from actors._system import ActorSystem

MAX_GROUPS = 200
"""Most fingerprints that are kept; the one that has not occurred for longest is discarded."""

MAX_PATHS = 20
"""Most actors that one report names."""

FINGERPRINT_FRAMES = 3
"""Number of innermost frames that tell failures apart."""


class Crashes(Switch):
    """Collect :class:`actors.ActorFailed` events between :meth:`start` and :meth:`stop`.

    Also a context manager.

    Args:
        system: the system whose failures are collected.
        redact: maps an error to the text that a report shows of it, besides its type and stack. By default
            the name of its type, because error texts tend to quote messages.
    """

    def __init__(self, system: ActorSystem, *, redact: Redact = type_name) -> None:
        self.system = system
        self.redact = redact
        self.forgotten = 0
        """Number of reports that were discarded because of ``MAX_GROUPS``."""
        self._reports: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Start collecting; do nothing if already started."""
        if self._unsubscribe is None:
            self._unsubscribe = self.system.events.subscribe(self._on_failure, ActorFailed)

    def stop(self) -> None:
        """Stop collecting; the reports are kept."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()

    def reports(self) -> list[dict[str, Any]]:
        """Return one report per fingerprint, the latest failure first, as data that ``json.dumps`` accepts.

        ``first`` and ``last`` are seconds since 1970. ``stack``, ``recent`` and the other details describe
        the last failure. The stack names files, lines and functions; it contains no source code and no
        values.
        """
        return [{**report, "paths": list(report["paths"])} for report in reversed(self._reports.values())]

    def clear(self) -> None:
        """Discard all reports."""
        self._reports.clear()

    def _on_failure(self, event: ActorFailed) -> None:
        key = fingerprint(event.error)
        now = time.time()
        report = self._reports.pop(key, None)
        if report is None:
            report = {"fingerprint": key, "first": now, "count": 0, "paths": []}
            if len(self._reports) >= MAX_GROUPS:
                self._reports.popitem(last=False)
                self.forgotten += 1
        self._reports[key] = report
        report["count"] += 1
        report["last"] = now
        if event.path not in report["paths"] and len(report["paths"]) < MAX_PATHS:
            report["paths"].append(event.path)
        report |= self._details(event)

    def _details(self, event: ActorFailed) -> dict[str, Any]:
        try:
            shown = plain(self.redact(event.error))
        except BaseException as error:  # a failing redact function must not lose the report
            failed_itself(error)
            shown = f"redact failed: {type_name(error)}"
        return {
            "error": type_name(event.error),
            "shown": shown,
            "stack": _stack(event.error),
            "causes": _causes(event.error),
            "actor_class": event.actor_class,
            "where": event.where,
            "directive": event.directive,
            "failures": event.failures,
            "message": event.message,
            "mailbox": event.mailbox,
            "recent": [list(each) for each in event.recent],
        }


def fingerprint(error: BaseException) -> str:
    """Hash the error's type and innermost frames, without line numbers, to 16 hexadecimal digits."""
    frames = traceback.extract_tb(traceback_of(error))[-FINGERPRINT_FRAMES:]
    parts = [type(error).__module__, type(error).__qualname__]
    for frame in frames:
        parts += [os.path.basename(frame.filename), frame.name]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _stack(error: BaseException) -> str:
    frames = traceback.extract_tb(traceback_of(error))
    lines = [f"{each.filename}:{each.lineno} {each.name}" for each in frames]
    return "\n".join(lines)[-MAX_STACK:]


def _causes(error: BaseException) -> list[str]:
    causes: list[str] = []
    cause = _before(error)
    while cause is not None and len(causes) < 10:
        causes.append(text(type_name(cause)))
        cause = _before(cause)
    return causes


def _before(error: BaseException) -> BaseException | None:
    cause: BaseException | None = CAUSE.__get__(error)
    if cause is None:
        cause = CONTEXT.__get__(error)
    return cause


__all__ = ["Crashes", "fingerprint"]
