"""The pending asks of a system and the graph of actors that wait for each other, as plain data.

The runtime refuses an ask that closes a cycle of handlers. This graph also shows the cycles that the runtime
cannot see: an actor takes a reply over (``take_reply``) and then waits for another actor beside its mailbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._system import ActorSystem

MAX_ASKS = 1_000
"""Most asks in one answer, oldest first; ``hidden`` counts the others."""


def wait_graph(system: ActorSystem) -> dict[str, Any]:
    """List the pending asks, oldest first, and find the cycles among them.

    Returns:
        A dictionary with four keys:

        - ``asks``: dictionaries with the path of the asker (None: asked from outside of actors), the path of
          the target, the message's type name, the state, the age in seconds, and ``cycle``, which says
          whether the ask is part of a cycle;
        - ``waits``: pairs of paths: the first actor's handler waits for the second actor;
        - ``cycles``: lists of paths of actors that wait for each other;
        - ``hidden``: the number of asks beyond ``MAX_ASKS``.
    """
    pending = system.pending_asks()
    edges: dict[str, set[str]] = {}
    for ask in pending:
        if ask.asker is not None:
            edges.setdefault(ask.asker, set()).add(ask.target)
    waits = []
    for cell in system.walk():
        target = None if cell.waiting_on is None else cell.waiting_on.target
        if target is not None:
            waits.append((cell.path, target.path))
            edges.setdefault(cell.path, set()).add(target.path)
    cycles = find_cycles(edges)
    cycle_of = {path: number for number, cycle in enumerate(cycles) for path in cycle}
    asks = [
        {
            "asker": ask.asker,
            "target": ask.target,
            "message": ask.message,
            "state": ask.state,
            "age": ask.age,
            "cycle": ask.asker in cycle_of and cycle_of.get(ask.target) == cycle_of[ask.asker],
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
    """Find the strongly connected components that contain a cycle, each sorted (Tarjan, without recursion).

    Args:
        edges: for each node, the nodes that it points to.
    """
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
                    component = path[path.index(node) :]
                    del path[path.index(node) :]
                    if len(component) > 1 or node in edges.get(node, ()):
                        found.append(sorted(component))
    return sorted(found)


__all__ = ["wait_graph"]
