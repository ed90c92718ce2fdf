"""The lives of an actor: birth, failure, restart, stop.

A :class:`Life` is what stays when the instance is replaced: the path, the ref, the mailbox, the
children. How messages are handled is the business of :class:`actors._cell.Cell`.

States: new -> starting -> running -> (restarting -> starting)* -> stopping -> stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import threading
import uuid
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import pykka
from pykka import ActorDeadError

from actors._context import building, current
from actors._errors import ActorError, Escalated
from actors._events import ActorFailed, ActorRestarting, ActorStarted, ActorStopped
from actors._future import Future
from actors._mailbox import Mailbox
from actors._messages import ChildStopped, Terminated, Unwatch, Watch
from actors._policy import STOP_ON_FAILURE, Directive, RestartHistory, Strategy, Supervision
from actors._pykka import ActorStop
from actors._ref import ActorRef
from actors._timers import TimerFired, Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._actor import Actor
    from actors._cell import Cell
    from actors._envelope import Envelope
    from actors._system import ActorSystem

logger = logging.getLogger("actors")
pykka_logger = logging.getLogger("pykka")

NEW, STARTING, RUNNING, RESTARTING, STOPPING, STOPPED = (
    "new", "starting", "running", "restarting", "stopping", "stopped",
)


class StopFlag:
    """What pykka keeps as a ``threading.Event``: whether the actor has stopped."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Whether the actor has stopped."""
        return self._set

    def set(self) -> None:
        """Mark the actor as stopped."""
        self._set = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait in a thread until the actor has stopped; whether it has."""
        if not self._set and self._event is None:
            self._event = threading.Event()  # set() sees it, or we see _set below
        return self._set or self._event is None or self._event.wait(timeout)


class Life:
    """One place in the tree, through all lives of its actor. Its state belongs to the loop."""

    threaded = False

    __slots__ = (
        "_args", "_children_history", "_gone", "_history", "_kwargs", "_lifecycle", "_names", "_owed", "_stop_replies",
        "_tasks", "_timers", "_urn", "_waiting_start", "_watchers", "actor", "actor_class",
        "children", "clock", "context", "error", "failed", "failed_message", "hooks", "loop",
        "mailbox", "name", "parent", "path", "pykka_like", "ref", "registered", "restarts",
        "stashed", "state", "stopped_flag", "supervision", "system", "task", "trace", "waiting_on",
        "watching",
    )

    def __init__(
        self, system: ActorSystem, parent: Cell | None, actor_class: type[Actor],
        args: tuple[Any, ...], kwargs: dict[str, Any], name: str, supervision: Supervision,
    ) -> None:
        self.system: ActorSystem = system
        self.parent = parent
        self.actor_class = actor_class
        self.name = name
        self.path: str = f"{parent.path if parent else ''}/{name}"
        self.supervision = supervision
        self.clock = system.clock
        self.hooks = system.hooks_in_use
        self.loop = system.loop
        self.context = contextvars.Context()
        self.context.run(current.set, self)  # type: ignore[arg-type]
        self.state = NEW
        self.pykka_like = self.registered = False
        self.actor: Actor | None = None
        self.error: BaseException | None = None
        self.failed_message: Any = None
        self.failed = self.restarts = 0
        self.task: asyncio.Task[None] | None = None
        """The task that runs a hook or a coroutine handler."""
        self.waiting_on: Future[Any] | None = None
        self.trace = None
        self.stopped_flag = StopFlag()
        self.mailbox = Mailbox(
            self, actor_class.mailbox_capacity or system.mailbox_capacity,  # type: ignore[arg-type]
            actor_class.overflow or system.overflow,
        )
        self.ref: ActorRef[Any] = ActorRef(self)  # type: ignore[arg-type]
        self._args, self._kwargs = args, kwargs
        # Made when needed: most actors have none of these.
        self.children: dict[str, Cell] = _NO_CHILDREN
        self.stashed: list[Envelope] | None = None
        self.watching: set[ActorRef[Any]] | None = None
        self._urn: str | None = None
        self._timers: Timers | None = None
        self._history: RestartHistory | None = None
        self._children_history: RestartHistory | None = None
        self._lifecycle: asyncio.Task[None] | None = None
        self._owed: set[Future[Any]] | None = None
        self._tasks: set[asyncio.Task[Any]] | None = None
        self._names: itertools.count[int] | None = None
        self._watchers: set[Cell] | None = None
        self._waiting_start: list[Future[Any]] | None = None
        self._gone: list[Future[None]] | None = None
        self._stop_replies: list[Future[Any]] | None = None

    # -- identity -------------------------------------------------------------------------------

    @property
    def urn(self) -> str:
        """A uuid4 as a URN, made when somebody asks."""
        if self._urn is None:
            self._urn = uuid.uuid4().urn
        return self._urn

    @property
    def label(self) -> str:
        """How the actor prints: pykka's way if it was started pykka's way, else with its path."""
        return f"{self.actor_class.__name__} ({self.urn if self.pykka_like else self.path})"

    @property
    def timers(self) -> Timers:
        """The timers of this life."""
        if self._timers is None:
            self._timers = Timers(self.loop, self._deliver_timer)
        return self._timers

    def _deliver_timer(self, fired: TimerFired) -> None:
        self.send_system(fired)

    def send_system(self, message: Any) -> bool:
        """Put one of the runtime's messages into the system lane; False if the actor is gone."""
        return self.mailbox.push_system((message, None, self.clock(), None, None))

    # -- birth ----------------------------------------------------------------------------------

    def create(self) -> None:
        """Construct the actor; the constructor's exception goes to the caller."""
        if current.get() is self:  # a restart runs in the actor's context already
            self._construct()
        else:
            self.context.run(self._construct)

    def _construct(self) -> None:
        token = building.set(self)  # type: ignore[arg-type]
        try:
            actor = self.actor_class(*self._args, **self._kwargs)
        finally:
            building.reset(token)
        if self.actor is not actor:
            raise ActorError(
                f"{self.actor_class.__name__}.__init__() did not call super().__init__()"
            )

    def begin(self) -> None:
        """Start this life: ``on_start``, then the mailbox. On the loop's thread."""
        if self.state not in (NEW, RESTARTING):
            return
        self.state = STARTING
        if self.actor_class.on_start is pykka.Actor.on_start:
            self._running()
        else:
            self.loop.call_soon(self._start, context=self.context)

    def _start(self) -> None:
        if self.state is STARTING:
            self.task = self.loop.create_task(self._on_start(), context=self.context)

    async def _on_start(self) -> None:
        task = self.task
        try:
            await self.call("on_start")
        except BaseException as error:
            if ended_from_outside(error):
                raise
            if self.task is task:
                self.task = None
                self.fail(error, "on_start")
        else:
            if self.task is task:
                self.task = None
                self._running()

    def _running(self) -> None:
        if self.state is not STARTING:
            return
        self.state = RUNNING
        waiting, self._waiting_start = self._waiting_start, None
        for future in waiting or ():
            future.try_set(self.ref)
        events = self.system.events
        if events.wants(ActorStarted):
            events.publish(ActorStarted(self.path, self.actor_class.__name__, self.restarts))
        self.resume()

    async def started(self) -> ActorRef[Any]:
        """Wait until the actor runs."""
        future: Future[Any] = Future()
        if not self.system.on_loop(self._tell_started, future):
            raise ActorDeadError(f"{self.ref} not found")
        await future
        return self.ref

    def _tell_started(self, future: Future[Any]) -> None:
        if self.state is RUNNING:
            future.try_set(self.ref)
        elif self.state in (STOPPING, STOPPED):
            future.try_fail(self.dead("stopped"))
        else:
            self._waiting_start = [*(self._waiting_start or ()), future]

    def spawn(
        self, actor_class: type[Actor], args: tuple[Any, ...], kwargs: dict[str, Any],
        name: str | None, supervision: Supervision,
    ) -> ActorRef[Any]:
        """Start a child; see :meth:`actors.Actor.spawn`."""
        if self.state in (STOPPING, STOPPED):
            raise ActorDeadError(f"{self.ref} is stopping: it has no more children")
        if self.children is _NO_CHILDREN:
            self.children = {}
            self._names = itertools.count(1)
        if name is None:
            assert self._names is not None
            name = f"{actor_class.__name__}-{next(self._names)}"
        return self.system.add(
            actor_class._cell_class(
                self.system, self, actor_class, args, kwargs, name, supervision  # type: ignore[arg-type]
            ), self.children,
        )

    def own_history(self) -> RestartHistory:
        """The failures of this actor."""
        if self._history is None:
            self._history = RestartHistory()
        return self._history

    def history_of_children(self) -> RestartHistory:
        """The failures of children that are restarted together."""
        if self._children_history is None:
            self._children_history = RestartHistory()
        return self._children_history

    # -- what the cell adds ---------------------------------------------------------------------

    def resume(self) -> None:
        """Handle messages (again)."""
        raise NotImplementedError

    async def call(self, hook: str, *args: Any) -> None:
        """Run one of the actor's hooks, plain or coroutine, where its code runs."""
        result = getattr(self.actor, hook)(*args)
        if type(result) is CoroutineType:
            await result

    def recent_headers(self) -> tuple[tuple[str, str | None, float], ...]:
        """The last messages, for a crash report."""
        raise NotImplementedError

    # -- failure --------------------------------------------------------------------------------

    def fail(self, error: BaseException, where: str, *, resumable: bool = False) -> None:
        """Something of this life failed: the supervisor's policy says what comes next."""
        if self.state not in (STARTING, RUNNING):
            self.hook_failed(where, error)
            return
        if not isinstance(error, Exception) and self.supervision is STOP_ON_FAILURE:
            self._exit(error)
            return
        directive = self._decide(error)
        if directive is Directive.RESUME:
            if resumable:
                self._report(error, where, directive, 0)
                self.failed_message = None
                return
            directive = Directive.RESTART
        history = self.system.history_of(self)  # type: ignore[arg-type]
        failures = history.record(self.loop.time(), self.supervision)
        if directive is Directive.RESTART and history.exceeded(self.supervision):
            directive = Directive.ESCALATE
        self._report(error, where, directive, failures)
        self.suspend()
        pause = self.supervision.backoff.delay(history.in_a_row, self.system.rng)
        self._lifecycle = self.loop.create_task(
            self._recover(error, directive, pause, failures), context=self.context
        )

    def suspend(self) -> None:
        """End message handling of this life at once; the mailbox stays."""
        self.state = RESTARTING
        task, self.task = self.task, None
        if task is not None:
            task.cancel()

    def _exit(self, error: BaseException) -> None:
        """pykka's answer to SystemExit and the like in an actor that nobody supervises."""
        pykka_logger.debug(f"{error!r} in {self.ref}. Stopping all actors.")
        self.error = error
        self.request_stop()
        self.system.stop_all_soon()

    def _decide(self, error: BaseException) -> Directive:
        try:
            directive = self.supervision.decide(error)
            if not isinstance(directive, Directive):
                raise TypeError(f"decide() answered {directive!r}")
            return directive
        except Exception as failure:
            self.hook_failed("supervision", failure)
            return Directive.ESCALATE

    def _report(
        self, error: BaseException, where: str, directive: Directive, failures: int
    ) -> None:
        logger.error(
            "Unhandled exception in %s:", self.ref,
            exc_info=(type(error), error, error.__traceback__),
        )
        events = self.system.events
        if events.wants(ActorFailed):
            message = self.failed_message
            events.publish(ActorFailed(
                self.path, self.actor_class.__name__, where, error, directive.value, failures,
                None if message is None else type(message).__name__, len(self.mailbox),
                self.recent_headers(),
            ))

    def hook_failed(self, where: str, error: BaseException) -> None:
        """A failure beside the point: the actor is between lives or on its way out anyway."""
        logger.error(
            "Unhandled exception in %s:", self.ref,
            exc_info=(type(error), error, error.__traceback__), extra={"where": where},
        )
        events = self.system.events
        if events.wants(ActorFailed):
            events.publish(ActorFailed(
                self.path, self.actor_class.__name__, where, error, "ignored", 0, None,
                len(self.mailbox), self.recent_headers(),
            ))

    async def _recover(
        self, error: BaseException, directive: Directive, pause: float, failures: int
    ) -> None:
        if directive is not Directive.RESTART:
            self.error = error
            left = self._depart()
            await self.end_life("on_failure", type(error), error, error.__traceback__)
            self._bury(left)
            if directive is Directive.ESCALATE:
                self._escalate(error, failures)
            return
        group = self._suspend_group()
        for cell in reversed(group):
            if cell is self:
                await self.end_life("on_failure", type(error), error, error.__traceback__)
                await self.safely("before_restart", error)
            else:
                await cell.end_life("on_stop")
        self.failed_message = None
        self._announce_restart(pause, failures)
        await asyncio.sleep(pause)
        self._lifecycle = None
        for cell in group:
            if cell.state is RESTARTING:
                await cell.rebirth(error)

    def _suspend_group(self) -> list[Life]:
        strategy = self.supervision.strategy
        siblings = self.system.siblings_of(self)  # type: ignore[arg-type]
        if strategy is Strategy.ONE_FOR_ONE:
            return [self]
        if strategy is Strategy.REST_FOR_ONE:
            siblings = siblings[siblings.index(self):]  # type: ignore[arg-type]
        group: list[Life] = []
        for cell in siblings:
            if cell is self:
                group.append(cell)
            elif cell.state in (STARTING, RUNNING):
                cell.suspend()
                group.append(cell)
        return group

    def _announce_restart(self, pause: float, failures: int) -> None:
        allowed = self.supervision.intensity
        logger.warning(
            "%s: restart %d of %d within %g s, in %.3f s", self.path, failures, allowed.restarts,
            allowed.window, pause,
        )
        events = self.system.events
        if events.wants(ActorRestarting):
            events.publish(ActorRestarting(self.path, pause, failures, allowed.restarts))

    async def rebirth(self, error: BaseException) -> None:
        """The next life: a new instance behind the same ref and mailbox."""
        try:
            self.create()
            self.restarts += 1
            await self.call("after_restart", error)
        except BaseException as again:
            if ended_from_outside(again):
                raise
            if self.state is RESTARTING:
                self.state = STARTING
                self.fail(again, "restart")
            return
        self.begin()

    def _escalate(self, error: BaseException, failures: int) -> None:
        escalated = Escalated(self.path, f"gave up after {failures} failures: {error!r}")
        escalated.__cause__ = error
        if self.parent is not None:
            self.parent.fail(escalated, "child")
        else:
            self.system.escalated(escalated)

    # -- the end --------------------------------------------------------------------------------

    async def end_life(self, hook: str | None, *args: Any) -> None:
        """Stop what belongs to this life, children youngest first, then run its last hook."""
        if self._timers is not None:
            self._timers.clear()
        for task in tuple(self._tasks or ()):
            task.cancel()
        for child in reversed(tuple(self.children.values())):
            await child.stop_now()
        if hook is not None:
            await self.safely(hook, *args)
        if self._timers is not None:
            self._timers.clear()  # what the hook, or a thread's last handler, has set
        if self.stashed:
            self.mailbox.put_back(self.stashed)
            self.stashed = None
        for ref in tuple(self.watching or ()):
            self.unwatch(ref)
        owed, self._owed = self._owed, None
        for reply in owed or ():
            reply.try_fail(self.dead("stopped before it answered"))

    async def safely(self, hook: str, *args: Any) -> None:
        """Run a hook; its failure is reported and changes nothing."""
        try:
            await self.call(hook, *args)
        except BaseException as error:
            if ended_from_outside(error):
                raise
            self.hook_failed(hook, error)

    def request_stop(self) -> None:
        """Begin to stop, once."""
        if self.state in (STOPPING, STOPPED):
            return
        ran = self.state in (STARTING, RUNNING)
        self.state = STOPPING
        restart, self._lifecycle = self._lifecycle, None
        if restart is not None:
            restart.cancel()
        if self._at_rest():
            self._stop_at_once(ran)
        else:
            self._lifecycle = self.loop.create_task(self._stop(ran), context=self.context)

    def _at_rest(self) -> bool:
        """Nothing to wait for: no task is needed (half the cost of stopping 10,000 actors)."""
        return self.task is None and not (self.children or self._tasks or self.threaded)

    def _stop_at_once(self, ran: bool) -> None:
        left = self._depart()
        if ran and self.actor_class.on_stop is not pykka.Actor.on_stop:
            try:
                result: Any = self.context.copy().run(self.actor.on_stop)  # type: ignore[union-attr]
            except BaseException as error:
                self.hook_failed("on_stop", error)
            else:
                if type(result) is CoroutineType:
                    self._lifecycle = self.loop.create_task(
                        self._finish_stop(result, left), context=self.context
                    )
                    return
        self._clear(left)

    async def _finish_stop(self, hook: CoroutineType[Any, Any, Any], left: list[Envelope]) -> None:
        try:
            await hook
        except BaseException as error:
            self.hook_failed("on_stop", error)
        self._clear(left)

    def _clear(self, left: list[Envelope]) -> None:
        if self._timers is not None:
            self._timers.clear()
        for reply in self._owed or ():
            reply.try_fail(self.dead("stopped before it answered"))
        for ref in tuple(self.watching or ()):
            self.unwatch(ref)
        self._owed = None
        self._bury(left)

    async def stop_now(self) -> None:
        """Stop without handling the rest of the mailbox; wait until it is done."""
        if self.state is not STOPPED:
            self.request_stop()
        if self.state is not STOPPED:
            gone: Future[None] = Future()
            self._gone = [*(self._gone or ()), gone]
            await gone

    async def _stop(self, ran: bool) -> None:
        handler = self.task
        if handler is not None:
            # The handler may end by itself; past the grace it is cancelled.
            await asyncio.wait([handler], timeout=self.system.stop_grace)
            if not handler.done():
                handler.cancel()
                await asyncio.wait([handler], timeout=self.system.stop_grace)
        left = self._depart()
        await self.end_life("on_stop" if ran else None)
        self._bury(left)

    def _depart(self) -> list[Envelope]:
        """From now on the actor is dead for others, as pykka has it before the last hook."""
        left = self.mailbox.close()
        self.stopped_flag.set()
        self.system.unregister(self)  # type: ignore[arg-type]
        return left

    def _bury(self, left: list[Envelope]) -> None:
        self.state = STOPPED
        for envelope in (*left, *(self.stashed or ())):
            self.dead_letter(envelope)
        self.stashed = None
        for reply in self._stop_replies or ():
            reply.try_set(True)
        siblings = self.system.place_of(self)  # type: ignore[arg-type]
        if siblings.get(self.name) is self:
            del siblings[self.name]
        if self.parent is not None:
            self.parent.send_system(ChildStopped(self.ref))
        for watcher in self._watchers or ():
            watcher.send_system(Terminated(self.ref, self.error))
        for future in self._waiting_start or ():
            future.try_fail(self.dead("never started"))
        for gone in self._gone or ():
            gone.try_set(None)
        self._watchers = self._waiting_start = self._gone = self._stop_replies = None
        events = self.system.events
        if events.wants(ActorStopped):
            events.publish(ActorStopped(self.path, self.actor_class.__name__, self.error))

    def dead_letter(self, envelope: Envelope) -> None:
        """A message that will not be handled: its asker is told, a watcher gets its answer."""
        message, reply, *_ = envelope
        kind = type(message)
        if kind is ActorStop:
            if reply is not None:
                reply.try_set(True)
        elif kind is Watch:
            message.watcher.send_system(Terminated(self.ref, self.error))
        elif kind is not TimerFired and kind is not ChildStopped and kind is not Unwatch:
            if reply is not None:
                if reply.done():
                    return
                reply.try_fail(self.dead("stopped before handling the message"))
            self.system.dead_letter(envelope, self, "left in the mailbox")  # type: ignore[arg-type]

    def dead(self, what: str) -> ActorDeadError:
        """The error for whoever still waits for this actor."""
        error = ActorDeadError(f"{self.ref} {what}")
        error.__cause__ = self.error
        return error

    # -- death watch ----------------------------------------------------------------------------

    def watch(self, ref: ActorRef[Any]) -> None:
        """See :meth:`actors.Actor.watch`."""
        if self.watching is None:
            self.watching = set()
        if ref not in self.watching:
            self.watching.add(ref)
            if not ref._cell.send_system(Watch(self)):  # type: ignore[arg-type]
                self.send_system(Terminated(ref, ref._cell.error))

    def unwatch(self, ref: ActorRef[Any]) -> None:
        """See :meth:`actors.Actor.unwatch`."""
        if self.watching and ref in self.watching:
            self.watching.discard(ref)
            ref._cell.send_system(Unwatch(self))  # type: ignore[arg-type]

    def watched_by(self, watcher: Cell, watched: bool) -> None:
        """Another actor began or ceased to watch this one."""
        if self._watchers is None:
            self._watchers = set()
        if watched:
            self._watchers.add(watcher)
        else:
            self._watchers.discard(watcher)


_NO_CHILDREN: dict[str, Any] = {}


def ended_from_outside(error: BaseException) -> bool:
    """Whether this is the cancellation of the running task, not one that its code has raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


__all__: list[str] = [
    "NEW", "RESTARTING", "RUNNING", "STARTING", "STOPPED", "STOPPING", "Life", "StopFlag",
]
