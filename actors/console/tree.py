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
    from actors.tracing.protocol import Sample

MAX_OPEN = 200
"""Most nodes that are open at one time."""

MAX_CHILDREN = 50
"""Most children of a node that are shown; those in trouble come first."""


class Below:
    """Sums over an actor and all below it."""

    __slots__ = ("actors", "depth", "errors", "level", "oldest", "out", "restarts", "troubled")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.actors = self.depth = self.level = self.oldest = self.restarts = self.troubled = 0
        self.errors = self.out = 0.0

    def count(self, sample: Sample, now: int) -> Below:
        """Add an actor without those below it; return the sums.

        Args:
            sample: of the actor.
            now: the moment of the samples.
        """
        row = sample.row
        self.actors += 1
        self.depth += row[DEPTH]
        self.restarts += row[RESTARTS]
        self.errors += row[ERRORS]
        self.out += row[OUT]
        if row[OLDEST] and (not self.oldest or row[OLDEST] < self.oldest):
            self.oldest = row[OLDEST]
        level, _ = health(row, now)
        if level:
            self.troubled += 1
            self.level = max(self.level, level)
        return self

    def add(self, other: Below) -> None:
        """Add the sums of a child."""
        self.actors += other.actors
        self.depth += other.depth
        self.out += other.out
        self.errors += other.errors
        self.restarts += other.restarts
        self.troubled += other.troubled
        self.level = max(self.level, other.level)
        if other.oldest and (not self.oldest or other.oldest < self.oldest):
            self.oldest = other.oldest


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
    now, samples = board.census.at, board.census.samples
    below = yield from _sums_below(board, now)
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
        known = [cell for cell in tuple(children.values()) if cell in samples]
        # Stable: otherwise the oldest first.
        known.sort(key=lambda cell: -_level(board, below, cell, now))
        yield
        node["nodes"] = []
        node["more"] = max(0, len(known) - MAX_CHILDREN)
        for cell in known[:MAX_CHILDREN]:
            sums = below.get(cell) or Below().count(samples[cell], now)
            node["nodes"].append(child := _node(board, cell, sums, now))
            if cell.path in paths and cell.children:
                todo.append((child, cell.children))
        yield
    return root


def _sums_below(board: Board, now: int) -> Generator[None, None, dict[Cell | None, Below]]:
    """Sum up, in steps, each actor that has children and what is below it; None stands for the root.

    Of thousands of actors nearly all have no children: they are added to their parents' sums, and those that are quiet only counted.
    """
    below: dict[Cell | None, Below] = {None: Below()}
    for part in slices(board.items(), GLANCE // 2):
        for sample in part:
            cell = sample.cell
            owner = cell if cell.children else cell.parent
            sums = below.get(owner)
            if sums is None:
                sums = below[owner] = Below()
            if board.is_busy(sample):
                sums.count(sample, now)
            else:
                sums.actors += 1
                sums.restarts += sample.row[RESTARTS]
        yield
    levels: list[list[Cell]] = []
    for each in tuple(below):
        if each is not None:
            _put(levels, each)
    while levels:
        for cell in levels.pop():
            parent = cell.parent
            if parent not in below:
                below[parent] = Below()
                assert parent is not None
                _put(levels, parent)
            below[parent].add(below[cell])
        yield
    return below


def _level(board: Board, below: dict[Cell | None, Below], cell: Cell, now: int) -> int:
    """Return the worst level of an actor and of those below it."""
    if (sums := below.get(cell)) is not None:
        return sums.level
    sample = board.census.samples[cell]
    return health(sample.row, now)[0] if board.is_busy(sample) else 0


def _put(levels: list[list[Cell]], cell: Cell) -> None:
    """Add an actor to the list of its level: the roots' children are level 0."""
    level, at = 0, cell.parent
    while at is not None:
        level, at = level + 1, at.parent
    while len(levels) <= level:
        levels.append([])
    levels[level].append(cell)


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
