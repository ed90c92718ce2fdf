"""The cell: an actor's state.

A cell is one actor's place in the tree. The actor's instance is replaced at a restart; the cell, and
with it the path, the ref, the mailbox and the children, stays. This module has the state, and when it is the
actor's turn. The rest are functions that take a cell: messages in ``handling``, birth and restart in ``lifecycle``, failures in
``supervision``, the end in ``termination``, watches in ``death_watch``, the operations behind the
methods of :class:`actors.Actor` in ``actions``, the runtime's own messages in ``system_messages``,
counters in ``accounting``, reports in ``inspection``. A cell's state belongs to the event loop; only
messages enter, and the counters are read, from other threads. With an actor that has a thread, the thread
and the loop take turns.

A message to an idle actor puts it into the system's queue (see ``turns``); when its turn comes, it handles
up to ``THROUGHPUT`` messages, for its ``turn_time``. Plain handlers therefore need no task (one task per
actor that waits on its inbox cost a task switch per message: about 2.5 microseconds a tell against 0.9).
Coroutine handlers share one task for the messages of a turn.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from threading import get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pykka import ActorDeadError

from actors._core import actions, following, last_hooks, supervision, termination
from actors._core.closing import close
from actors._core.context import bare, of_spawner
from actors._core.handling import broken_off, handler_failed, work
from actors._core.lifecycle import NEW, NO_CHILDREN, NO_KWARGS, RUNNING, StopFlag
from actors._core.loops import runs_here
from actors._core.mailbox import Mailbox
from actors._core.stats import FEW_BUCKETS
from actors._core.timers import Timers
from actors._core.turns import THROUGHPUT, turn_ns
from actors._ref import ActorRef

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.envelope import Envelope
    from actors._core.instruments import Hooks
    from actors._core.standby import Standby
    from actors._core.stopping import StopReplies
    from actors._core.supervision import Restart
    from actors._future import Future
    from actors._policy import RestartHistory, Supervision
    from actors._system import ActorSystem
    from actors._trace import TraceContext


@dataclass(slots=True, eq=False, repr=False)
class Cell:
    """One actor's place in the tree, through all lives of the actor.

    Args:
        system: the system that the actor belongs to.
        parent: the parent's cell; None at the top of the tree.
        actor_class: the class to instantiate, at the start and at each restart.
        args: for its constructor.
        kwargs: for its constructor.
        name: the last part of the path.
        supervision: how failures of this actor are treated.
    """

    threaded: ClassVar[bool] = False
    """Whether the actor's code runs in a thread of its own."""

    mailbox_class: ClassVar[type[Mailbox]] = Mailbox
    ref_class: ClassVar[type[ActorRef[Any]]] = ActorRef

    system: ActorSystem
    parent: Cell | None
    actor_class: type[Actor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    supervision: Supervision

    # Identity.
    path: str = field(init=False)
    ref: ActorRef[Any] = field(init=False)
    context: contextvars.Context = field(init=False)
    """The context of this life's constructor and hooks, with the spawner's variables."""
    born: contextvars.Context | None = field(init=False, default=None)  # see lifecycle.create()
    own: contextvars.Context = field(init=False)
    """The context that the hooks run in: ``context``, or a thread's copy of it."""
    handling: contextvars.Context | None = field(init=False, default=None)
    """The context in which messages without variables are handled; see :mod:`actors._core.context`."""
    furnished: bool = field(init=False, default=False)
    """Whether ``own`` has variables: such messages are handled in a copy of it then."""
    carried: contextvars.Context | None = field(init=False, default=None)
    """The context of the coroutine handler, unless it is ``handling``."""
    pykka_like: bool = field(init=False, default=False)
    """Whether pykka's ``Actor.start`` made it."""
    registered: bool = field(init=False, default=False)  # in pykka's registry
    _urn: str | None = field(init=False, default=None)
    _left: weakref.ref[ActorRef[Any]] | None = field(init=False, default=None)
    """A dead actor's ref, which has its mailbox; see :meth:`let_go`."""

    # The system's, at hand for the hot loop.
    clock: Callable[[], int] = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    hooks: Hooks | None = field(init=False)

    # The life.
    state: str = field(init=False, default=NEW)
    actor: Actor = field(init=False, default=cast("Actor", None))  # until lifecycle.create()
    started: bool = field(init=False, default=False)
    """Whether ``on_start`` of this life has succeeded, so that ``on_stop`` belongs to it."""
    restarts: int = field(init=False, default=0)
    error: BaseException | None = field(init=False, default=None)
    """The failure that ended the actor for good."""
    early: tuple[BaseException, str] | None = field(init=False, default=None)
    """The first failure beside the constructor, which the life begins with, and where it was."""
    failed_message: Any = field(init=False, default=None)
    task: asyncio.Task[None] | None = field(init=False, default=None)
    """Runs ``on_start`` or a coroutine handler."""
    restart: Restart | None = field(init=False, default=None)
    """The restart that this actor, suspended, is part of."""
    stopped_flag: StopFlag = field(init=False)

    # Messages: those that wait, the one that is being handled, counters.
    mailbox: Mailbox = field(init=False)
    envelope: Envelope | None = field(init=False, default=None)
    reply: Future[Any] | None = field(init=False, default=None)
    """The reply that the handler owes: None for a tell, or when the handler has taken it over."""
    handler: CoroutineType[Any, Any, Any] | None = field(init=False, default=None)
    standby: Standby | None = field(init=False, default=None)
    """The task that will run the next coroutine handler, if there is one already."""
    trace: TraceContext | None = field(init=False, default=None)
    waiting_on: Future[Any] | None = field(init=False, default=None)
    """The reply that the handler itself waits for; see ``deadlock``."""
    turn_ns: int = field(init=False)
    """Nanoseconds that the actor may go on before others get their turn."""
    left: int = field(init=False, default=0)
    """Messages that the current turn may handle after the coroutine handler."""
    began: int = field(init=False, default=0)
    """When the current message's handling began (or the last one's ended), in ns."""
    ended: int = field(init=False)
    """When the last message was handled (or the cell was made), in ns."""
    waits: list[int] = field(init=False)
    runs: list[int] = field(init=False)
    failed: int = field(init=False, default=0)
    abandoned: int = field(init=False, default=0)

    # Made when needed: most actors have none of these. Dicts stand for sets: they keep the order, on
    # which a replay depends.
    receive: Callable[[Any], Any] | None = field(init=False, default=None)
    """The behaviour that ``become`` installed in place of ``on_receive``."""
    behaviours: list[Callable[[Any], Any] | None] | None = field(init=False, default=None)
    recent: deque[tuple[type, Cell | None, int]] | None = field(init=False, default=None)
    stashed: list[Envelope] | None = field(init=False, default=None)
    stashed_last: Envelope | None = field(init=False, default=None)
    idle_after: float | None = field(init=False, default=None)
    children: dict[str, Cell] = field(init=False)
    ending_children: bool = field(init=False, default=False)
    """Whether the children are being stopped, so that none may be added."""
    child_numbers: itertools.count[int] | None = field(init=False, default=None)
    history: RestartHistory | None = field(init=False, default=None)
    children_history: RestartHistory | None = field(init=False, default=None)
    watching: dict[ActorRef[Any], None] | None = field(init=False, default=None)
    watchers: dict[Cell, None] | None = field(init=False, default=None)
    owed: dict[Future[Any], None] | None = field(init=False, default=None)
    """Replies that the actor has taken over and that are not settled."""
    tasks: dict[asyncio.Task[Any], None] | None = field(init=False, default=None)
    handed: list[Coroutine[Any, Any, Any]] | None = field(init=False, default=None)
    """Tasks on their way to the loop: from a constructor in another thread, or from the actor's own."""
    start_waiters: list[Future[Any]] | None = field(init=False, default=None)
    stop_waiters: list[Future[Any]] | None = field(init=False, default=None)
    subscriptions: dict[Callable[[], None], None] | None = field(init=False, default=None)
    """Functions that end the actor's subscriptions of events, in whatever system."""
    stop_replies: StopReplies | None = field(init=False, default=None)
    """Replies to requests to stop, settled when the actor has stopped; only those that somebody keeps."""
    _timers: Timers | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        system, actor_class = self.system, self.actor_class
        self.kwargs = self.kwargs or NO_KWARGS
        self.path = f"{self.parent.path if self.parent else ''}/{self.name}"
        self.clock, self.loop, self.hooks = system.clock, system.loop, system.hooks_in_use
        self.context = self.own = of_spawner(self)
        self.stopped_flag = StopFlag()
        own = actor_class.turn_time
        self.turn_ns = system.turns.limit if own is None else turn_ns(own)
        self.children = NO_CHILDREN
        self.mailbox = self._make_mailbox()
        self.ref = self.ref_class(self, self.mailbox)
        self.ended = self.clock()
        self.waits, self.runs = [0] * FEW_BUCKETS, [0] * FEW_BUCKETS

    # -- identity and lazily made parts -----------------------------------------------------------

    def let_go(self) -> None:
        """Have no more cycles; called once, when the actor has stopped.

        Its ref and its mailbox refer to it; it does not hold them any more. A program that has no cycle collector, or has frozen
        what it finds (``gc.freeze``), would keep every actor that has stopped.
        """
        self._left = weakref.ref(self.ref)
        del self.ref, self.mailbox

    def __getattr__(self, name: str) -> Any:
        """Return a dead actor's ref or mailbox: those that others have; or new ones, which nobody can tell from the first."""
        if name not in ("ref", "mailbox") or self._left is None:
            raise AttributeError(f"a cell has no {name}", name=name, obj=self)
        ref = self._left()
        if ref is None:
            mailbox = self._make_mailbox()
            close(mailbox)
            ref = self.ref_class(self, mailbox)
            self._left = weakref.ref(ref)
        return ref if name == "ref" else ref.actor_inbox

    def _make_mailbox(self) -> Mailbox:
        own = self.actor_class
        capacity = self.system.mailbox_capacity if own.mailbox_capacity is None else own.mailbox_capacity
        return self.mailbox_class(self, capacity, own.overflow or self.system.overflow)

    @property
    def urn(self) -> str:
        """A uuid4 as a URN, made at the first use."""
        if self._urn is None:
            self._urn = uuid.uuid4().urn
        return self._urn

    @property
    def label(self) -> str:
        """The actor's name in texts: with its URN if pykka's ``start`` made it, else with its path."""
        return f"{self.actor_class.__name__} ({self.urn if self.pykka_like else self.path})"

    @property
    def siblings(self) -> dict[str, Cell]:
        """The living actors with the same parent by name, this one among them, oldest first."""
        return self.system.top if self.parent is None else self.parent.children

    @property
    def behaviour(self) -> Callable[[Any], Any]:
        """The function that handles messages now."""
        return self.receive or self.actor.on_receive

    @property
    def timers(self) -> Timers:
        """The timers of this life."""
        if self._timers is None:
            self._timers = Timers(self.loop, self.send_system)
        return self._timers

    def timer_keys(self) -> tuple[Any, ...]:
        """The keys of the timers that are set."""
        return () if self._timers is None else self._timers.keys()

    def clear_timers(self) -> None:
        """Cancel all timers."""
        if self._timers is not None:
            self._timers.clear()

    def send_system(self, message: Any) -> bool:
        """Put one of the runtime's messages into the system lane; False if the actor has stopped."""
        return self.mailbox.push_system((message, None, self.clock(), None, None, None))

    def send_behind(self, message: Any) -> bool:
        """Put one of the runtime's messages behind those that were sent before; False if it has stopped."""
        return self.mailbox.push_behind((message, None, self.clock(), None, None, None))

    def dead(self, what: str, kind: type[ActorDeadError] = ActorDeadError) -> ActorDeadError:
        """The error for an asker that this actor will never answer; ``NoAnswer`` if it has begun with his message.

        Args:
            what: what has happened to the actor, behind its name in the text.
            kind: the class of the error.
        """
        error = kind(f"{self.ref} {what}")
        error.__cause__ = self.error
        return error

    # -- what a cell with a thread does differently -------------------------------------------------

    def wake(self) -> None:
        """Schedule a look into the mailbox. Called by any thread."""
        dispatcher = self.system.dispatcher
        if dispatcher is not None:
            dispatcher.schedule(self)
            return
        try:
            self.system.turns.add(self)
        except RecursionError:  # a RuntimeError, too
            raise
        except RuntimeError:
            self.system.check_loop()

    def prepare(self) -> BaseException | None:
        """Get what this life needs to run, at its start; return why that is not to be had."""
        return None

    def resume(self) -> None:
        """Be ready to handle messages."""
        self.handling = None
        self.state = RUNNING  # the last: from now on a sender's thread may wake the actor's own

    async def call(self, hook: str, *args: Any) -> None:
        """Run one of the actor's first hooks, plain or coroutine, in the current task.

        Args:
            hook: the hook's name.
            args: for the hook.
        """
        result = getattr(self.actor, hook)(*args)
        if type(result) is CoroutineType:
            await result

    def begin_hook(self, hook: str, args: tuple[Any, ...]) -> asyncio.Future[BaseException | None] | None:
        """See :func:`last_hooks.begin_hook`."""
        return last_hooks.begin_hook(self, hook, args)

    async def give_up_hook(self, ending: asyncio.Future[BaseException | None]) -> None:
        """End a last hook that takes too long; see :func:`last_hooks.give_up_hook`."""
        await last_hooks.give_up_hook(self, ending)

    async def end_handler(self, task: asyncio.Task[None] | None, grace: float) -> None:
        """Wait until the handler that is under way has ended; see :func:`termination.end_handler`."""
        await termination.end_handler(self, task, grace)

    def fail(self, error: BaseException, where: str, *, resumable: bool = False) -> None:
        """Let supervision decide on a failure of this life.

        Args:
            error: the exception.
            where: the hook that raised it, ``on_receive`` or ``task``.
            resumable: whether the actor can go on with the next message.
        """
        supervision.fail(self, error, where, resumable=resumable)

    def request_stop(self) -> None:
        """Begin to stop, unless the actor stops already."""
        termination.request_stop(self)

    def start_task(
        self,
        coroutine: Coroutine[Any, Any, Any],
        cancelled: Callable[[asyncio.CancelledError], None] | None = None,
    ) -> None:
        """See :func:`actions.start_task`; from a constructor in another thread, :func:`actions.hand_over`."""
        if runs_here(self.loop, get_ident()):
            actions.start_task(self, coroutine, cancelled)
        else:
            actions.hand_over(self, coroutine, cancelled)

    def start_handed(
        self,
        coroutine: Coroutine[Any, Any, Any],
        cancelled: Callable[[asyncio.CancelledError], None] | None,
    ) -> None:
        """See :func:`actions.start_handed`."""
        actions.start_handed(self, coroutine, cancelled)

    def retire(self) -> None:
        """Free what only a living actor needs; called once, when the actor has stopped."""

    def cut_off(self) -> None:
        """End the handler that is under way, if any; see :func:`termination.cut_off`."""
        termination.cut_off(self)

    # -- the loop -------------------------------------------------------------------------------

    def handling_context(self) -> contextvars.Context:
        """The context for messages that carry none, without what earlier handlers have set."""
        context = self.handling
        if context is None or len(context) != 1:
            self.handling = context = bare(self)
            self.furnished = len(self.own) > 1
        return context

    def run(self) -> None:
        """Handle the messages that wait, for one turn; called by the system's ``turns``."""
        if self.task is not None or self.state is not RUNNING:
            return  # the end of the task, or the start of the next life, wakes the cell again
        handler = None
        try:
            handler = work(self, THROUGHPUT)
            if handler is not None:
                following.begin(self, handler)
            else:
                self.go_on()
        except BaseException as error:  # Ctrl-C between two handlers; or a defect of the runtime
            if self.task is None:  # else the task answers for it
                self.handler = handler
                broken_off(self, error)
            raise

    def step(self) -> bool:
        """Handle one message, for a dispatcher; tell whether another one can be handled at once."""
        if self.task is not None or self.state is not RUNNING:
            return False
        context = self.handling_context()
        handler = context.run(work, self, 1)
        if handler is not None:
            context.run(following.begin, self, handler)
            return False
        return self.state is RUNNING and not (self.mailbox.empty() and self.falls_asleep())

    def falls_asleep(self) -> bool:
        """Sleep, unless a message has come; tell whether the actor sleeps."""
        # The order matters: if a thread puts a message in between, either the thread sees the flag or
        # this cell sees the message.
        self.mailbox.asleep = True
        if self.mailbox.empty() and not self.mailbox.waiting:
            return True
        self.mailbox.asleep = False
        return False

    def go_on(self) -> None:
        """At the end of a turn: take another one if messages wait, else sleep."""
        if self.state is RUNNING and not (self.mailbox.empty() and self.falls_asleep()):
            self.wake()

    def handler_failed(self, envelope: Envelope, error: BaseException) -> None:
        """See :func:`handling.handler_failed`."""
        handler_failed(self, envelope, error)
