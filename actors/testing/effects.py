"""What one actor does, as a list: told, asked, spawned, stopped, timers, watches, failures, replies.

    effects_of(Account, Deposit(5))  ->  [TimerSet(...), Told("/bank/log", ...), Replied(5)]

The actor under test gets a subclass of its class that notes what it calls; messages and failures
come from an instrument and the events. So its ``on_start`` is in the list too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors._actor import Actor
from actors._core.instruments import Instrument
from actors._events import ActorFailed, ActorRestarting, ActorStopped, Event
from actors.testing.simulation import Sim

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._ref import ActorRef


@dataclass(frozen=True, slots=True)
class Effect:
    """Base of the effects."""


@dataclass(frozen=True, slots=True)
class Told(Effect):
    """Sent a message without waiting for a reply."""

    path: str
    message: Any
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Asked(Effect):
    """Sent a message with a reply to come (or forwarded somebody else's ask)."""

    path: str
    message: Any


@dataclass(frozen=True, slots=True)
class Replied(Effect):
    """The handler's answer to an ask; what comes later by a reply that was taken is not noted."""

    value: Any


@dataclass(frozen=True, slots=True)
class Spawned(Effect):
    """Started a child."""

    path: str
    actor_class: type[Any]


@dataclass(frozen=True, slots=True)
class TimerSet(Effect):
    """Set a timer; ``delay`` and ``every`` in seconds."""

    key: Any
    delay: float
    message: Any
    every: float | None = None


@dataclass(frozen=True, slots=True)
class TimerCancelled(Effect):
    """Cancelled a timer, whether or not it was set."""

    key: Any


@dataclass(frozen=True, slots=True)
class Watched(Effect):
    """Began to watch an actor."""

    path: str


@dataclass(frozen=True, slots=True)
class Unwatched(Effect):
    """Ended to watch an actor."""

    path: str


@dataclass(frozen=True, slots=True)
class Called(Effect):
    """Something else that an actor can do, by name: take_reply, stash, unstash_all, start_task, ..."""

    what: str


@dataclass(frozen=True, slots=True)
class Failed(Effect):
    """Failed in ``where`` (a hook, ``on_receive``, ``task``); supervision decided ``directive``."""

    where: str
    error: BaseException
    directive: str


@dataclass(frozen=True, slots=True)
class Restarting(Effect):
    """Will be back in so many seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Stopped(Effect):
    """Is gone; ``error`` is what ended it."""

    error: BaseException | None


class EffectsKit(Instrument):
    """One actor in a simulation (the ``sim`` of a scenario), and what it did.

    Args:
        sim: the simulation.
        actor_class: the actor under test.
        args, name, options: as for ``system.spawn``.
    """

    def __init__(
        self, sim: Sim, actor_class: type[Actor], *args: Any, name: str = "subject", **options: Any
    ) -> None:
        self.log: list[Effect] = []
        """All effects so far."""
        self._sim = sim
        self._path = f"/{name}"
        self._taken = 0
        sim.system.instrument(self)
        sim.system.events.subscribe(self._happened, Event)
        subject = _recording(actor_class, self.log)
        self.ref: ActorRef[Any] = sim.system.spawn(subject, *args, name=name, **options)

    async def settled(self) -> list[Effect]:
        """Wait until nothing is left to do now; the effects since the last call."""
        await self._sim.settle()
        taken, self._taken = self._taken, len(self.log)
        return self.log[taken:]

    async def tell(self, message: Any, *, urgent: bool = False) -> list[Effect]:
        """Tell the actor a message; what it did then."""
        self.ref.tell(message, urgent=urgent)
        return await self.settled()

    async def ask(self, message: Any) -> list[Effect]:
        """Ask it; what it did, the reply (or the failure) included. A late reply is not waited for."""
        self.ref.ask(message, block=False)
        return await self.settled()

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """See :class:`actors.Instrument`."""
        message, reply, _, sender, _ = envelope
        if sender is not None and sender.path == self._path:
            sent = Told(cell.path, message, lane == "priority") if reply is None else None
            self.log.append(sent or Asked(cell.path, message))
        return True

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """See :class:`actors.Instrument`."""
        reply = envelope[1]
        if cell.path != self._path or reply is None:
            return
        if error is not None:
            self.log.append(Failed("on_receive", error, "reply"))
        elif reply.done() and reply.exception() is None:
            self.log.append(Replied(reply.value()))

    def _happened(self, event: Any) -> None:
        if getattr(event, "path", None) != self._path:
            return
        if isinstance(event, ActorFailed):
            self.log.append(Failed(event.where, event.error, event.directive))
        elif isinstance(event, ActorRestarting):
            self.log.append(Restarting(event.delay))
        elif isinstance(event, ActorStopped):
            self.log.append(Stopped(event.error))


def _recording(actor_class: type[Actor], log: list[Effect]) -> type[Actor]:
    base: Any = actor_class

    class Recording(base):  # type: ignore[misc]
        def spawn(self, actor_class: type[Actor], *args: Any, **options: Any) -> Any:
            ref = super().spawn(actor_class, *args, **options)
            log.append(Spawned(ref.path, actor_class))
            return ref

        def set_timer(self, key: Any, delay: float, message: Any, *, every: float | None = None) -> None:
            super().set_timer(key, delay, message, every=every)
            log.append(TimerSet(key, delay, message, every))

        def cancel_timer(self, key: Any) -> None:
            super().cancel_timer(key)
            log.append(TimerCancelled(key))

        def watch(self, ref: ActorRef[Any]) -> None:
            super().watch(ref)
            log.append(Watched(ref.path))

        def unwatch(self, ref: ActorRef[Any]) -> None:
            super().unwatch(ref)
            log.append(Unwatched(ref.path))

    for what in (
        "take_reply",
        "stash",
        "unstash_all",
        "become",
        "unbecome",
        "set_receive_timeout",
        "start_task",
        "stop",
    ):
        setattr(Recording, what, _noting(getattr(base, what), what, log))
    Recording.__name__, Recording.__qualname__ = base.__name__, base.__qualname__
    return Recording


def _noting(method: Callable[..., Any], what: str, log: list[Effect]) -> Callable[..., Any]:
    def noted(self: Actor, *args: Any, **options: Any) -> Any:
        log.append(Called(what))
        return method(self, *args, **options)

    return noted


def effects_of(
    actor_class: type[Actor],
    *messages: Any,
    args: tuple[Any, ...] = (),
    ask: bool = False,
    seconds: float = 0.0,
    **options: Any,
) -> list[Effect]:
    """Start an actor in a simulation of its own, send it messages, and list what it did.

    Args:
        actor_class: the actor under test; its path is ``/subject``.
        messages: told one after the other, each when nothing is left to do from the one before.
        args: for its constructor.
        ask: ask instead of telling.
        seconds: (virtual) to go on after the last message, for its timers.
        options: for :class:`~actors.testing.Sim`.

    Its stop at the end is not in the list.
    """
    sim = Sim(**options)

    async def scenario() -> list[Effect]:
        kit = EffectsKit(sim, actor_class, *args)
        await kit.settled()
        for message in messages:
            await (kit.ask if ask else kit.tell)(message)
        if seconds:
            await asyncio.sleep(seconds)
        return list(kit.log)

    try:
        found = sim.run(scenario())
        sim.finish()
        return found
    finally:
        sim.close()
