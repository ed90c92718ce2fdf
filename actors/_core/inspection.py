"""Reports: of one actor (statistics, headers) and of a tree (paths, lookup, pending asks, a dump).

The functions on a tree take the dict of its top-level cells.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from actors._core.stack import stack_of
from actors._core.stats import ActorStatistics, Histogram, MailboxStatistics
from actors._core.waiting import waits

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.mailbox import Mailbox
    from actors._ref import ActorRef

Tree: TypeAlias = "dict[str, Cell]"
"""The top-level cells by name."""


@dataclass(frozen=True, slots=True)
class PendingAsk:
    """An ask that has no reply yet.

    ``asker`` and ``target`` are paths (the asker None outside of actors), ``message`` is the message's
    type, ``state`` is ``queued`` or ``handling``, ``age`` is in seconds.
    """

    asker: str | None
    target: str
    message: str
    state: str
    age: float


def path_pattern(pattern: str) -> re.Pattern[str]:
    """Translate a shell pattern for paths: ``*`` and ``?`` stay within one part of the path, ``**`` does not."""
    parts = re.split(r"(\*\*|\*|\?|\[!?[^]/]+\])", pattern)
    known = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    translated = "".join(
        known[part] if part in known else part.replace("[!", "[^", 1) if index % 2 else re.escape(part)
        for index, part in enumerate(parts)
    )
    return re.compile(f"{translated}\\Z", re.DOTALL)


# -- one actor ----------------------------------------------------------------------------------


def recent_headers(cell: Cell) -> tuple[tuple[str, str | None, float], ...]:
    """The headers of the last messages; see :class:`actors.ActorFailed`."""
    now = cell.clock()
    return tuple(
        (kind.__name__, None if sender is None else sender.path, (now - sent) / 1e9)
        for kind, sender, sent in cell.recent or ()
    )


def mailbox_statistics(mailbox: Mailbox) -> MailboxStatistics:
    """Depths, bounds and counts of a mailbox."""
    heads: list[int] = []
    for lane in mailbox.lanes():
        with contextlib.suppress(IndexError):  # its actor, in another thread, was faster
            heads.append(lane[0][2])
    oldest = min(heads, default=None)
    return MailboxStatistics(
        depth=len(mailbox),
        capacity=mailbox.capacity,
        normal=len(mailbox.normal),
        priority=len(mailbox._priority or ()),
        system=len(mailbox._system or ()),
        stashed=len(mailbox.cell.stashed or ()),
        waiting=sum(map(waits, tuple(mailbox.waiting or ()))),
        dropped=mailbox.dropped,
        rejected=mailbox.rejected,
        oldest_age=0.0 if oldest is None else max(0, mailbox.cell.clock() - oldest) / 1e9,
    )


def statistics_of(cell: Cell) -> ActorStatistics:
    """See :class:`actors.ActorStatistics`."""
    envelope = cell.envelope
    runs = Histogram.of(tuple(cell.runs))
    return ActorStatistics(
        path=cell.path,
        actor_class=cell.actor_class.__name__,
        state=cell.state,
        processed=runs.total,
        failed=cell.failed,
        abandoned=cell.abandoned,
        restarts=cell.restarts,
        children=len(cell.children),
        tasks=len(cell.tasks or ()),
        mailbox=mailbox_statistics(cell.mailbox),
        wait=Histogram.of(tuple(cell.waits)),
        run=runs,
        current=None if envelope is None else type(envelope[0]).__name__,
        current_age=0.0 if envelope is None else (cell.clock() - cell.began) / 1e9,
    )


def describe(cell: Cell) -> str:
    """One line: the actor's path, state, current message and queue."""
    envelope = cell.envelope
    at = "" if envelope is None else f", handling {type(envelope[0]).__name__}"
    return f"{cell.path} ({cell.state}{at}, {len(cell.mailbox)} waiting)"


# -- a tree -------------------------------------------------------------------------------------


def walk(top: Tree) -> list[Cell]:
    """All living actors' cells, parents before children."""
    return list(walking(top))


def walking(top: Tree) -> Iterator[Cell]:
    """Yield what :func:`walk` returns; actors may start and stop between two steps, and may then be missed or included."""
    todo = list(reversed(tuple(top.values())))
    while todo:
        cell = todo.pop()
        yield cell
        if cell.children:
            todo.extend(reversed(tuple(cell.children.values())))


def lookup(top: Tree, path: str) -> ActorRef[Any] | None:
    """See :meth:`actors.ActorSystem.lookup`."""
    siblings, found = top, None
    for name in path.strip("/").split("/"):
        found = siblings.get(name)
        if found is None:
            return None
        siblings = found.children
    return None if found is None else found.ref


def find(top: Tree, pattern: str) -> list[ActorRef[Any]]:
    """See :meth:`actors.ActorSystem.find`."""
    matches = path_pattern(pattern).match
    return [cell.ref for cell in walk(top) if matches(cell.path)]


def pending_asks(top: Tree, now: int) -> list[PendingAsk]:
    """See :meth:`actors.ActorSystem.pending_asks`; ``now`` is the system's clock in ns.

    Args:
        top: the top-level cells by name.
        now: the system's clock, in ns.
    """
    found: list[PendingAsk] = []
    for cell in walk(top):
        handled = () if cell.envelope is None else (cell.envelope,)
        for envelope in (*handled, *cell.mailbox):
            message, reply, sent, sender, *_ = envelope
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


def dumping(top: Tree) -> Iterator[str]:
    """See :meth:`actors.ActorSystem.dumping`."""
    for cell in walking(top):
        lines = [describe(cell)]
        if cell.waiting_on is not None and cell.waiting_on.target is not None:
            lines.append(f"    waits for {cell.waiting_on.target.path}")
        lines.extend(f"  {line}" for line in (stack_of(cell.task) or "").splitlines())
        yield "\n".join(lines)
