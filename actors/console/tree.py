"""The supervision tree: the open nodes with the health of what is below them."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from actors.console.board import DEPTH, ERRORS, OLDEST, OUT, RESTARTS, STATE, Board, health
from actors.console.extension import BadQuery, Query
from actors.tracing.census import GLANCE, slices

if TYPE_CHECKING:
    from actors._core.cell import Cell

MAX_OPEN = 200
"""Most nodes that are open at one time."""

MAX_CHILDREN = 50
"""Most children of a node that are shown; those in trouble come first."""


class Below:
    """Sums over an actor and all below it."""

    __slots__ = ("actors", "depth", "errors", "level", "oldest", "out", "restarts", "troubled")

    def __init__(self) -> None:
        self.actors = self.depth = self.level = self.oldest = self.restarts = self.troubled = 0
        self.errors = self.out = 0.0


def opened(query: Query) -> set[str]:
    """Return the open paths of a query: ``open`` is a JSON list of them.

    Raises:
        BadQuery: it is none, or too long.
    """
    try:
        paths = json.loads(query.get("open") or "[]")
    except (ValueError, RecursionError):
        raise BadQuery("open is a JSON list of paths") from None
    if (
        not isinstance(paths, list)
        or len(paths) > MAX_OPEN
        or not all(isinstance(path, str) for path in paths)
    ):
        raise BadQuery(f"open is a JSON list of {MAX_OPEN} paths at most")
    return set(paths)


def tree_steps(board: Board, query: Query) -> Generator[None, None, dict[str, Any]]:
    """Describe the tree in steps, between which the loop turns.

    Args:
        board: a fresh board.
        query: see :func:`opened`.

    Returns:
        the root: a node has ``path``, ``name``, ``class``, ``state``, the sums of :class:`Below`, the number of ``children`` and,
        if it is open, ``nodes`` and how many ``more`` there are.
    """
    paths = opened(query)
    now = board.census.at
    below: dict[Cell | None, Below] = {None: Below()}
    for part in slices(board.items(), GLANCE // 4):
        for sample in part:
            cell, row = sample.cell, sample.row
            level, _ = health(row, now)
            own = below.get(cell) or below.setdefault(cell, Below())
            at: Cell | None = cell
            while True:
                sums = own if at is cell else below.setdefault(at, Below())
                sums.actors += 1
                sums.depth += row[DEPTH]
                sums.out += row[OUT]
                sums.errors += row[ERRORS]
                sums.restarts += row[RESTARTS]
                if row[OLDEST] and (not sums.oldest or row[OLDEST] < sums.oldest):
                    sums.oldest = row[OLDEST]
                if level:
                    sums.troubled += 1
                    sums.level = max(sums.level, level)
                if at is None:
                    break
                at = at.parent
        yield
    root = {
        "path": "/",
        "name": board.system.name,
        "class": "",
        "state": "",
        "reason": "",
        "children": len(board.system.top),
        **_sums(below[None], now),
    }
    todo: list[tuple[dict[str, Any], dict[str, Cell]]] = [(root, board.system.top)]
    while todo:
        node, children = todo.pop()
        known = [cell for cell in tuple(children.values()) if cell in below]
        known.sort(key=lambda cell: -below[cell].level)  # stable: otherwise the oldest first
        yield
        node["nodes"] = []
        node["more"] = max(0, len(known) - MAX_CHILDREN)
        for cell in known[:MAX_CHILDREN]:
            node["nodes"].append(child := _node(board, cell, below[cell], now))
            if cell.path in paths and cell.children:
                todo.append((child, cell.children))
        yield
    return root


def _node(board: Board, cell: Cell, sums: Below, now: int) -> dict[str, Any]:
    row = board.census.samples[cell].row
    return {
        "path": cell.path,
        "name": cell.name,
        "class": cell.actor_class.__name__,
        "state": row[STATE],
        "reason": health(row, now)[1],
        "own": health(row, now)[0],
        "children": len(cell.children),
        **_sums(sums, now),
    }


def _sums(sums: Below, now: int) -> dict[str, Any]:
    return {
        "actors": sums.actors,
        "depth": sums.depth,
        "out_rate": sums.out,
        "error_rate": sums.errors,
        "restarts": sums.restarts,
        "level": sums.level,
        "troubled": sums.troubled,
        "age": (now - sums.oldest) / 1e9 if sums.oldest else None,
    }


__all__ = ["tree_steps"]
