"""What can be seen of a system from outside: paths, lookup, statistics, pending asks, a dump."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors._core.stack import stack_of

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.stats import ActorStatistics
    from actors._ref import ActorRef


@dataclass(frozen=True, slots=True)
class PendingAsk:
    """An ask without a reply so far. ``state`` is queued or handling; ``age`` in seconds."""

    asker: str | None
    target: str
    message: str
    state: str
    age: float


def path_pattern(pattern: str) -> re.Pattern[str]:
    """A shell pattern for paths: ``*`` and ``?`` stay within one part of the path, ``**`` does not."""
    parts = re.split(r"(\*\*|\*|\?|\[!?[^]/]+\])", pattern)
    known = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    translated = "".join(
        known[part] if part in known else part.replace("[!", "[^", 1) if index % 2 else re.escape(part)
        for index, part in enumerate(parts)
    )
    return re.compile(f"{translated}\\Z", re.DOTALL)


class Looking:
    """The part of a system that only looks."""

    clock: Callable[[], int]
    _top: dict[str, Cell]

    def paths(self) -> list[str]:
        """The paths of all living actors, parents before children."""
        return [cell.path for cell in self._walk()]

    def lookup(self, path: str) -> ActorRef[Any] | None:
        """The living actor at a path such as ``/service/default/g1``, or None."""
        places, found = self._top, None
        for name in path.strip("/").split("/"):
            found = places.get(name)
            if found is None:
                return None
            places = found.children
        return None if found is None else found.ref

    def find(self, pattern: str) -> list[ActorRef[Any]]:
        """The living actors whose paths match a shell pattern such as ``/service/*/g1``.

        ``*`` stands for one part of a path, or a piece of one, ``**`` for as many as there are.
        """
        matches = path_pattern(pattern).match
        return [cell.ref for cell in self._walk() if matches(cell.path)]

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        """The top-level actors, oldest first."""
        return tuple(cell.ref for cell in tuple(self._top.values()))

    def statistics(self) -> list[ActorStatistics]:
        """The statistics of all living actors, parents before children."""
        return [cell.statistics() for cell in self._walk()]

    def pending_asks(self) -> list[PendingAsk]:
        """All asks that wait in a mailbox or are being handled, oldest first."""
        now = self.clock()
        found: list[PendingAsk] = []
        for cell in self._walk():
            handled = () if cell.envelope is None else (cell.envelope,)
            for envelope in (*handled, *cell.mailbox):
                message, reply, sent, sender, _ = envelope
                if reply is not None and not reply.done():
                    found.append(
                        PendingAsk(
                            None if sender is None else sender.path,
                            cell.path,
                            type(message).__name__,
                            "handling" if envelope is cell.envelope else "queued",
                            (now - sent) / 1e9,
                        )
                    )
        return sorted(found, key=lambda ask: -ask.age)

    def dump(self) -> str:
        """All actors with what they are at, and the stacks of the handlers that wait."""
        lines: list[str] = []
        for cell in self._walk():
            lines.append(cell.describe())
            if cell.waiting_on is not None and cell.waiting_on.target is not None:
                lines.append(f"    waits for {cell.waiting_on.target.path}")
            lines.extend(f"  {line}" for line in (stack_of(cell) or "").splitlines())
        return "\n".join(lines)

    def _walk(self) -> list[Cell]:
        found: list[Cell] = []
        todo = list(reversed(tuple(self._top.values())))
        while todo:
            cell = todo.pop()
            found.append(cell)
            todo.extend(reversed(tuple(cell.children.values())))
        return found
