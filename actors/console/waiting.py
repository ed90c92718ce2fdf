"""Who waits for whom, who holds them up, and which actors wait in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from actors.tracing.waits import STEP, wait_graph_steps

if TYPE_CHECKING:
    from actors._system import ActorSystem

MAX_BLOCKERS = 50
"""Most actors that are named as holding up others, those first whose waiters lose the most time."""

MAX_CHAIN = 12
"""Most actors of a chain that is shown."""

MAX_SHOWN = 100
"""Most asks and cycles of one frame."""


def waiting_steps(system: ActorSystem) -> Generator[None, None, dict[str, Any]]:
    """Describe the waits in steps, between which the loop turns.

    Returns:
        ``blockers``: actors that others wait for and that wait for no actor themselves (or in a circle), with the number
        of those that wait directly or through others, the longest chain and what the blocker does; ``cycles``;
        ``asks``: the oldest; ``total``: the number of asks.
    """
    graph = yield from wait_graph_steps(system)
    waits_for: dict[str, str] = dict(graph["waits"])
    waiters: dict[str, list[str]] = {}
    outside: dict[str, int] = {}
    oldest: dict[str, float] = {}
    for asker, target in waits_for.items():
        waiters.setdefault(target, []).append(asker)
    yield
    for ask in graph["asks"]:
        target = ask["target"]
        oldest[target] = max(oldest.get(target, 0.0), ask["age"])
        if ask["asker"] is None:
            outside[target] = outside.get(target, 0) + 1
    in_cycle = {path for cycle in graph["cycles"] for path in cycle}
    roots = [path for path in {*waiters, *outside} if path not in waits_for and path not in in_cycle]
    found = []
    seen = 0
    for root in roots:
        before, chain = _behind(root, waiters)
        callers = sum(outside.get(path, 0) for path in before)
        found.append((len(before) - 1 + callers, root, chain, callers))
        seen += len(before)
        if seen >= STEP:
            seen = 0
            yield
    # By the time that all lose: one who is asked often and answers at once holds nobody up.
    found.sort(key=lambda each: (-each[0] * oldest.get(each[1], 0.0), each[1]))
    return {
        "blockers": [
            {
                **described(system, root),
                "waiters": count,
                "direct": len(waiters.get(root, ())),
                "callers": callers,
                "oldest": oldest.get(root, 0.0),
                "chain": chain,
            }
            for count, root, chain, callers in found[:MAX_BLOCKERS]
        ],
        "more": max(0, len(found) - MAX_BLOCKERS),
        "cycles": [_circle(cycle, graph["asks"], waits_for) for cycle in graph["cycles"][:MAX_SHOWN]],
        "asks": graph["asks"][:MAX_SHOWN],
        "total": len(graph["asks"]) + graph["hidden"],
        "unseen": graph["unseen"],
    }


def _behind(root: str, waiters: dict[str, list[str]]) -> tuple[dict[str, str | None], list[str]]:
    """Find all that wait for an actor, directly or not, and the longest chain that ends at it."""
    before: dict[str, str | None] = {root: None}
    todo = deque([root])
    last = root
    while todo:
        last = todo.popleft()
        for each in waiters.get(last, ()):
            if each not in before:
                before[each] = last
                todo.append(each)
    chain: list[str] = []
    at: str | None = last
    while at is not None and len(chain) < MAX_CHAIN:
        chain.append(at)
        at = before[at]
    if at is not None:
        chain[-1] = root
    return before, chain


def _circle(
    cycle: list[str], asks: Iterable[dict[str, Any]], waits_for: dict[str, str]
) -> list[dict[str, Any]]:
    """Put the members of a cycle in the order in which they wait, each with what it asked for."""
    members = set(cycle)
    asked = {
        (ask["asker"], ask["target"]): ask
        for ask in asks
        if ask["asker"] in members and ask["target"] in members
    }
    following: dict[str, str] = dict(asked.keys())
    following |= {each: waits_for[each] for each in cycle if waits_for.get(each) in members}
    at, ordered = cycle[0], list[str]()
    while at not in ordered and at in following:
        ordered.append(at)
        at = following[at]
    ordered += [each for each in cycle if each not in ordered]
    found = []
    for path in ordered[:MAX_SHOWN]:
        ask = asked.get((path, following.get(path)))
        found.append(
            {
                "path": path,
                "target": following.get(path),
                "message": ask and ask["message"],
                "age": ask and ask["age"],
            }
        )
    return found


def described(system: ActorSystem, path: str) -> dict[str, Any]:
    """Say what an actor does at the moment.

    Args:
        system: its system.
        path: the actor's.
    """
    ref: Any = system.lookup(path)
    if ref is None:
        return {"path": path, "class": None, "state": "gone", "current": None, "busy": None, "depth": 0}
    cell = ref._cell
    envelope = cell.envelope
    return {
        "path": path,
        "class": cell.actor_class.__name__,
        "state": cell.state,
        "current": None if envelope is None else type(envelope[0]).__name__,
        "busy": None if envelope is None else (cell.clock() - cell.began) / 1e9,
        "depth": len(cell.mailbox),
    }


__all__ = ["waiting_steps"]
