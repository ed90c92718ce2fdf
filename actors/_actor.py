"""The actor: a ``pykka.Actor`` whose inbox, future and loop are asyncio's.

``on_start``, ``on_stop``, ``on_failure`` and ``on_receive`` may be plain methods or coroutines. An
actor handles one message at a time: while a coroutine handler waits, the mailbox waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pykka

from actors._core import actions, death_watch
from actors._core.cell import Cell
from actors._core.context import building
from actors._core.lifecycle import begin, ended_from_outside, spawn_child
from actors._default import default_system
from actors._dispatch import Handlers, handlers_of
from actors._events import Unhandled
from actors._future import Future
from actors._messages import Piped
from actors._policy import STOP_ON_FAILURE, Supervision
from actors._ref import ActorRef
from actors._router import Router, start_pool
from actors._routing import ROUND_ROBIN, Routing
from actors._system import ActorSystem

if TYPE_CHECKING:
    from actors._core.mailbox import Mailbox
    from actors._overflow import Overflow

A = TypeVar("A", bound="Actor")


class Actor(pykka.Actor):
    """Base class of actors. Start one with :meth:`start`, ``system.spawn`` or ``self.spawn``."""

    supervision: Supervision = Supervision()
    """How this actor supervises the children that it spawns."""

    mailbox_capacity: int | None = None
    """The mailbox's bound; None takes the system's."""

    overflow: Overflow | None = None
    """What a full mailbox does with one more message; None takes the system's policy."""

    stash_capacity: int = 1000
    """How many messages :meth:`stash` may put aside."""

    max_tasks: int = 10_000
    """How many tasks :meth:`start_task` and :meth:`pipe_to_self` may have under way."""

    _cell_class: ClassVar[type[Cell]] = Cell
    _dispatch_table: ClassVar[Handlers] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._dispatch_table = handlers_of(cls)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        cell = building.get()
        if cell is None or cell.actor_class is not type(self):
            # Constructed by hand, and never started: as in pykka it has an identity all the same.
            cell = default_system().detached(type(self))
        cell.actor = self
        self._cell = cell
        self.actor_inbox = cell.mailbox  # type: ignore[assignment]
        self.actor_stopped = cell.stopped_flag  # type: ignore[assignment]
        self._actor_ref = cell.ref

    @classmethod
    def start(cls: type[A], *args: Any, **kwargs: Any) -> ActorRef[A]:
        """Start the actor at the top of the default system; see :meth:`pykka.Actor.start`.

        On a thread that runs an event loop the actor lives on that loop; elsewhere on one loop
        that a daemon thread runs for all of them.
        """
        return default_system().start(cls, args, kwargs)

    def __str__(self) -> str:
        return self._cell.label

    # -- what an actor may do -----------------------------------------------------------------

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The actor's URN, a uuid4; the same through all its lives."""
        return self._cell.urn

    @property
    def path(self) -> str:
        """This actor's place in its system."""
        return self._cell.path

    @property
    def system(self) -> ActorSystem:
        """The system that this actor belongs to."""
        return self._cell.system

    @property
    def actor_ref(self) -> ActorRef[Any]:
        """This actor's own reference."""
        return self._cell.ref

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        """References of the living children, oldest first."""
        return tuple(child.ref for child in tuple(self._cell.children.values()))

    def spawn(
        self,
        actor_class: type[A],
        *args: Any,
        name: str | None = None,
        supervision: Supervision | None = None,
        **kwargs: Any,
    ) -> ActorRef[A]:
        """Start a child that this actor supervises.

        Args:
            actor_class: the child's class; further arguments go to its constructor, at each restart.
            name: its name among the siblings; generated from the class if None.
            supervision: how to supervise this child; None takes the class's ``supervision``.

        Raises:
            ValueError: a living child has that name, or it contains a slash.
        """
        return spawn_child(self._cell, actor_class, args, kwargs, name, supervision or self.supervision)

    def spawn_pool(
        self,
        actor_class: type[A],
        *args: Any,
        size: int = 4,
        routing: Routing = ROUND_ROBIN,
        name: str | None = None,
        supervision: Supervision | None = None,
        **kwargs: Any,
    ) -> Router[A]:
        """Start a :class:`Pool` of equal workers as a child, and get the router that reaches them.

        Args:
            actor_class: the workers' class; further arguments go to its constructor.
            size: how many of them.
            routing: who gets a message.
            name: the pool's name among this actor's children; generated if None.
            supervision: how the pool supervises the workers; None takes this class's. The pool
                itself escalates: when it gives up, this actor fails.

        Raises:
            ValueError: no worker at all, or the name is taken or has a slash.
        """
        return start_pool(
            self.spawn,
            actor_class,
            args,
            kwargs,
            size=size,
            routing=routing,
            name=name,
            workers=supervision or self.supervision,
        )

    def free_name(self, wanted: str) -> str:
        """``wanted`` as a child's name, made path-safe and, if a sibling has it, unique."""
        name = base = wanted.replace("/", "_") or "_"
        suffix = 1
        while name in self._cell.children:
            suffix += 1
            name = f"{base}~{suffix}"
        return name

    def watch(self, ref: ActorRef[Any]) -> None:
        """Be told, by a :class:`Terminated` message, when that actor is gone for good.

        Once per actor, at once if it is gone already. A restart is not an end. Watches end with
        this life.
        """
        death_watch.watch(self._cell, ref)

    def unwatch(self, ref: ActorRef[Any]) -> None:
        """Not any more, even if the message is on its way already."""
        death_watch.unwatch(self._cell, ref)

    # -- replies ----------------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for a reply to the message that is being handled."""
        return self._cell.reply is not None

    def take_reply(self) -> Future[Any]:
        """Take over the duty to answer the ask that is being handled; settle it later.

        Use ``try_set`` and ``try_fail`` on it: they say whether somebody still waits. When this
        actor stops or fails first, the asker gets ``ActorDeadError``. For a tell it is a future
        that nobody waits for.
        """
        return actions.take_reply(self._cell)

    # -- the mailbox ----------------------------------------------------------------------------

    def stash(self) -> None:
        """Put the message that is being handled aside, its asker included.

        Raises:
            StashFull: ``stash_capacity`` messages are put aside already.
        """
        actions.stash(self._cell)

    def unstash_all(self) -> None:
        """Handle what was put aside next, in order. A restart does so by itself."""
        actions.unstash_all(self._cell)

    def become(self, behaviour: Callable[[Any], Any], *, discard_old: bool = True) -> None:
        """Have another function (plain or coroutine) in the place of ``on_receive``.

        Args:
            behaviour: gets each message; the next life begins with ``on_receive`` again.
            discard_old: False puts the current behaviour on a stack for :meth:`unbecome`.
        """
        actions.become(self._cell, behaviour, discard_old=discard_old)

    def unbecome(self) -> None:
        """Back to the behaviour below on the stack, or to ``on_receive``."""
        actions.unbecome(self._cell)

    def set_receive_timeout(self, seconds: float | None) -> None:
        """Get a :class:`ReceiveTimeout` whenever no message came for so long; None: no more."""
        actions.set_receive_timeout(self._cell, seconds)

    # -- time and work ----------------------------------------------------------------------------

    def set_timer(self, key: Any, delay: float, message: Any, *, every: float | None = None) -> None:
        """Have ``message`` delivered to this actor (system lane) after ``delay`` seconds.

        A timer with the same key is replaced, even if its message is on its way already. With
        ``every`` it goes on, that many seconds after each delivery.
        """
        self._cell.timers.set(key, delay, message, every)

    def cancel_timer(self, key: Any) -> None:
        """Forget a timer; its message does not arrive any more."""
        self._cell.timers.cancel(key)

    def has_timer(self, key: Any) -> bool:
        """Whether the timer is set and has not fired (for the last time)."""
        return self._cell.timers.has(key)

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine beside the mailbox. It ends with this life of the actor; an exception in
        it is a failure of the actor. It must not touch the actor's state: send a message for that.

        Raises:
            TooManyTasks: ``max_tasks`` of them are under way.
        """
        self._cell.start_task(coroutine)

    def pipe_to_self(
        self,
        work: Awaitable[Any],
        *,
        on_value: Callable[[Any], Any] | None = None,
        on_error: Callable[[BaseException], Any] | None = None,
        tag: Any = None,
    ) -> None:
        """Await something beside the mailbox and get its outcome as a message (priority lane).

        Args:
            work: a coroutine, an asyncio future or one of this runtime.
            on_value: makes the message from the value.
            on_error: makes the message from the error.
            tag: what the :class:`Piped` carries that comes where no such function is given.

        If this life ends first, the work is cancelled and nothing comes.
        """
        self.start_task(self._pipe(work, on_value, on_error, tag))

    async def _pipe(
        self,
        work: Awaitable[Any],
        on_value: Callable[[Any], Any] | None,
        on_error: Callable[[BaseException], Any] | None,
        tag: Any,
    ) -> None:
        message: Any
        try:
            value = await work
        except (Exception, asyncio.CancelledError) as error:
            if ended_from_outside(error):
                raise
            message = Piped(None, error, tag) if on_error is None else on_error(error)
        else:
            message = Piped(value, None, tag) if on_value is None else on_value(value)
        self._cell.ref.tell(message, urgent=True)

    # -- hooks ----------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Handle a message; what it returns is the reply. See :meth:`pykka.Actor.on_receive`.

        Unless overridden, calls the method that :func:`actors.handles` marks for the message's type.
        """
        handler = self._dispatch_table.get(type(message))
        if handler is not None:
            return handler(self, message)
        events = self._cell.system.events
        if events.wants(Unhandled):
            events.publish(Unhandled(message, self._cell.path))
        return super().on_receive(message)

    def on_child_stopped(self, ref: ActorRef[Any]) -> Any:
        """A child has stopped for good (not: will be restarted)."""

    def before_restart(self, error: BaseException) -> Any:
        """On the old instance, after ``on_failure``: a new life follows."""

    def after_restart(self, error: BaseException) -> Any:
        """On the new instance, before ``on_start``."""

    @property
    def failed_message(self) -> Any:
        """In ``on_failure``: the message whose handling failed; None if it was something else."""
        return self._cell.failed_message

    # -- what pykka asks of a runtime -------------------------------------------------------------

    @staticmethod
    def _create_actor_inbox() -> Mailbox:  # type: ignore[override]
        raise NotImplementedError("the cell makes the mailbox")

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> None:
        begin(self._cell)

    def stop(self) -> None:
        """Stop this actor after the messages that it has now."""
        self._cell.ref.stop(block=False)


__all__ = ["STOP_ON_FAILURE", "Actor"]
