"""Who waits for whom, as plain data: the pending asks and the graph that they make.

The runtime refuses an ask that closes a circle of handlers. Circles that this shows are those it
cannot know: an actor that took a reply over (``take_reply``) and waits for somebody else beside its
mailbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._system import ActorSystem

MAX_ASKS = 1_000
"""Pending asks in one answer, the oldest; ``hidden`` counts the rest."""


def wait_graph(system: ActorSystem) -> dict[str, Any]:
    """The pending asks, oldest first, each with whether it is part of a circle.

    Returns:
        ``asks``: maps of asker (None: from outside of actors), target, message (type's name),
        state, age (seconds) and ``cycle``; ``waits``: pairs (path, path that its handler waits
        for); ``cycles``: lists of paths; ``hidden``: asks beyond ``MAX_ASKS``.
    """
    pending = system.pending_asks()
    edges: dict[str, set[str]] = {}
    for ask in pending:
        if ask.asker is not None:
            edges.setdefault(ask.asker, set()).add(ask.target)
    waits = []
    for cell in system._walk():
        target = None if cell.waiting_on is None else cell.waiting_on.target
        if target is not None:
            waits.append((cell.path, target.path))
            edges.setdefault(cell.path, set()).add(target.path)
    cycles = find_cycles(edges)
    member = {path: number for number, cycle in enumerate(cycles) for path in cycle}
    asks = [
        {
            "asker": ask.asker,
            "target": ask.target,
            "message": ask.message,
            "state": ask.state,
            "age": ask.age,
            "cycle": ask.asker in member and member.get(ask.target) == member[ask.asker],
        }
        for ask in pending[:MAX_ASKS]
    ]
    return {
        "asks": asks,
        "waits": waits,
        "cycles": cycles,
        "hidden": max(0, len(pending) - MAX_ASKS),
    }


def find_cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that all reach each other (Tarjan's components), sorted; not recursive."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []
    for root, targets in edges.items():
        if root in index:
            continue
        work = [(root, iter(sorted(targets)))]
        index[root] = low[root] = len(index)
        path.append(root)
        while work:
            node, following = work[-1]
            for target in following:
                if target not in index:
                    index[target] = low[target] = len(index)
                    path.append(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in path:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = path[path.index(node) :]
                    del path[path.index(node) :]
                    if len(group) > 1 or node in edges.get(node, ()):
                        found.append(sorted(group))
    return sorted(found)


__all__ = ["wait_graph"]
