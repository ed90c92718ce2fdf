"""Where an actor's handler waits."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._core.cell import Cell

MAX_DEPTH = 50
"""Coroutines that are followed, each waiting for the next."""

MAX_STACK = 16_000
"""Characters of a stack: the innermost ones."""


def stack_of(cell: Cell) -> str | None:
    """Where the actor's coroutine handler waits, the innermost line last; None if none does.

    ``Task.get_stack`` has only the outermost coroutine of one that waits: what that awaits is here.
    """
    if cell.task is None:
        return None
    lines: list[str] = []
    waiting: Any = cell.task.get_coro()
    while waiting is not None and len(lines) < MAX_DEPTH:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            lines += traceback.StackSummary.extract(iter([(frame, frame.f_lineno)])).format()
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return "".join(lines)[-MAX_STACK:]
