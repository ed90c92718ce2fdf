"""Record the effects of one actor as a list: messages, replies, children, timers, watches, failures.

    effects_of(Account, Deposit(5))  ->  [TimerSet(...), Told("/bank/log", ...), Replied(5)]

The actor under test runs as an instance of a generated subclass that records its method calls. An instrument
records its messages, and the event stream its failures. The effects of ``on_start`` are in the list as well.
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
    """Base class of all effects."""


@dataclass(frozen=True, slots=True)
class Told(Effect):
    """The actor told another actor a message."""

    path: str
    message: Any
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Asked(Effect):
    """The actor asked another actor, or forwarded an ask to it."""

    path: str
    message: Any


@dataclass(frozen=True, slots=True)
class Replied(Effect):
    """The handler returned the reply to an ask. Replies taken over and settled later are not recorded."""

    value: Any


@dataclass(frozen=True, slots=True)
class Spawned(Effect):
    """The actor started a child."""

    path: str
    actor_class: type[Any]


@dataclass(frozen=True, slots=True)
class TimerSet(Effect):
    """The actor set a timer; ``delay`` and ``every`` are in seconds."""

    key: Any
    delay: float
    message: Any
    every: float | None = None


@dataclass(frozen=True, slots=True)
class TimerCancelled(Effect):
    """The actor cancelled a timer, which may not have been set."""

    key: Any


@dataclass(frozen=True, slots=True)
class Watched(Effect):
    """The actor began to watch another actor."""

    path: str


@dataclass(frozen=True, slots=True)
class Unwatched(Effect):
    """The actor stopped watching another actor."""

    path: str


@dataclass(frozen=True, slots=True)
class Called(Effect):
    """The actor called another of its own methods: ``take_reply``, ``stash``, ``start_task`` and so on."""

    what: str


@dataclass(frozen=True, slots=True)
class Failed(Effect):
    """The actor failed in ``where`` (a hook, ``on_receive``, ``task``); supervision decided ``directive``."""

    where: str
    error: BaseException
    directive: str


@dataclass(frozen=True, slots=True)
class Restarting(Effect):
    """The actor will be restarted in ``delay`` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Stopped(Effect):
    """The actor stopped for good; ``error`` is the failure that ended it, None for a stop."""

    error: BaseException | None


class EffectsKit(Instrument):
    """Spawn one actor in a simulation and record its effects.

    Args:
        sim: the simulation, for example the ``sim`` of a scenario.
        actor_class: class of the actor under test.
        args: arguments for its constructor.
        name: name of the actor; its path is ``/name``.
        options: further options of ``system.spawn``.
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
        sim.system.events.subscribe(self._on_event, Event)
        subject = _recording(actor_class, self.log)
        self.ref: ActorRef[Any] = sim.system.spawn(subject, *args, name=name, **options)

    async def settled(self) -> list[Effect]:
        """Wait until nothing is left to do now; return the effects since the last call."""
        await self._sim.settle()
        taken, self._taken = self._taken, len(self.log)
        return self.log[taken:]

    async def tell(self, message: Any, *, urgent: bool = False) -> list[Effect]:
        """Tell the actor a message and return its effects.

        Args:
            message: the message.
            urgent: use the priority lane.
        """
        self.ref.tell(message, urgent=urgent)
        return await self.settled()

    async def ask(self, message: Any) -> list[Effect]:
        """Ask the actor and return its effects, including the reply or failure if it came at once."""
        self.ref.ask(message, block=False)
        return await self.settled()

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """See :class:`actors.Instrument`."""
        message, reply, _, sender, *_ = envelope
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

    def _on_event(self, event: Any) -> None:
        if getattr(event, "path", None) != self._path:
            return
        if isinstance(event, ActorFailed):
            self.log.append(Failed(event.where, event.error, event.directive))
        elif isinstance(event, ActorRestarting):
            self.log.append(Restarting(event.delay))
        elif isinstance(event, ActorStopped):
            self.log.append(Stopped(event.error))


class _Unannounced:
    """Keeps a class from being announced to its bases, which may register, check or change their subclasses."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Not the bases': the subclass is this module's, and inherits what they have made of the actor's class."""


def _recording(actor_class: type[Actor], log: list[Effect]) -> type[Actor]:
    base: Any = actor_class

    class Recording(_Unannounced, base):  # type: ignore[misc]
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

    for name in (
        "take_reply",
        "stash",
        "unstash_all",
        "become",
        "unbecome",
        "set_receive_timeout",
        "start_task",
        "pipe_to_self",
        "stop",
        "stop_if_idle",
    ):
        setattr(Recording, name, _recorded(getattr(base, name), name, log))
    Recording.__name__, Recording.__qualname__ = base.__name__, base.__qualname__
    return Recording


def _recorded(method: Callable[..., Any], name: str, log: list[Effect]) -> Callable[..., Any]:
    def record(self: Actor, *args: Any, **options: Any) -> Any:
        log.append(Called(name))
        return method(self, *args, **options)

    return record


def effects_of(
    actor_class: type[Actor],
    *messages: Any,
    args: tuple[Any, ...] = (),
    ask: bool = False,
    seconds: float = 0.0,
    **options: Any,
) -> list[Effect]:
    """Start an actor in a simulation of its own, send it messages, and return its effects.

    The stop at the end of the simulation is not in the list.

    Args:
        actor_class: class of the actor under test; its path is ``/subject``.
        messages: told one after the other, each when nothing is left to do from the one before.
        args: arguments for the actor's constructor.
        ask: ask the messages instead of telling them.
        seconds: virtual seconds to continue after the last message, so that timers fire.
        options: further options of :class:`~actors.testing.Sim`.
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
