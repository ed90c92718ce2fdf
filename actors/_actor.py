"""The actor: a ``pykka.Actor`` whose inbox, future and loop are asyncio's.

``on_start``, ``on_stop``, ``on_failure`` and ``on_receive`` may be plain methods or coroutines. An
actor handles one message at a time: while a coroutine handler waits, the mailbox waits.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import pykka
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from actors._cell import Cell, current_cell
from actors._future import Future
from actors._policy import Supervision
from actors._ref import ActorRef

if TYPE_CHECKING:
    from actors._mailbox import Mailbox
    from actors._system import ActorSystem

A = TypeVar("A", bound="Actor")

_PROXY_MESSAGES = frozenset({ProxyCall, ProxyGetAttr, ProxySetAttr})


class Actor(pykka.Actor):
    """Base class of actors. Start one with :meth:`start`, ``system.spawn`` or ``self.spawn``."""

    supervision = Supervision()
    """How this actor supervises the children that it spawns."""

    mailbox_capacity: int | None = None
    """The mailbox's bound; None takes the system's."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        cell = current_cell()
        self._cell = cell
        self.actor_urn = cell.urn
        self.actor_inbox = cell.mailbox  # type: ignore[assignment]
        self.actor_stopped = cell.stopped_flag  # type: ignore[assignment]
        self._actor_ref = cell.ref

    @classmethod
    def start(cls: type[A], *args: Any, **kwargs: Any) -> ActorRef[A]:
        """Start the actor at the top of the default system; see :meth:`pykka.Actor.start`.

        On a thread that runs an event loop the actor lives on that loop; elsewhere on one loop
        that a daemon thread runs for all of them.
        """
        from actors._system import default_system

        ref = default_system().spawn(cls, *args, **kwargs)
        pykka.ActorRegistry.register(ref)
        return ref

    # -- what an actor may do -----------------------------------------------------------------

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
        return tuple(child.ref for child in self._cell.children.values())

    def spawn(
        self, actor_class: type[A], *args: Any, name: str | None = None,
        supervision: Supervision | None = None, **kwargs: Any,
    ) -> ActorRef[A]:
        """Start a child that this actor supervises.

        Args:
            actor_class: the child's class; further arguments go to its constructor, at each restart.
            name: its name among the siblings; generated from the class if None.
            supervision: how to supervise this child; None takes the class's ``supervision``.

        Raises:
            ValueError: a living child has that name.
        """
        return self._cell.spawn(actor_class, args, kwargs, name, supervision or self.supervision)

    def free_name(self, wanted: str) -> str:
        """``wanted`` as a child's name, made path-safe and, if a sibling has it, unique."""
        name = base = wanted.replace("/", "_") or "_"
        suffix = 1
        while name in self._cell.children:
            suffix += 1
            name = f"{base}~{suffix}"
        return name

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for a reply to the message that is being handled."""
        return self._cell.is_asked()

    def take_reply(self) -> Future[Any]:
        """Take over the duty to answer the ask that is being handled; settle it later.

        Use ``try_set`` and ``try_fail`` on it: they say whether somebody still waits. When this
        actor stops or fails first, the asker gets ``ActorDeadError``. For a tell it is a future
        that nobody waits for.
        """
        return self._cell.take_reply()

    def set_timer(self, key: Any, delay: float, message: Any) -> None:
        """Have ``message`` delivered to this actor (urgent lane) after ``delay`` seconds.

        A timer with the same key is replaced, even if its message is on its way already.
        """
        self._cell.timers.set(key, delay, message)

    def cancel_timer(self, key: Any) -> None:
        """Forget a timer; its message does not arrive any more."""
        self._cell.timers.cancel(key)

    def has_timer(self, key: Any) -> bool:
        """Whether the timer is set and has not fired."""
        return self._cell.timers.has(key)

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine beside the mailbox. It ends with this life of the actor; an exception in
        it is a failure of the actor. It must not touch the actor's state: send a message for that.
        """
        self._cell.start_task(coroutine)

    # -- hooks ----------------------------------------------------------------------------------


    def on_child_stopped(self, ref: ActorRef[Any]) -> None:
        """A child has stopped for good (not: will be restarted)."""

    @property
    def failed_message(self) -> Any:
        """In ``on_failure``: the message whose handling failed; None if it was something else."""
        return self._cell.failed_message

    # -- what pykka asks of a runtime -------------------------------------------------------------

    @staticmethod
    def _create_actor_inbox() -> Mailbox:  # type: ignore[override]
        return current_cell().mailbox

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> None:
        self._cell.begin()

    def stop(self) -> None:
        """Stop this actor after the messages that it has now."""
        self._cell.ref.stop(block=False)

    def _handle_receive(self, message: Any) -> Any:
        if type(message) in _PROXY_MESSAGES:
            return super()._handle_receive(message)
        return self.on_receive(message)


__all__ = ["Actor", "Cell"]
