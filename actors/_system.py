"""Systems: isolated trees of actors, each bound to one event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from actors._checks import capacity_of, one_of, seconds, timeout_of
from actors._core import deadlock, forking, inspection, lifecycle, termination
from actors._core.lifecycle import STOPPED
from actors._core.log_safely import log_safely
from actors._core.loops import tell_when_closed
from actors._core.mailbox import DEFAULT_CAPACITY
from actors._core.pykka_names import register, unregister
from actors._core.turns import TURN_TIME, Turns
from actors._core.unheard import Unheard
from actors._errors import ActorError, SpawnRefused
from actors._events import EventStream
from actors._overflow import FAIL, Overflow
from actors._policy import STOP_ON_FAILURE, RestartHistory, Supervision
from actors._routing import ROUND_ROBIN, Broadcast, Routing
from actors._system_view import StopReport, SystemView

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._broadcast import BroadcastRouter
    from actors._core.cell import Cell
    from actors._core.dispatcher import Dispatcher
    from actors._errors import Escalated
    from actors._ref import ActorRef
    from actors._router import Router

logger = logging.getLogger("actors")

A = TypeVar("A", bound="Actor")
P = ParamSpec("P")

RESTART = Supervision()


class ActorSystem(SystemView):
    """A tree of actors on the event loop that is running when the system is made.

    ``async with ActorSystem() as system: ref = system.spawn(MyActor)`` stops all actors at the end,
    youngest first. ``failure`` is done when a top-level actor has given up; the first spawn after a stop makes a new one.

    Args:
        name: names the system in logs and errors.
        loop: the loop to run on; None takes the running one.
        rng: random numbers (jitter of restarts), for tests to seed.
        clock: nanoseconds, for statistics.
        mailbox_capacity: the bound, in messages, of mailboxes whose actor class sets none.
        overflow: the policy of full mailboxes whose actor class sets none.
        stop_grace: seconds that a coroutine handler may go on when its actor stops, before it is
            cancelled; then as many seconds again to end. For actors whose class sets none, as ``hook_timeout``.
        stop_timeout: seconds that the stop at the end of ``async with`` may take; None sets no limit.
        hook_timeout: seconds that ``on_stop``, ``on_failure`` or ``before_restart`` may take; one that takes
            longer is reported and cancelled, and after ``stop_grace`` more left alone. A restart of several
            actors waits as long for each ``on_start``.
        slow_handler: seconds after which a plain handler is reported (:class:`SlowHandler`); ``math.inf`` reports none.
        turn_time: seconds that the actors together may keep the loop before its other callbacks run, and that
            one actor may go on before the others do, unless its class says otherwise; above 0, at most 60. A
            message that is being handled is never interrupted: the loop is kept longer by one at most.
        dispatcher: decides which actor goes next; None leaves that to the loop.
        registered: whether pykka's ``ActorRegistry`` knows the actors.
    """

    def __init__(
        self,
        name: str = "system",
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        mailbox_capacity: int = DEFAULT_CAPACITY,
        overflow: Overflow = FAIL,
        stop_grace: float = 5.0,
        stop_timeout: float | None = 60.0,
        hook_timeout: float = 60.0,
        slow_handler: float = 0.1,
        turn_time: float = TURN_TIME,
        dispatcher: Dispatcher | None = None,
        registered: bool = False,
    ) -> None:
        if not isinstance(overflow, Overflow):
            raise TypeError(f"overflow is a policy such as FAIL or DROP_OLD, not {overflow!r}")
        capacity_of(mailbox_capacity)
        for what, value in (
            ("stop_grace", stop_grace),
            ("stop_timeout", stop_timeout),
            ("hook_timeout", hook_timeout),
            ("slow_handler", slow_handler),
        ):
            if what != "stop_timeout" or value is not None:
                seconds(what, value)
        super().__init__(clock)
        self.name = name
        self.loop = loop or asyncio.get_running_loop()
        tell_when_closed(self.loop, self)
        forking.systems.add(self)
        self.thread = threading.get_ident() if asyncio._get_running_loop() is self.loop else 0
        """The thread that ran the loop when the system was made, where messages are put without a lock; 0 if
        it is not known. It is a guess: the loop may go on in another thread."""
        if not self.thread:
            self.loop.call_soon_threadsafe(self._arrive)
        self.rng = rng or random.Random()
        self.mailbox_capacity = mailbox_capacity
        self.overflow = overflow
        self.stop_grace = stop_grace
        self.stop_timeout = stop_timeout
        self.hook_timeout = hook_timeout
        self.slow_ns = int(min(slow_handler * 1e9, sys.maxsize))
        self.unheard = Unheard(self.loop)
        """Asks that were refused without anybody noticing."""
        self.turns = Turns(self.loop, clock, turn_time)
        self.dispatcher = dispatcher
        self.registered = registered
        self.events = EventStream()
        self.failure: asyncio.Future[Escalated] = self.loop.create_future()
        self._past: asyncio.Future[Escalated] | None = None  # ``failure``, if a stop has ended its life
        self._names = itertools.count(1)
        self.children_history: RestartHistory | None = None
        """The failures of top-level actors that are restarted together."""
        self._add_lock = threading.RLock()  # a signal handler may spawn, too
        self._abandoned: dict[asyncio.Future[Any], str] = {}
        """A line for each thread and each last hook that was left alone and goes on; the key is done when it ends."""
        self._stops = 0
        """How many calls of :meth:`stop` are under way."""
        self.dead_letters = 0

    def _arrive(self) -> None:
        self.thread = threading.get_ident()

    async def __aenter__(self) -> ActorSystem:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        report = await self.stop(self.stop_timeout)
        if not report.clean:
            log_safely(logger.error, "%s: did not stop: %s", self.name, "; ".join(report.left))

    # -- starting -------------------------------------------------------------------------------

    @overload
    def spawn(self, actor_class: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> ActorRef[A]: ...
    @overload
    def spawn(
        self,
        actor_class: type[A],
        *args: Any,
        name: str | None,
        supervision: Supervision = ...,
        **kwargs: Any,
    ) -> ActorRef[A]: ...
    @overload
    def spawn(
        self, actor_class: type[A], *args: Any, supervision: Supervision, **kwargs: Any
    ) -> ActorRef[A]: ...
    def spawn(  # type: ignore[misc]  # a constructor must not have arguments of these names
        self,
        actor_class: Any,
        *args: Any,
        name: str | None = None,
        supervision: Supervision = STOP_ON_FAILURE,
        **kwargs: Any,
    ) -> ActorRef[Any]:
        """Start an actor at the top of the tree, from any thread; see :meth:`actors.Actor.spawn`.

        Args:
            actor_class: the actor's class.
            args: for its constructor, at the start and at each restart.
            name: its name at the top of the tree; None generates one from the class.
            supervision: how to treat its failures. By default the first one stops it, as in pykka.
            kwargs: for its constructor, like ``args``.

        Raises:
            ValueError: a living top-level actor has that name, or it contains a slash.
            TypeError: ``actor_class`` is no class of actors.
            RuntimeError: the event loop is closed.
            SpawnRefused: a :meth:`stop` is under way.
        """
        return self.add(self._cell(actor_class, args, kwargs, name, supervision), self.top)

    @overload
    def spawn_pool(
        self, actor_class: type[A], *args: Any, routing: Broadcast, size: int = 4, **kwargs: Any
    ) -> BroadcastRouter[A]: ...
    @overload
    def spawn_pool(
        self,
        actor_class: type[A],
        *args: Any,
        size: int = 4,
        routing: Routing = ...,
        name: str | None = None,
        supervision: Supervision = ...,
        **kwargs: Any,
    ) -> Router[A]: ...
    def spawn_pool(
        self,
        actor_class: type[A],
        *args: Any,
        size: int = 4,
        routing: Routing = ROUND_ROBIN,
        name: str | None = None,
        supervision: Supervision = RESTART,
        **kwargs: Any,
    ) -> Router[A]:
        """Start a :class:`Pool` at the top of the tree, from any thread; return its router.

        When the pool gives up, ``failure`` is done. See :meth:`actors.Actor.spawn_pool`.

        Args:
            actor_class: the workers' class.
            args: for its constructor.
            size: how many workers, 1 or more.
            routing: the policy that chooses a message's worker.
            name: the pool's name at the top of the tree; None generates one.
            supervision: how the pool supervises the workers.
            kwargs: for the workers' constructor.
        """
        from actors._pool import (
            start_pool,  # an actor itself: at the top of the module the import would be circular
        )

        return start_pool(
            self.spawn,
            actor_class,
            args,
            kwargs,
            size=size,
            routing=routing,
            name=name,
            workers=supervision,
        )

    def start(self, actor_class: type[A], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ActorRef[A]:
        """Start an actor at the top of the tree as :meth:`pykka.Actor.start` does.

        Args:
            actor_class: the actor's class.
            args: for its constructor.
            kwargs: for its constructor.
        """
        cell = self._cell(actor_class, args, kwargs, None, STOP_ON_FAILURE)
        cell.pykka_like = True
        return self.add(cell, self.top)

    def detached(self, actor_class: type[Actor]) -> Cell:
        """Make a cell for an actor that is constructed by hand and never started."""
        cell = self._cell(actor_class, (), {}, None, STOP_ON_FAILURE)
        cell.pykka_like = True
        return cell

    def _cell(
        self,
        actor_class: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        supervision: Supervision,
    ) -> Cell:
        lifecycle.check_class(actor_class)
        one_of("supervision", supervision, Supervision)
        if name is None:
            name = lifecycle.generated_name(actor_class, self._names, self.top)
        return actor_class._cell_class(self, None, actor_class, args, kwargs, name, supervision)

    def add(self, cell: Cell, siblings: dict[str, Cell]) -> ActorRef[Any]:
        """Construct a new cell's actor, enter it into the tree and start it.

        Args:
            cell: the new actor's.
            siblings: the living children of its parent, or the top of the tree.

        Raises:
            ValueError: the name is taken, empty or has a slash.
            RuntimeError: the event loop is closed.
            SpawnRefused: it is for the top, and the system's stop is under way.
        """
        name = cell.name
        if not isinstance(name, str):
            raise TypeError(f"an actor's name is a str, not {name!r}")
        if not name or "/" in name:
            raise ValueError(f"{name!r} is no name for an actor: it is empty or has a slash")
        if self.loop.is_closed():  # before the constructor runs
            raise self._closed()
        with self._add_lock:
            if self._stops and cell.parent is None:
                raise SpawnRefused(f"the system {self.name!r} is stopping: it takes no more actors")
            if name in siblings:
                where = cell.parent.path if cell.parent is not None else self.name
                raise ValueError(f"{where} has an actor named {name!r} already")
            siblings[name] = cell
            if cell.parent is None and self.failure is self._past:
                self.failure = self.loop.create_future()
        try:
            lifecycle.create(cell)
        except BaseException:
            termination.miscarry(cell)
            raise
        if self.registered:
            register(cell.ref)
            cell.registered = True
        if asyncio._get_running_loop() is self.loop:
            lifecycle.begin(cell)
            return cell.ref
        # Its own thread begins here: the program may come to its end before the loop begins with the actor.
        cell.prepare()  # what it lacks, the start finds out
        if not self.on_loop(lifecycle.begin, cell):
            self.loop_closed()
            raise self._closed()
        if cell.registered and cell.stopped_flag.is_set():  # by the system's stop, beside the constructor
            unregister(cell.ref)
        if cell.state == STOPPED:  # before its thread was there
            cell.retire()
        return cell.ref

    def _closed(self) -> RuntimeError:
        return RuntimeError(f"the event loop of the system {self.name!r} is closed")

    # -- stopping -------------------------------------------------------------------------------

    async def stop(self, timeout: float | None = None) -> StopReport:
        """Stop all actors, youngest first. Until it returns, spawns at the top are refused (:class:`SpawnRefused`).

        Args:
            timeout: seconds after which to return with the actors that have not stopped; None sets no
                limit.

        Raises:
            RuntimeError: it is awaited on another event loop than the system's.
            AskCycle: an actor of the system awaits it in a handler or in background work, which end only by the stop.
        """
        timeout_of("timeout", timeout)
        self.check_loop()  # its actors have perished with it
        if asyncio._get_running_loop() is not self.loop and not self.loop.is_closed():
            raise RuntimeError(
                f"the system {self.name!r} runs on another event loop: there, await system.stop(); from here, "
                "asyncio.run_coroutine_threadsafe(system.stop(), system.loop)"
            )
        deadlock.check_stop(self)
        with self._add_lock:
            self._stops += 1
        if self.top:
            self.turns.look_again()
        try:
            async with asyncio.timeout(timeout):
                await termination.stop_all(self.top)
        except TimeoutError:
            return StopReport(
                (*self._abandoned.values(), *(inspection.describe(cell) for cell in self.walk()))
            )
        finally:
            with self._add_lock:
                self._stops -= 1
            self.unheard.flush()
        self._past = self.failure if self.failure.done() else None
        return StopReport(tuple(self._abandoned.values()))

    def abandon(self, cell: Cell, ending: asyncio.Future[Any]) -> None:
        """Name an actor in the reports of stops as long as its thread, or a last hook of it, goes on.

        Args:
            cell: the actor's.
            ending: done when the thread has come back, or the hook has ended.
        """
        self._abandoned[ending] = inspection.describe(cell)
        ending.add_done_callback(self._abandoned.pop)

    def stop_all_soon(self) -> None:
        """Ask all top-level actors to stop, youngest first; do not wait for that."""
        for cell in reversed(tuple(self.top.values())):
            cell.ref.stop(block=False)

    def escalated(self, error: Escalated) -> None:
        """Settle ``failure``: a top-level actor has given up."""
        if not self.failure.done():
            self.failure.set_result(error)

    # -- for the cells --------------------------------------------------------------------------

    def on_loop(self, call: Callable[..., object], *args: Any) -> bool:
        """Call a function on the loop's thread: now if this is that thread, else soon.

        Args:
            call: the function.
            args: for it.

        Returns:
            False if the loop is closed.
        """
        if asyncio._get_running_loop() is self.loop:
            call(*args)
            return True
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return False
        return True

    def check_loop(self) -> None:
        """Settle all futures if the loop is closed, so that nobody blocks for ever."""
        if self.loop.is_closed():
            self.loop_closed()

    def loop_closed(self) -> None:
        """Declare the actors dead: the loop was closed before they were stopped. In any thread."""
        error = ActorError(f"the event loop of the system {self.name!r} was closed under its actors")
        termination.perish([cell for cell in self.walk() if cell.state != STOPPED], error)
        self.top.clear()
