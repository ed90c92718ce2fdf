"""Tasks that are cancelled before their first step.

asyncio throws the cancellation into the coroutine before its first line then, so none of its code runs: no ``finally``,
and nothing of what a last hook has to give back. A coroutine that begins with ``await pause()``, or with
``await begun()``, and is sent to that line before its task is made, is there when the cancellation comes.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Generator
from typing import cast


@types.coroutine
def pause() -> Generator[None, None, None]:
    """Hand control back once."""
    yield


async def begun() -> None:
    """Hand control back once; let a cancellation that comes meanwhile hit the task's next wait."""
    try:
        await pause()
    except asyncio.CancelledError:
        cast("asyncio.Task[object]", asyncio.current_task()).cancel()


__all__ = ["begun", "pause"]
