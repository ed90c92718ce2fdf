"""The lives of an actor: birth, failure, restart, stop.

A :class:`Life` is what stays when the instance is replaced: the path, the ref, the mailbox, the
children. How messages are handled is the business of :class:`actors._core.cell.Cell`.

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

from actors._core.context import building, current
from actors._core.mailbox import Mailbox
from actors._core.timers import TimerFired, Timers
from actors._errors import ActorError
from actors._events import ActorStarted
from actors._future import Future
from actors._policy import RestartHistory, Supervision
from actors._ref import ActorRef

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._system import ActorSystem
    from actors._trace import TraceContext

logger = logging.getLogger("actors")
pykka_logger = logging.getLogger("pykka")

NEW, STARTING, RUNNING, RESTARTING, STOPPING, STOPPED = (
    "new",
    "starting",
    "running",
    "restarting",
    "stopping",
    "stopped",
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
        "_args",
        "_children_history",
        "_gone",
        "_history",
        "_kwargs",
        "_lifecycle",
        "_names",
        "_owed",
        "_stop_replies",
        "_tasks",
        "_timers",
        "_urn",
        "_waiting_start",
        "_watchers",
        "actor",
        "actor_class",
        "children",
        "clock",
        "context",
        "error",
        "failed",
        "failed_message",
        "hooks",
        "loop",
        "mailbox",
        "name",
        "parent",
        "path",
        "pykka_like",
        "ref",
        "registered",
        "restarts",
        "stashed",
        "state",
        "stopped_flag",
        "supervision",
        "system",
        "task",
        "trace",
        "waiting_on",
        "watching",
    )

    def __init__(
        self,
        system: ActorSystem,
        parent: Cell | None,
        actor_class: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        supervision: Supervision,
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
        self.actor: Actor = None  # type: ignore[assignment]  # until create()
        self.error: BaseException | None = None
        self.failed_message: Any = None
        self.failed = self.restarts = 0
        self.task: asyncio.Task[None] | None = None
        """The task that runs a hook or a coroutine handler."""
        self.waiting_on: Future[Any] | None = None
        self.trace: TraceContext | None = None
        self.stopped_flag = StopFlag()
        self.mailbox = Mailbox(
            self,  # type: ignore[arg-type]
            system.mailbox_capacity if actor_class.mailbox_capacity is None else actor_class.mailbox_capacity,
            actor_class.overflow or system.overflow,
        )
        self.ref: ActorRef[Any] = ActorRef(self)  # type: ignore[arg-type]
        self._args, self._kwargs = args, kwargs
        # Made when needed: most actors have none of these.
        self.children: dict[str, Cell] = _NO_CHILDREN
        self.stashed: list[Envelope] | None = None
        # Dicts for sets: they keep the order, on which a replay depends.
        self.watching: dict[ActorRef[Any], None] | None = None
        self._urn: str | None = None
        self._timers: Timers | None = None
        self._history: RestartHistory | None = None
        self._children_history: RestartHistory | None = None
        self._lifecycle: asyncio.Task[None] | None = None
        self._owed: dict[Future[Any], None] | None = None
        self._tasks: dict[asyncio.Task[Any], None] | None = None
        self._names: itertools.count[int] | None = None
        self._watchers: dict[Cell, None] | None = None
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
            raise ActorError(f"{self.actor_class.__name__}.__init__() did not call super().__init__()")

    def begin(self) -> None:
        """Start this life: ``on_start``, then the mailbox. On the loop's thread."""
        if self.state not in (NEW, RESTARTING):
            return
        self.state = STARTING
        self.hooks = self.mailbox.hooks = self.system.hooks_in_use  # made in a thread it may have missed some
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
        self,
        actor_class: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        supervision: Supervision,
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
                self.system,
                self,  # type: ignore[arg-type]
                actor_class,
                args,
                kwargs,
                name,
                supervision,
            ),
            self.children,
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

    def dead(self, what: str) -> ActorDeadError:
        """The error for whoever still waits for this actor."""
        error = ActorDeadError(f"{self.ref} {what}")
        error.__cause__ = self.error
        return error

    # -- what the cell adds ---------------------------------------------------------------------

    def resume(self) -> None:
        """Handle messages (again)."""
        raise NotImplementedError

    async def call(self, hook: str, *args: Any) -> None:
        """Run one of the actor's hooks, plain or coroutine, where its code runs."""
        result = getattr(self.actor, hook)(*args)
        if type(result) is CoroutineType:
            await result

    def cut_off(self) -> None:
        """This life is over: the handler that is under way, if any, answers nobody any more."""
        raise NotImplementedError

    def recent_headers(self) -> tuple[tuple[str, str | None, float], ...]:
        """The last messages, for a crash report."""
        raise NotImplementedError

    def fail(self, error: BaseException, where: str, *, resumable: bool = False) -> None:
        """Something of this life failed: the supervisor's policy says what comes next."""
        raise NotImplementedError

    def request_stop(self) -> None:
        """Begin to stop, once."""
        raise NotImplementedError

    async def stop_now(self) -> None:
        """Stop without handling the rest of the mailbox; wait until it is done."""
        raise NotImplementedError

    async def end_life(self, hook: str | None, *args: Any) -> None:
        """Stop what belongs to this life, children youngest first, then run its last hook."""
        raise NotImplementedError

    async def safely(self, hook: str, *args: Any) -> None:
        """Run a hook; its failure is reported and changes nothing."""
        raise NotImplementedError

    def depart(self) -> list[Envelope]:
        """From now on the actor is dead for others; what its mailbox held."""
        raise NotImplementedError

    def bury(self, left: list[Envelope]) -> None:
        """Gone for good: whoever waits for that is told."""
        raise NotImplementedError


_NO_CHILDREN: dict[str, Any] = {}


def ended_from_outside(error: BaseException) -> bool:
    """Whether this is the cancellation of the running task, not one that its code has raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
