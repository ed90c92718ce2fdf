"""What is seen of a system from outside: its actors by path, their statistics, and each message, by instruments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors._checks import one_of
from actors._core import inspection
from actors._core.instruments import Hooks, Instrument

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.inspection import PendingAsk
    from actors._core.stats import ActorStatistics
    from actors._ref import ActorRef


@dataclass(frozen=True, slots=True)
class StopReport:
    """The outcome of a stop: ``left`` has a line for each actor that did not stop in time."""

    left: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Tell whether all actors stopped."""
        return not self.left


class SystemView:
    """The half of :class:`actors.ActorSystem` that shows its actors and has them observed.

    Args:
        clock: nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.top: dict[str, Cell] = {}
        """The cells of the top-level actors, oldest first."""
        self._hooks = Hooks(self._hooks_changed)

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        """The top-level actors, oldest first."""
        return tuple(cell.ref for cell in tuple(self.top.values()))

    def walk(self) -> list[Cell]:
        """The cells of all living actors, parents before children; for tools inside the runtime."""
        return inspection.walk(self.top)

    def paths(self) -> list[str]:
        """The paths of all living actors, parents before children."""
        return [cell.path for cell in self.walk()]

    def lookup(self, path: str) -> ActorRef[Any] | None:
        """The living actor at a path such as ``/service/default/g1``, or None."""
        return inspection.lookup(self.top, path)

    def find(self, pattern: str) -> list[ActorRef[Any]]:
        """The living actors whose paths match a shell pattern such as ``/service/*/g1``.

        ``*`` stands for one part of a path or a piece of one, ``**`` for any number of parts.
        """
        return inspection.find(self.top, pattern)

    def statistics(self) -> list[ActorStatistics]:
        """The statistics of all living actors, parents before children."""
        return [inspection.statistics_of(cell) for cell in self.walk()]

    def pending_asks(self) -> list[PendingAsk]:
        """All asks that wait in a mailbox or are being handled, oldest first."""
        return inspection.pending_asks(self.top, self.clock())

    def dump(self) -> str:
        """All actors, a line each, with the stacks of the handlers that wait."""
        return "\n".join(self.dumping())

    def dumping(self) -> Iterator[str]:
        """Yield what :meth:`dump` says, actor by actor. Actors may start and stop in between, and may then be missed or included."""
        return inspection.dumping(self.top)

    def instrument(self, instrument: Instrument) -> Callable[[], None]:
        """Install an instrument, which sees every message; return a function that removes it.

        Raises:
            TypeError: it is no :class:`Instrument`, but its class, for example.
        """
        one_of("what is installed", instrument, Instrument)
        self._hooks.add(instrument)
        self._hooks_changed()
        return lambda: self._hooks.remove(instrument)

    @property
    def hooks_in_use(self) -> Hooks | None:
        """The instruments' hooks; None if no instrument is installed."""
        return self._hooks if self._hooks.instruments else None

    def _hooks_changed(self) -> None:
        hooks = self.hooks_in_use
        for cell in self.walk():
            cell.hooks = cell.mailbox.hooks = hooks
