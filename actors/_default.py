"""The default systems, in which ``Actor.start()`` starts an actor without being told where, as in pykka.

Each event loop has one. Threads without a loop share the one of a background thread.
"""

from __future__ import annotations

import asyncio
import os
import threading

from actors._core.context import current
from actors._core.forking import forget_actors
from actors._system import ActorSystem

_systems: dict[asyncio.AbstractEventLoop, ActorSystem] = {}
"""Default systems by loop; those of closed loops are removed by the next :func:`default_system`."""
_background: asyncio.AbstractEventLoop | None = None
_lock = threading.RLock()  # a signal handler may start an actor while its thread starts one


def default_system() -> ActorSystem:
    """The system of the running loop; without one, a ThreadedActor's own, or that of the loop in a daemon thread."""
    loop = asyncio._get_running_loop()
    if loop is None:
        cell = current.get()
        if cell is not None and cell.threaded and cell.system.registered:
            return cell.system
        loop = _background_loop()
    with _lock:
        for old in [each for each in _systems if each.is_closed()]:
            _systems.pop(old).loop_closed()
        system = _systems.get(loop)
        if system is None:
            system = _systems.setdefault(loop, ActorSystem("default", loop=loop, registered=True))
        return system


def _after_fork() -> None:
    """In the child of a fork: begin anew. The parent's threads, and so its actors, are not there.

    Locks that another thread held at the fork stay locked in the child, so they are replaced.
    """
    global _background, _lock
    _lock = threading.RLock()
    _background = None
    systems = tuple(_systems.values())
    _systems.clear()
    for system in systems:
        system.registered = False  # the thread that has forked may be one of its actors'
    forget_actors(system.walk() for system in systems)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _background_loop() -> asyncio.AbstractEventLoop:
    global _background
    with _lock:
        if _background is None:
            _background = asyncio.new_event_loop()
            threading.Thread(target=_background.run_forever, name="actors", daemon=True).start()
        return _background
