"""The actor: a ``pykka.Actor`` whose inbox, future and loop are asyncio's.

``on_start``, ``on_stop``, ``on_failure`` and ``on_receive`` may be plain methods or coroutines. An
actor handles one message at a time: while a coroutine handler awaits something, the mailbox waits.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, overload

import pykka
from pykka import ActorDeadError

from actors._checks import ref_of, seconds
from actors._core import actions, death_watch
from actors._core.cell import Cell
from actors._core.closing import stop_if_empty
from actors._core.context import building
from actors._core.lifecycle import RESTARTING, begin, spawn_child
from actors._core.pykka_names import ActorStop
from actors._core.supervision import between_lives
from actors._default import default_system
from actors._dispatch import Handlers, handlers_of
from actors._events import Unhandled
from actors._future import Future
from actors._messages import Piped, Request
from actors._policy import STOP_ON_FAILURE, Supervision
from actors._ref import ActorRef
from actors._router import Router, start_pool
from actors._routing import ROUND_ROBIN, Routing
from actors._system import ActorSystem

if TYPE_CHECKING:
    from actors._core.mailbox import Mailbox
    from actors._overflow import Overflow

A = TypeVar("A", bound="Actor")
R = TypeVar("R")
P = ParamSpec("P")


class Actor(pykka.Actor):
    """Base class of actors. Start one with :meth:`start`, ``system.spawn`` or ``self.spawn``."""

    supervision: Supervision = Supervision()
    """How this actor supervises its children."""

    mailbox_capacity: int | None = None
    """The mailbox's bound in messages; None takes the system's."""

    overflow: Overflow | None = None
    """The policy of a full mailbox; None takes the system's."""

    stash_capacity: int = 1000
    """Bound of the messages that :meth:`stash` puts aside."""

    max_tasks: int = 10_000
    """Bound of the unfinished tasks of :meth:`start_task` and :meth:`pipe_to_self`."""

    turn_time: float | None = None
    """Seconds that this actor may handle messages before others get their turn (above 0, at most 60); None
    takes the system's. It always handles one message. See :class:`actors.ActorSystem`."""

    stop_grace: float | None = None
    """Seconds that a handler of this actor may go on when the actor stops; None takes the system's. See :class:`actors.ActorSystem`."""

    hook_timeout: float | None = None
    """Seconds that each last hook of this actor may take; None takes the system's. See :class:`actors.ActorSystem`."""

    _cell_class: ClassVar[type[Cell]] = Cell
    _dispatch_table: ClassVar[Handlers] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for what in ("stop_grace", "hook_timeout"):
            own = vars(cls).get(what)
            if own is not None:
                seconds(f"{cls.__qualname__}.{what}", own)
        cls._dispatch_table = handlers_of(cls)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        cell = building.get()
        if cell is None or cell.actor_class is not type(self):
            # Constructed by hand and never started: it has an identity, as in pykka.
            cell = default_system().detached(type(self))
        cell.actor = self
        self._cell = cell
        self.actor_inbox = cell.mailbox  # type: ignore[assignment]
        self.actor_stopped = cell.stopped_flag  # type: ignore[assignment]
        self._actor_ref = cell.ref

    @classmethod
    def start(cls: type[A], *args: Any, **kwargs: Any) -> ActorRef[A]:
        """Start the actor at the top of the default system; see :meth:`pykka.Actor.start`.

        On a thread that runs an event loop, the actor lives on that loop. Other threads share one
        loop, which a daemon thread runs.

        Args:
            args: for the constructor.
            kwargs: for the constructor.
        """
        return default_system().start(cls, args, kwargs)

    def __str__(self) -> str:
        return self._cell.label

    # -- identity and family --------------------------------------------------------------------

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The actor's URN (a uuid4); it survives restarts."""
        return self._cell.urn

    @property
    def path(self) -> str:
        """The actor's path in its system, such as ``/service/default/g1``."""
        return self._cell.path

    @property
    def system(self) -> ActorSystem:
        """The system that the actor belongs to."""
        return self._cell.system

    @property
    def actor_ref(self) -> ActorRef[Any]:
        """The actor's own reference."""
        return self._cell.ref

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        """The living children, oldest first."""
        return tuple(child.ref for child in tuple(self._cell.children.values()))

    @overload
    def spawn(self, actor_class: Callable[P, A], *args: P.args, **kwargs: P.kwargs) -> ActorRef[A]: ...
    @overload
    def spawn(
        self,
        actor_class: type[A],
        *args: Any,
        name: str | None,
        supervision: Supervision | None = ...,
        **kwargs: Any,
    ) -> ActorRef[A]: ...
    @overload
    def spawn(
        self, actor_class: type[A], *args: Any, supervision: Supervision | None, **kwargs: Any
    ) -> ActorRef[A]: ...
    def spawn(  # type: ignore[misc]  # a constructor must not have arguments of these names
        self,
        actor_class: Any,
        *args: Any,
        name: str | None = None,
        supervision: Supervision | None = None,
        **kwargs: Any,
    ) -> ActorRef[Any]:
        """Start a child that this actor supervises.

        Args:
            actor_class: the child's class.
            args: for its constructor, at the start and at each restart.
            name: its name among its siblings; None generates one from the class.
            supervision: how to supervise this child; None takes this actor's ``supervision``.
            kwargs: for its constructor, like ``args``.

        Raises:
            ValueError: a living child has that name, or it contains a slash.
            SpawnRefused: this actor is stopping, or its children are being stopped before its restart; an ``ActorDeadError``.
        """
        return spawn_child(
            self._living_cell(), actor_class, args, kwargs, name, supervision or self.supervision
        )

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
        """Start a :class:`Pool` of equal workers as a child; return the router that reaches them.

        Args:
            actor_class: the workers' class.
            args: for its constructor.
            size: how many workers, 1 or more.
            routing: the policy that chooses a message's worker.
            name: the pool's name among this actor's children; None generates one.
            supervision: how the pool supervises the workers; None takes this actor's ``supervision``.
                The pool itself escalates: when it gives up, this actor fails.
            kwargs: for the workers' constructor.

        Raises:
            ValueError: the size is below 1, or the name is taken or has a slash.
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
        """Turn ``wanted`` into a child's name: without slashes, and with a suffix if a child has it."""
        name = base = wanted.replace("/", "_") or "_"
        suffix = 1
        while name in self._cell.children:
            suffix += 1
            name = f"{base}~{suffix}"
        return name

    def watch(self, ref: ActorRef[Any]) -> None:
        """Ask for a :class:`Terminated` message when an actor has stopped for good.

        It comes once per watched actor, at once if the actor has stopped already. A restart is not a
        stop. This actor's own restart or stop ends its watches.

        Raises:
            TypeError: it is no ref, but a proxy, a path or the like.
        """
        ref_of("what is watched", ref)
        death_watch.watch(self._living_cell(), ref)

    def unwatch(self, ref: ActorRef[Any]) -> None:
        """End a watch; no message comes, even if it is in the mailbox already."""
        ref_of("what is watched", ref)
        if self._cell.actor is self:  # the watches of an instance from before have ended with its life
            death_watch.unwatch(self._cell, ref)

    # -- replies ----------------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        """Tell whether the current message is an ask whose reply the handler still owes."""
        reply = self._cell.reply
        return reply is not None and reply.wanted

    @overload
    def take_reply(self, request: Request[R]) -> Future[R]: ...
    @overload
    def take_reply(self, request: None = None) -> Future[Any]: ...
    def take_reply(self, request: Request[Any] | None = None) -> Future[Any]:
        """Take over the reply to the current message, to settle it after the handler has returned.

        Settle it with ``try_set`` or ``try_fail``: they tell whether somebody still waits. If this
        actor stops or fails first, the asker gets ``ActorDeadError``. The reply to a tell is a future
        that nobody waits for.

        Args:
            request: the current message, so that a type checker knows the future's type; not used
                otherwise.
        """
        return actions.take_reply(self._living_cell())

    # -- the mailbox ----------------------------------------------------------------------------

    def stash(self) -> None:
        """Put the current message aside; its asker, if any, waits on.

        Raises:
            StashFull: ``stash_capacity`` messages are put aside already.
            ValueError: this message is stashed already, or no message is being handled.
        """
        actions.stash(self._living_cell())

    def unstash_all(self) -> None:
        """Handle the stashed messages next, in order. A restart does so by itself.

        If messages are put aside and unstashed again and again, a message of the normal lane (a stop, for example) is
        handled in between from the 64th time on.
        """
        actions.unstash_all(self._living_cell())

    def become(self, behaviour: Callable[[Any], Any], *, discard_old: bool = True) -> None:
        """Handle messages with another function in place of ``on_receive``, until the next restart.

        Args:
            behaviour: gets each message; a plain or a coroutine function.
            discard_old: False puts the current behaviour on a stack for :meth:`unbecome`.

        Raises:
            TypeError: ``behaviour`` cannot be called.
        """
        actions.become(self._living_cell(), behaviour, discard_old=discard_old)

    def unbecome(self) -> None:
        """Return to the behaviour below on the stack, or to ``on_receive``."""
        actions.unbecome(self._living_cell())

    def set_receive_timeout(self, seconds: float | None) -> None:
        """Send this actor a :class:`ReceiveTimeout` after each so many seconds without a message.

        None ends that.
        """
        actions.set_receive_timeout(self._living_cell(), seconds)

    # -- time and work ----------------------------------------------------------------------------

    def set_timer(self, key: Any, delay: float, message: Any, *, every: float | None = None) -> None:
        """Send this actor a message later, in the system lane.

        Args:
            key: names the timer. A timer with the same key is replaced, even if its message is in the
                mailbox already.
            delay: seconds until the message, 0 or more.
            message: what to send.
            every: seconds from the handling of each message to the next one; None sends one only.

        Raises:
            ValueError: ``delay`` is below 0, or ``every`` is not above 0.
        """
        self._living_cell().timers.set(key, delay, message, every)

    def cancel_timer(self, key: Any) -> None:
        """Cancel a timer if it is set; its message is not handled, even if it is in the mailbox."""
        if self._cell.actor is self:
            self._cell.timers.cancel(key)

    def has_timer(self, key: Any) -> bool:
        """Tell whether a timer is set: it has a message still to come."""
        return self._cell.actor is self and self._cell.timers.has(key)

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine beside the mailbox, until this life of the actor ends.

        An exception in it is a failure of the actor; so is a cancellation, unless this life of the actor has ended.
        It must not touch the actor's state: it sends a message to do that.

        Raises:
            TooManyTasks: ``max_tasks`` of them are under way.
        """
        self._living_cell(coroutine).start_task(coroutine)

    def pipe_to_self(
        self,
        work: Awaitable[Any],
        *,
        on_value: Callable[[Any], Any] | None = None,
        on_error: Callable[[BaseException], Any] | None = None,
        tag: Any = None,
    ) -> None:
        """Await something beside the mailbox and receive its outcome as a message (priority lane).

        If this life ends first, the work is cancelled and no message comes.

        Args:
            work: a coroutine, an asyncio future or an :class:`actors.Future`.
            on_value: makes the message from the value; None sends a :class:`Piped`.
            on_error: makes the message from the error; None sends a :class:`Piped`.
            tag: the ``tag`` of the :class:`Piped`.

        Raises:
            TooManyTasks: ``max_tasks`` tasks are under way.
        """

        def outcome(value: Any, error: BaseException | None) -> Any:
            if error is not None:
                return Piped(None, error, tag) if on_error is None else on_error(error)
            return Piped(value, None, tag) if on_value is None else on_value(value)

        actions.pipe(self._living_cell(work), work, outcome)

    def _living_cell(self, work: Any = None) -> Cell:
        """The cell, as long as this instance is the actor: it must not act for the next one, nor when it has stopped.

        Args:
            work: what to close if it is not.
        """
        cell = self._cell
        if cell.actor is not self or (cell.state is RESTARTING and between_lives(cell)):
            if inspect.iscoroutine(work):
                work.close()
            if cell.actor is None:
                raise ActorDeadError(f"{cell.label} has stopped")
            raise ActorDeadError(f"{cell.label} has been restarted: this is an instance from before")
        return cell

    def _lives(self) -> bool:
        """Tell whether this instance is the actor; not if its last hook has ended and a restart follows."""
        return self._cell.actor is self and not between_lives(self._cell)

    # -- hooks ----------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Handle a message; the value returned is the reply. See :meth:`pykka.Actor.on_receive`.

        Calls the method that :func:`actors.handles` marks for the message's type. An override calls it
        with ``super().on_receive(message)``.
        """
        try:  # half the time of dict.get(), which an actor would pay for each message
            handler = self._dispatch_table[type(message)]
        except KeyError:
            pass
        else:
            return handler(self, message)
        events = self._cell.system.events
        if events.wants(Unhandled):
            events.publish(Unhandled(message, self._cell.path))
        return super().on_receive(message)

    def on_child_stopped(self, ref: ActorRef[Any]) -> Any:
        """Called when a child has stopped for good; a restart of a child is not a stop."""

    def console_state(self) -> Mapping[str, Any] | None:
        """Return the state that the debug console shows of this actor; None, the default, shows nothing.

        While a page shows the actor, this is called about once a second on the thread of the loop, also while a
        coroutine handler waits or, in a :class:`ThreadedActor`, while the actor's own thread runs. So read only, and do
        not compute. Numbers, texts, mappings, sequences and dataclasses are shown, up to 500 values; of
        other objects the type. See docs/console.md.
        """
        return None

    def before_restart(self, error: BaseException) -> Any:
        """Called on the old instance after ``on_failure``, before the pause and the next life."""

    def after_restart(self, error: BaseException) -> Any:
        """Called on the new instance, before ``on_start``."""

    @property
    def failed_message(self) -> Any:
        """In ``on_failure``, the message whose handler failed; None if something else failed."""
        return self._cell.failed_message

    # -- the part of a runtime, as pykka defines it -----------------------------------------------

    @staticmethod
    def _create_actor_inbox() -> Mailbox:  # type: ignore[override]
        raise RuntimeError("the cell makes the mailbox")

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> None:
        begin(self._cell)

    def stop(self) -> None:
        """Stop this actor after the messages that are in its mailbox now; nothing if it has been restarted since."""
        if self._lives():
            self._cell.ref.stop(block=False)

    def stop_if_idle(self) -> bool:
        """Stop this actor unless a message waits for it, be it stashed; for one that stops when nobody has needed it for a while.

        What is sent between :meth:`stop` and the end is lost, or its asker gets ``ActorDeadError``. Here the mailbox is
        closed in the same step: from now on, each sender gets that error, and can look for another actor.

        Returns:
            Whether the actor stops. False also if it has been restarted since.
        """
        cell = self._cell
        if not self._lives():
            return False
        return stop_if_empty(cell.mailbox, (ActorStop(), None, cell.system.clock(), None, None, None))


__all__ = ["STOP_ON_FAILURE", "Actor"]
