"""Messages of the runtime itself. ``Terminated`` and ``ReceiveTimeout`` are what actors get to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._ref import ActorRef


R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """A message that names the type of its reply, for a type checker; a base class of messages.

    ``class GetSize(Request[int])`` makes ``await ref.ask(GetSize(), block=False)`` an ``int``. Any
    other message can be asked as well; its reply is ``Any``. Nothing is checked at run time.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Terminated:
    """A watched actor is gone for good; ``error`` is what ended it, None if it was stopped."""

    ref: ActorRef[Any]
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class ReceiveTimeout:
    """No message came for as long as :meth:`actors.Actor.set_receive_timeout` says."""


@dataclass(frozen=True, slots=True)
class Piped:
    """What a ``pipe_to_self`` without mappers delivers: a value, or the error instead of it."""

    value: Any
    error: BaseException | None
    tag: Any = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A ``Terminated`` that was stashed: its watch is over, it is delivered all the same."""

    message: Terminated


@dataclass(frozen=True, slots=True)
class ChildStopped:
    """To the parent: a child is gone."""

    ref: ActorRef[Any]


@dataclass(frozen=True, slots=True)
class Watch:
    """To the watched: tell this cell of your end."""

    watcher: Cell


@dataclass(frozen=True, slots=True)
class Unwatch:
    """To the watched: the opposite of :class:`Watch`."""

    watcher: Cell
