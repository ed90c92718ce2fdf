"""The stack of an actor's coroutine handler."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from actors._core.context import within

MAX_DEPTH = 50
"""Coroutines to follow, each awaiting the next."""

MAX_STACK = 16_000
"""Characters of a stack to keep, innermost lines last."""


def stack_of(task: asyncio.Task[Any] | None) -> str | None:
    """The stack of a waiting task (a cell's, say), the innermost line last; None without a task.

    ``Task.get_stack`` shows only the outermost coroutine of a waiting task; this follows what it awaits.
    """
    if task is None:
        return None
    lines: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None and len(lines) < MAX_DEPTH:
        if getattr(waiting, "gi_code", None) is within.__code__:
            waiting = waiting.gi_frame.f_locals["handler"] if waiting.gi_frame is not None else None
            continue
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            lines += traceback.StackSummary.extract(iter([(frame, frame.f_lineno)])).format()
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return "".join(lines)[-MAX_STACK:]
