"""The pending asks of a system and the graph of actors that wait for each other, as plain data.

The runtime refuses an ask that closes a cycle of handlers. This graph also shows the cycles that the runtime
cannot see: an actor takes a reply over (``take_reply``) and then waits for another actor beside its mailbox.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from actors._core.inspection import PendingAsk, walking

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._system import ActorSystem

MAX_ASKS = 1_000
"""Most asks in one answer, oldest first; ``hidden`` counts the others."""

MAX_MESSAGES = 1_000
"""Most messages of one mailbox that are looked at, those handled next first; ``unseen`` counts the others."""

STEP = 2_000
"""Most actors, messages or edges that one step goes through; it takes about 2 ms."""


def wait_graph(system: ActorSystem) -> dict[str, Any]:
    """List the pending asks, oldest first, and find the cycles among them.

    It takes some 2 microseconds for each actor and each message that waits. :func:`wait_graph_steps` does
    the same without keeping the loop.

    Returns:
        A dictionary with five keys:

        - ``asks``: dictionaries with the path of the asker (None: asked from outside of actors), the path of
          the target, the message's type name, the state, the age in seconds, and ``cycle``, which says
          whether the ask is part of a cycle;
        - ``waits``: pairs of paths: the first actor's handler waits for the second actor;
        - ``cycles``: lists of paths of actors that wait for each other;
        - ``hidden``: the number of asks beyond ``MAX_ASKS``;
        - ``unseen``: the number of messages beyond ``MAX_MESSAGES`` in each mailbox.
    """
    steps = wait_graph_steps(system)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, Any] = end.value
            return found


def wait_graph_steps(system: ActorSystem) -> Generator[None, None, dict[str, Any]]:
    """Do what :func:`wait_graph` does in steps of ``STEP``: let the loop turn after each.

    The graph is then of several moments: an ask that was answered meanwhile may still be there.
    """
    pending: list[tuple[PendingAsk, str | None, str]] = []
    waits: list[tuple[str, str]] = []
    edges: dict[str, set[str]] = {}
    unseen = done = 0
    now = system.clock()
    others: dict[ActorSystem, int] = {}

    def node(cell: Cell) -> str:
        """The actor's path; of another system's, where the path may be the same, with a prefix that no path has."""
        if cell.system is system:
            return cell.path
        return f"{others.setdefault(cell.system, len(others))}:{cell.path}"

    for cell in walking(system.top):
        if cell.envelope is None and cell.waiting_on is None and cell.mailbox.empty():
            done += 1  # of thousands of actors nearly all are idle
            if done >= STEP:
                done = 0
                yield
            continue
        depth = 0 if cell.mailbox.empty() else len(cell.mailbox)
        unseen += max(0, depth - MAX_MESSAGES)
        if depth or cell.envelope is not None:
            pending += (
                (ask, None if sender is None else node(sender), cell.path)
                for ask, sender in _asks_and_askers(cell, now)
            )
        waiting = cell.waiting_on  # read once: a thread may change it
        target = None if waiting is None else waiting.target
        if target is not None:
            waits.append((cell.path, target.path))
            edges.setdefault(cell.path, set()).add(node(target))
        done += 1 + min(depth, MAX_MESSAGES)
        if done >= STEP:
            done = 0
            yield
    for _, asker, asked in pending:
        if asker is not None:
            edges.setdefault(asker, set()).add(asked)
        done += 1
        if done % STEP == 0:
            yield
    cycles = yield from cycle_steps(edges)
    cycle_of = {each: number for number, cycle in enumerate(cycles) for each in cycle}
    pending.sort(key=lambda entry: -entry[0].age)
    hidden = max(0, len(pending) - MAX_ASKS)
    return {
        "asks": [_shown(*each, cycle_of) for each in pending[:MAX_ASKS]],
        "waits": waits,
        "cycles": [[_path(each) for each in cycle] for cycle in cycles],
        "hidden": hidden,
        "unseen": unseen,
    }


def _shown(ask: PendingAsk, asker: str | None, asked: str, cycle_of: dict[str, int]) -> dict[str, Any]:
    return {
        "asker": ask.asker,
        "target": ask.target,
        "message": ask.message,
        "state": ask.state,
        "age": ask.age,
        "cycle": asker in cycle_of and cycle_of.get(asked) == cycle_of[asker],
    }


def asks_of(cell: Cell, now: int) -> Iterator[PendingAsk]:
    """Yield the asks that an actor has not answered: the handled one and the first ``MAX_MESSAGES`` that wait.

    Args:
        cell: the actor.
        now: the current time in nanoseconds of the system's clock.
    """
    return (ask for ask, _ in _asks_and_askers(cell, now))


def _asks_and_askers(cell: Cell, now: int) -> Iterator[tuple[PendingAsk, Cell | None]]:
    handled = cell.envelope
    for envelope in (*(() if handled is None else (handled,)), *islice(cell.mailbox, MAX_MESSAGES)):
        message, reply, sent, sender, *_ = envelope
        if reply is not None and not reply.done():
            ask = PendingAsk(
                None if sender is None else sender.path,
                cell.path,
                type(message).__name__,
                "handling" if envelope is handled else "queued",
                (now - sent) / 1e9,
            )
            yield ask, sender


def _path(node: str) -> str:
    return node if node.startswith("/") else node.partition(":")[2]


def find_cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Find the strongly connected components that contain a cycle, each sorted.

    Args:
        edges: for each node, the nodes that it points to.
    """
    steps = cycle_steps(edges)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[list[str]] = end.value
            return found


def cycle_steps(edges: dict[str, set[str]]) -> Generator[None, None, list[list[str]]]:
    """Do what :func:`find_cycles` does (Tarjan, without recursion), and yield after each ``STEP`` edges."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    place: dict[str, int] = {}  # of each node that is on the path
    found: list[list[str]] = []
    passed = 0

    def enter(node: str) -> tuple[str, Iterator[str]]:
        index[node] = low[node] = len(index)
        place[node] = len(path)
        path.append(node)
        return node, iter(sorted(edges.get(node, ())))

    for root in edges:
        if root in index:
            continue
        work = [enter(root)]
        while work:
            passed += 1
            if passed % STEP == 0:
                yield
            node, following = work[-1]
            for target in following:
                if target not in index:
                    work.append(enter(target))
                    break
                if target in place:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = path[place[node] :]
                    del path[place[node] :]
                    for each in component:
                        del place[each]
                    if len(component) > 1 or node in edges.get(node, ()):
                        found.append(sorted(component))
    return sorted(found)


__all__ = ["find_cycles", "wait_graph", "wait_graph_steps"]
