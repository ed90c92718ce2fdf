"""Messages of the runtime itself; actors see ``Terminated``, ``ReceiveTimeout`` and ``Piped``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from actors._core.error_text import repr_of_fields

if TYPE_CHECKING:
    from actors._ref import ActorRef


R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """Base class of messages that tell a type checker the type of their reply.

    With ``class GetSize(Request[int])``, ``await ref.ask(GetSize(), block=False)`` is an ``int``, and
    so is what ``take_reply(message)`` is to be settled with. Other messages can be asked as well; their
    reply is ``Any``. Nothing is checked at run time.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Terminated:
    """A watched actor has stopped for good; ``error`` is its last failure, None if it was stopped."""

    ref: ActorRef[Any]
    error: BaseException | None = None

    __repr__ = repr_of_fields


@dataclass(frozen=True, slots=True)
class ReceiveTimeout:
    """No message came for the time that :meth:`actors.Actor.set_receive_timeout` sets."""


@dataclass(frozen=True, slots=True, repr=False)
class Piped:
    """The outcome of a ``pipe_to_self`` without mappers: a value, or an error instead."""

    value: Any
    error: BaseException | None
    tag: Any = None

    __repr__ = repr_of_fields


@dataclass(frozen=True, slots=True)
class Restored:
    """A stashed ``Terminated``: handled although its watch has ended."""

    message: Terminated


@dataclass(frozen=True, slots=True)
class ChildStopped:
    """To the parent: a child has stopped for good. Only the life (the instance) that had the child gets it."""

    ref: ActorRef[Any]
    life: object


@dataclass(frozen=True, slots=True)
class OfLife:
    """To the actor itself: the outcome of work that this life (this instance) has begun; no other gets it."""

    life: object
    message: Any
