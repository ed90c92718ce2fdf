"""Crash reports, grouped: a failure that happens a thousand times is one line with a count."""

from __future__ import annotations

import hashlib
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from actors._events import ActorFailed
from actors.tracing.protocol import MAX_STACK, Redact, plain, text, type_name

if TYPE_CHECKING:
    from actors._system import ActorSystem

MAX_GROUPS = 200
"""Fingerprints that are kept; the one that did not happen for longest gives way."""

MAX_PATHS = 20
"""Actors that are named in one group."""

FINGERPRINT_FRAMES = 3
"""Innermost frames that tell failures apart."""


class Crashes:
    """Collects :class:`actors.ActorFailed` events from :meth:`start` to :meth:`stop`.

    Args:
        system: whose actors.
        redact: what is shown of an error besides its type and where it was raised; by default its
            type's name, as texts of errors tend to quote messages.
    """

    def __init__(self, system: ActorSystem, *, redact: Redact = type_name) -> None:
        self.system = system
        self.redact = redact
        self.forgotten = 0
        """Groups that gave way to others."""
        self._groups: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._end: Callable[[], None] | None = None

    def __enter__(self) -> Crashes:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to collect; nothing if it does already."""
        if self._end is None:
            self._end = self.system.events.subscribe(self._failed, ActorFailed)

    def stop(self) -> None:
        """Cease to; the reports stay."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def reports(self) -> list[dict[str, Any]]:
        """The groups, the latest failure first: plain data that ``json.dumps`` takes.

        ``first`` and ``last`` are seconds since 1970; ``stack``, ``recent`` and the like are of the
        last failure. The stack has no source lines and no values, only where.
        """
        return [{**group, "paths": list(group["paths"])} for group in reversed(self._groups.values())]

    def clear(self) -> None:
        """Forget all."""
        self._groups.clear()

    def _failed(self, event: ActorFailed) -> None:
        key = fingerprint(event.error)
        now = time.time()
        group = self._groups.pop(key, None)
        if group is None:
            group = {"fingerprint": key, "first": now, "count": 0, "paths": []}
            if len(self._groups) >= MAX_GROUPS:
                self._groups.popitem(last=False)
                self.forgotten += 1
        self._groups[key] = group
        group["count"] += 1
        group["last"] = now
        if event.path not in group["paths"] and len(group["paths"]) < MAX_PATHS:
            group["paths"].append(event.path)
        group |= self._last(event)

    def _last(self, event: ActorFailed) -> dict[str, Any]:
        try:
            shown = plain(self.redact(event.error))
        except Exception as error:  # somebody's own redact must not cost the report
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
    """16 hexadecimal digits: the error's type and its innermost frames, without line numbers."""
    frames = traceback.extract_tb(error.__traceback__)[-FINGERPRINT_FRAMES:]
    parts = [type(error).__module__, type(error).__qualname__]
    for frame in frames:
        parts += [os.path.basename(frame.filename), frame.name]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _stack(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{each.filename}:{each.lineno} {each.name}" for each in frames]
    return "\n".join(lines)[-MAX_STACK:]


def _causes(error: BaseException) -> list[str]:
    causes: list[str] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(causes) < 10:
        causes.append(text(type_name(cause)))
        cause = cause.__cause__ or cause.__context__
    return causes


__all__ = ["Crashes", "fingerprint"]
