"""The actor: a ``pykka.Actor`` whose inbox, future and loop are asyncio's.

``on_start``, ``on_stop``, ``on_failure`` and ``on_receive`` may be plain methods or coroutines. An
actor handles one message at a time: while a coroutine handler awaits something, the mailbox waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar, overload

from actors._actor_actions import ActorActions
from actors._checks import count, no_generator, seconds
from actors._core.cell import Cell
from actors._core.context import building
from actors._core.error_text import str_of_any
from actors._core.lifecycle import begin, pykka_logger, spawn_child
from actors._core.log_safely import log_safely
from actors._default import default_system
from actors._dispatch import Handlers, handlers_of
from actors._events import Unhandled
from actors._future import Future
from actors._policy import STOP_ON_FAILURE, Supervision
from actors._ref import ActorRef
from actors._routing import ROUND_ROBIN, Broadcast, Routing
from actors._system import ActorSystem

if TYPE_CHECKING:
    from actors._broadcast import BroadcastRouter
    from actors._overflow import Overflow
    from actors._router import Router

A = TypeVar("A", bound="Actor")
R = TypeVar("R")
P = ParamSpec("P")


HOOKS = (
    "on_start",
    "on_stop",
    "on_failure",
    "on_receive",
    "on_child_stopped",
    "before_restart",
    "after_restart",
)
"""Methods that the runtime calls."""


class Actor(ActorActions):
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
        for what in ("stash_capacity", "max_tasks"):
            if what in vars(cls):
                count(f"{cls.__qualname__}.{what}", vars(cls)[what], 0)
        for hook in HOOKS:
            no_generator(f"{cls.__qualname__}.{hook}", getattr(cls, hook))
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
        supervision: Supervision | None = ...,
        **kwargs: Any,
    ) -> Router[A]: ...
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
        # As pykka's own, but for a message whose text its own code refuses.
        log_safely(pykka_logger.warning, f"Unexpected message received by {self}: {str_of_any(message)}")
        return None

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
    def _create_actor_inbox() -> NoReturn:
        raise RuntimeError("the cell makes the mailbox")

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> None:
        begin(self._cell)


__all__ = ["STOP_ON_FAILURE", "Actor"]
