"""The event loop under a system: its end is the end of the actors.

asyncio has no hook for the end of a loop. The loop's own ``close`` is therefore replaced, on the object, by a
function that calls it and then tells the systems. Without that a thread that waits for a reply would wait for
ever, and the watchers in other systems would never hear.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._system import ActorSystem


def tell_when_closed(loop: asyncio.AbstractEventLoop, system: ActorSystem) -> None:
    """Have ``system.loop_closed`` called after the loop was closed, in the thread that has closed it.

    Args:
        loop: the loop.
        system: a system on it, which this does not keep alive.
    """
    systems: list[weakref.ref[ActorSystem]] | None = getattr(loop.close, "actor_systems", None)
    if systems is not None:
        systems[:] = [each for each in systems if each() is not None]
        systems.append(weakref.ref(system))
        return
    known = [weakref.ref(system)]
    ref = weakref.ref(loop)

    def close() -> None:
        loop = ref()
        if loop is None:
            return
        type(loop).close(loop)
        if loop.is_closed():
            for each in tuple(known):
                found = each()
                if found is not None:
                    found.loop_closed()

    replaced: Any = close
    replaced.actor_systems = known
    with contextlib.suppress(AttributeError):  # a loop whose methods cannot be replaced is noticed later
        loop.close = replaced  # type: ignore[method-assign]


def runs_here(loop: Any, thread: int) -> bool:
    """Tell whether the calling thread, whose id is ``thread``, runs this loop now.

    Asking asyncio for the running loop is a system call in Python 3.11, so only a loop that does not tell its thread,
    such as uvloop's, is looked for so.

    Args:
        loop: the loop.
        thread: the id of the calling thread.
    """
    known = getattr(loop, "_thread_id", None)
    return known == thread if known is not None else asyncio._get_running_loop() is loop


def call_on(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: Any) -> None:
    """Call a function on a loop's thread: now if this is that, else soon; not at all if the loop is closed.

    Args:
        loop: the loop.
        call: the function.
        args: for it.
    """
    if asyncio._get_running_loop() is loop:
        call(*args)
    else:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(call, *args)
