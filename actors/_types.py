"""Structural types by which a type checker finds out what an actor takes and answers.

They are read from the annotations of ``on_receive``: with ``async def on_receive(self, message: int) -> str``,
``ref.tell("x")`` is an error and ``await ref.ask(1, block=False)`` a ``str``. An actor that annotates nothing, or
leaves its messages to ``@handles``, takes and answers ``Any``.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pykka import ActorDeadError

    from actors._core.cell import Cell
    from actors._errors import MailboxFull
    from actors._ref import ActorRef

M_contra = TypeVar("M_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)


class Takes(Protocol[M_contra]):
    """An actor that takes messages of type M."""

    def on_receive(self, message: M_contra, /) -> Any:
        """See :meth:`actors.Actor.on_receive`."""


class Answers(Protocol[M_contra, R_co]):
    """An actor that takes M and answers R."""

    def on_receive(self, message: M_contra, /) -> R_co:
        """See :meth:`actors.Actor.on_receive`."""
        ...


class AnswersLater(Protocol[M_contra, R_co]):
    """An actor that takes M and answers R from a coroutine."""

    def on_receive(self, message: M_contra, /) -> Coroutine[Any, Any, R_co]:
        """See :meth:`actors.Actor.on_receive`."""
        ...


class To(Protocol[A_co]):
    """A ref to an actor of type A, which need not be a class of actors: ``ActorRef`` itself is bound to these."""

    @property
    def actor_class(self) -> type[A_co]:
        """See :attr:`actors.ActorRef.actor_class`."""
        ...

    @property
    def _cell(self) -> Cell: ...

    def tell(self, message: Any, *, urgent: bool = False) -> None:
        """See :meth:`actors.ActorRef.tell`."""


class Routes(Protocol[A_co]):
    """A router to actors of type A."""

    @property
    def refs(self) -> tuple[To[A_co], ...]:
        """See :attr:`actors.Router.refs`."""
        ...

    def tell(self, message: Any, *, urgent: bool = False) -> None:
        """See :meth:`actors.Router.tell`."""

    def _pick(self, message: Any) -> ActorRef[Any]: ...

    def _all(self) -> tuple[ActorRef[Any], ...]: ...

    def _dead(self) -> ActorDeadError: ...

    def _tell_all(self, message: Any, urgent: bool) -> tuple[int, MailboxFull | None]: ...
