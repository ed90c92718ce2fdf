"""Whom a ref stands for: what pykka's refs have as attributes, and the actor's place in its system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import pykka

from actors._core.inspection import statistics_of
from actors._core.mailbox import Mailbox

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # type checkers know it without the package

    from actors._core.cell import Cell
    from actors._core.stats import ActorStatistics

    A_co = TypeVarWithDefault("A_co", bound=pykka.Actor, covariant=True, default=Any)
else:
    A_co = TypeVar("A_co", bound=pykka.Actor, covariant=True)


class Identity(pykka.ActorRef[A_co], Generic[A_co]):  # type: ignore[type-var]  # pykka's is invariant
    """The half of :class:`actors.ActorRef` that says who the actor is and how it does.

    Properties in place of pykka's attributes: a ref is made for every actor, and most are never asked for their URN (a
    uuid4 takes 2.7 us).
    """

    actor_inbox: Mailbox  # type: ignore[assignment]

    def __init__(self, cell: Cell, mailbox: Mailbox) -> None:
        self._cell = cell
        self.actor_inbox = mailbox

    @property
    def actor_class(self) -> type[A_co]:  # type: ignore[override]
        """The class of the actor."""
        return cast("type[A_co]", self._cell.actor_class)

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The actor's URN (a uuid4); it survives restarts."""
        return self._cell.urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """Tell whether the actor has stopped, as an event: ``is_set()``, ``wait(timeout)``."""
        return self._cell.stopped_flag

    @property
    def path(self) -> str:
        """The actor's path in its system, such as ``/service/default/g1/orders.3``."""
        return self._cell.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._cell.name

    def _actor_weakref(self) -> A_co | None:  # type: ignore[override]
        return cast("A_co | None", self._cell.actor)

    def __repr__(self) -> str:
        return f"<ActorRef for {self}>"

    def __str__(self) -> str:
        return self._cell.label

    # ``dataclasses.asdict`` and the like copy what a message holds. A ref has no state of its own.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError(f"the ref of {self} cannot be pickled: actors live in one process; see actors.remote")

    def is_alive(self) -> bool:
        """Tell whether the actor accepts messages (it does between a failure and its restart)."""
        return not self.actor_inbox.closed and not self._cell.loop.is_closed()

    def statistics(self) -> ActorStatistics:
        """Counters, histograms and the mailbox of this actor at this moment."""
        return statistics_of(self._cell)
