"""Systems: isolated trees of actors, each bound to one event loop."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from actors._cell import Cell
from actors._mailbox import DEFAULT_CAPACITY
from actors._policy import STOP_ON_FAILURE, Supervision

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._errors import Escalated
    from actors._ref import ActorRef

A = TypeVar("A", bound="Actor")


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a stop went: ``left`` names each actor that did not stop in time and what it was at."""

    left: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether everything stopped."""
        return not self.left


class ActorSystem:
    """A tree of actors on the event loop that is running when the system is made.

    ``async with ActorSystem() as system: ref = system.spawn(MyActor)`` stops all at the end,
    youngest first. ``failure`` is done when a top-level actor gave up.
    """

    def __init__(
        self, name: str = "system", *, loop: asyncio.AbstractEventLoop | None = None,
        rng: random.Random | None = None, mailbox_capacity: int = DEFAULT_CAPACITY,
        stop_grace: float = 5.0, registered: bool = False,
    ) -> None:
        self.name = name
        self.loop = loop or asyncio.get_running_loop()
        self.rng = rng or random.Random()
        self.mailbox_capacity = mailbox_capacity
        self.stop_grace = stop_grace
        """Seconds that a coroutine handler may go on when its actor stops, before it is cancelled."""
        self.registered = registered
        self.failure: asyncio.Future[Escalated] = self.loop.create_future()
        self._top: dict[str, Cell] = {}
        self._names = itertools.count(1)

    async def __aenter__(self) -> ActorSystem:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def spawn(
        self, actor_class: type[A], *args: Any, name: str | None = None,
        supervision: Supervision = STOP_ON_FAILURE, **kwargs: Any,
    ) -> ActorRef[A]:
        """Start an actor at the top of the tree; see :meth:`actors.Actor.spawn`.

        Without a ``supervision`` it dies of its first failure, as in pykka.
        """
        if name is None:
            name = f"{actor_class.__name__}-{next(self._names)}"
        if name in self._top:
            raise ValueError(f"{self.name} has an actor named {name!r} already")
        cell = Cell(self, None, actor_class, args, kwargs, name, supervision)
        cell.create()
        self._top[name] = cell
        if asyncio._get_running_loop() is self.loop:
            cell.begin()
        else:
            self.loop.call_soon_threadsafe(cell.begin)
        return cell.ref

    async def stop(self, timeout: float | None = None) -> StopReport:
        """Stop all actors, youngest first; after ``timeout`` seconds report what is left."""
        try:
            async with asyncio.timeout(timeout):
                for cell in reversed(tuple(self._top.values())):
                    await cell.stop_now()
        except TimeoutError:
            return StopReport(tuple(cell.describe() for cell in self._walk()))
        return StopReport()

    def paths(self) -> list[str]:
        """The paths of all living actors, parents before children."""
        return [cell.path for cell in self._walk()]

    def _walk(self) -> list[Cell]:
        found: list[Cell] = []
        todo = list(reversed(self._top.values()))
        while todo:
            cell = todo.pop()
            found.append(cell)
            todo.extend(reversed(cell.children.values()))
        return found

    def _escalated(self, error: Escalated) -> None:
        if not self.failure.done():
            self.failure.set_result(error)


_systems: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ActorSystem] = (
    weakref.WeakKeyDictionary()
)
_background: asyncio.AbstractEventLoop | None = None
_lock = threading.Lock()


def default_system() -> ActorSystem:
    """The system of the running loop, or of the one that a daemon thread runs for all others."""
    loop = asyncio._get_running_loop() or _background_loop()
    with _lock:
        system = _systems.get(loop)
        if system is None:
            system = _systems[loop] = ActorSystem("default", loop=loop, registered=True)
        return system


def _background_loop() -> asyncio.AbstractEventLoop:
    global _background
    with _lock:
        if _background is None:
            _background = asyncio.new_event_loop()
            threading.Thread(target=_background.run_forever, name="actors", daemon=True).start()
        return _background
