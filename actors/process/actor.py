"""Actors in worker processes: the same ref, mailbox and supervision, on a core of their own.

Two actors work together. In the parent, a *host* (module ``host``) has the ref, the mailbox and the place in the tree; it sends one
message at a time to the worker and waits for its end. In the worker, the user's actor lives in a system of its
own. A failure of the user's actor, or the death of its process, is a failure of the host, so the supervision of
the parent applies; a restart is a new process.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, TypeVar, cast

from actors._actor import Actor
from actors._checks import count, seconds
from actors._core.cell import Cell
from actors._proxy import ActorProxy
from actors._ref import ActorRef
from actors.process.host import Host

P = TypeVar("P", bound="ProcessActor")


class ProcessRef(ActorRef[P]):
    """The ref of a process actor: for other code it is a ref like any other."""

    @property
    def actor_class(self) -> type[P]:  # type: ignore[override]
        """The class of the actor in the worker."""
        return cast("type[P]", cast("ProcessCell", self._cell).hosted)

    def _actor_weakref(self) -> P | None:  # type: ignore[override]
        # What a proxy looks at to learn the names of methods and attributes.
        return object.__new__(self.actor_class)

    def proxy(self) -> ActorProxy[P]:
        """See :meth:`ActorRef.proxy`. It knows the methods and attributes that the class defines."""
        return ActorProxy(actor_ref=self)


class ProcessCell(Cell):
    """The cell of a process actor in the parent; its actor is a :class:`Host`."""

    __slots__ = ("hosted",)

    ref_class: ClassVar[type[ActorRef[Any]]] = ProcessRef

    elsewhere: ClassVar[bool] = True
    """Whether the actor's code runs where no simulation can follow."""

    def __init__(
        self,
        system: Any,
        parent: Cell | None,
        actor_class: type[ProcessActor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        supervision: Any,
    ) -> None:
        self.hosted = actor_class
        host: type[Actor] = actor_class._host_class()
        super().__init__(system, parent, host, (args, kwargs), {}, name, supervision)

    def retire(self) -> None:
        """Kill the process if it is still there."""
        if self.actor is not None:  # else it was stopped beside its constructor
            cast("Host", self.actor).kill()


class ProcessActor(Actor):
    """An actor that runs in a worker process of its own, started by *spawn*, not *fork*.

    Spawn it like any actor. Its constructor, handlers and hooks run in the worker; messages, replies, errors and the
    constructor's arguments are pickled. Its class must be importable by the worker.
    """

    memory_limit: ClassVar[int | None] = None
    """Bound of the worker's address space in bytes (``RLIMIT_AS``), its libraries included; None sets none. One that leaves
    less than 16 MiB beside what the worker has when it starts is a ``ValueError`` of the start."""

    max_message: ClassVar[int] = 256 * 1024 * 1024
    """The most bytes of a message or a reply when it is pickled."""

    start_timeout: ClassVar[float] = 60.0
    """Seconds that the process may take from its launch to the end of ``on_start``."""

    stop_timeout: ClassVar[float] = 5.0
    """Seconds that each of its last hooks, with the stop of its children, and then its exit, may take before it is killed."""

    _cell_class = ProcessCell
    _host: ClassVar[type[Host]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own, name = vars(cls), cls.__qualname__
        if own.get("memory_limit") is not None:
            count(f"{name}.memory_limit", own["memory_limit"], 1)
        if "max_message" in own:
            count(f"{name}.max_message", own["max_message"], 1)
        for what in ("start_timeout", "stop_timeout"):
            if what in own:
                seconds(f"{name}.{what}", own[what])

    @classmethod
    def _host_class(cls) -> type[Host]:
        host: Any = cls.__dict__.get("_host")
        if host is None:
            body = {"hosted": cls, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
            host = type(cls.__name__, (Host,), body)
            cls._host = host
        for setting in ("mailbox_capacity", "overflow", "stop_grace", "hook_timeout"):
            setattr(host, setting, getattr(cls, setting))
        return cast("type[Host]", host)

    async def on_start(self) -> None:  # type: ignore[override]
        """Go on with that of the next base class, in the worker: a :class:`~actors.patterns.StateMachine`'s, for example."""
        started: Any = super().on_start()
        if inspect.isawaitable(started):
            await started

    def stop(self) -> None:
        """Stop this actor after the messages that are in its mailbox now."""
        leave = getattr(self._cell, "leave", None)
        if leave is None:
            super().stop()
        else:
            leave()

    def stop_if_idle(self) -> bool:
        """Refuse: the messages that wait for a process actor are in its parent.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{self} runs in a process of its own and does not see its mailbox, which is in the parent; use stop()"
        )
