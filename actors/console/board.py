"""The actors as rows: their health, and pages of them, sorted and filtered on the server."""

from __future__ import annotations

import asyncio
import fnmatch
import heapq
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from actors._core.lifecycle import RESTARTING, STARTING
from actors.console.extension import BadQuery, Query
from actors.tracing.census import GLANCE, Census, slices
from actors.tracing.protocol import ROW, Sample

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._system import ActorSystem

MAX_ACTORS = 50_000
"""Most actors that the console looks at; ``hidden`` counts the others."""

MAX_PAGE = 200
"""Most rows of a page."""

MAX_SCOPE = 500
"""Most characters of a filter."""

OLD = 10.0
"""Seconds after which a waiting message, or one that is being handled, makes its actor worth a look."""

FULL = 0.8
"""The share of a mailbox's capacity from which it counts as nearly full."""

OK, WATCH, BAD = 0, 1, 2
"""Levels of health."""

_AT = {name: number for number, name in enumerate(ROW)}
STATE, DEPTH, CAPACITY, OLDEST = _AT["state"], _AT["depth"], _AT["capacity"], _AT["oldest"]
PROCESSED, FAILED, RESTARTS, REFUSED = _AT["processed"], _AT["failed"], _AT["restarts"], _AT["refused"]
CURRENT, SINCE, IN, OUT, ERRORS = (
    _AT["current"],
    _AT["since"],
    _AT["in_rate"],
    _AT["out_rate"],
    _AT["error_rate"],
)
WAIT, RUN = _AT["wait_p99"], _AT["run_p99"]

Row = tuple[Any, ...]
Key = Callable[["Cell", Row], Any]


def _column(number: int) -> Key:
    return lambda _cell, row: row[number]


def _moment(number: int) -> Key:
    return lambda _cell, row: -row[number] or float("-inf")


SORTS: dict[str, Key] = {
    "path": lambda cell, _row: cell.path,
    "class": lambda cell, _row: cell.actor_class.__name__,
    "state": _column(STATE),
    "depth": _column(DEPTH),
    "age": _moment(OLDEST),
    "busy": _moment(SINCE),
    "in": _column(IN),
    "out": _column(OUT),
    "errors": _column(ERRORS),
    "wait": _column(WAIT),
    "run": _column(RUN),
    "processed": _column(PROCESSED),
    "failed": _column(FAILED),
    "restarts": _column(RESTARTS),
    "refused": _column(REFUSED),
}
"""Keys to sort by. Moments are sorted by age: the smallest moment is the oldest, 0 is none."""


MOMENTARY = frozenset({"depth", "age", "busy", "in", "out", "errors", "wait", "run"})
"""Sorts by what is nothing for a quiet actor."""


def health(row: Row, now: int) -> tuple[int, str]:
    """Judge an actor by its row.

    Args:
        row: see :data:`actors.tracing.protocol.ROW`.
        now: the current time in nanoseconds of the system's clock.

    Returns:
        a level and the reason in words, empty if all is well.
    """
    depth, capacity = row[DEPTH], row[CAPACITY]
    if depth and depth >= capacity:
        return BAD, "mailbox full"
    if row[STATE] == RESTARTING:
        return BAD, "restarting"
    age = (now - row[OLDEST]) / 1e9 if row[OLDEST] else 0.0
    held = (now - row[SINCE]) / 1e9 if row[SINCE] else 0.0
    if age > OLD:
        return BAD, f"oldest waits {age:,.0f} s"
    if row[ERRORS] > 0:
        return BAD, f"{row[ERRORS]:,.1f} errors/s"
    if held > OLD:
        return WATCH, f"busy with one for {held:,.0f} s"
    if depth >= capacity * FULL and depth > 1:
        return WATCH, "mailbox nearly full"
    if row[STATE] == STARTING and row[DEPTH]:
        return WATCH, "starting while messages wait"
    return OK, ""


@dataclass(slots=True)
class Totals:
    """Sums over all actors as of a round; the moment is in nanoseconds of the system's clock, 0 for none."""

    actors: int = 0
    depth: int = 0
    handled: float = 0.0
    arrived: float = 0.0
    errors: float = 0.0
    failed: int = 0
    restarts: int = 0
    refused: int = 0
    oldest: int = 0
    troubled: int = 0
    bad: int = 0
    states: dict[str, int] = field(default_factory=dict)

    def count(self, row: Row, by: int) -> None:
        """Add an actor (``by`` 1) or take it out again (-1), with what it has counted so far."""
        self.actors += by
        self.states[row[STATE]] = self.states.get(row[STATE], 0) + by
        self.failed += by * row[FAILED]
        self.restarts += by * row[RESTARTS]
        self.refused += by * row[REFUSED]

    def add(self, row: Row, now: int) -> None:
        """Add what an actor does at the moment."""
        self.arrived += row[IN]
        self.handled += row[OUT]
        self.errors += row[ERRORS]
        self.depth += row[DEPTH]
        if row[OLDEST] and (not self.oldest or row[OLDEST] < self.oldest):
            self.oldest = row[OLDEST]
        level, _ = health(row, now)
        if level:
            self.troubled += 1
            self.bad += level == BAD


def is_quiet(row: Row) -> bool:
    """Tell whether an actor does nothing: then it is well, and last in the order of all figures of the moment."""
    return not (row[DEPTH] or row[SINCE] or row[IN] or row[OUT] or row[ERRORS] or row[STATE] == RESTARTING)


class Board:
    """A census of all actors for the console: one round a tick, whoever asks.

    Args:
        system: the system to look at.
        interval: seconds that a round stays fresh.
    """

    def __init__(self, system: ActorSystem, interval: float) -> None:
        self.system = system
        self.interval = interval
        self._begin()
        self.rounds = 0
        self.wall = 0.0
        """When the last round began, in seconds since 1970."""
        self._round: asyncio.Task[None] | None = None

    async def fresh(self) -> int:
        """See to it that the census is younger than the interval; return its moment in ns of the system's clock."""
        if self._round is None or self._round.done():
            now = self.system.clock()
            # Ticks come a little early or late: half an interval tells two of them apart.
            if self.census.at and (now - self.census.at) / 1e9 < self.interval / 2:
                return self.census.at
            self._round = asyncio.get_running_loop().create_task(self._look(now), name="actors.console.round")
        await asyncio.shield(self._round)
        return self.census.at

    async def _look(self, now: int) -> None:
        self.wall = time.time()
        self.rounds += 1
        census, totals, rows = self.census, self._counted, self._rows
        for seen in census.round(now):
            for sample in seen.dirty:
                old = rows.get(sample.id)
                if old is not None:
                    totals.count(old, -1)
                totals.count(sample.row, 1)
                rows[sample.id] = sample.row
                if is_quiet(sample.row):
                    self._busy.pop(sample.id, None)
                else:
                    self._busy[sample.id] = sample
            await asyncio.sleep(0)
        for number in census.gone:
            totals.count(rows.pop(number), -1)
            self._busy.pop(number, None)

    def forget(self) -> None:
        """Forget all actors: nobody watches any more."""
        if self._round is not None:
            self._round.cancel()
            self._round = None
        self._begin()

    def _begin(self) -> None:
        self.census = Census(self.system, lambda _path: True, MAX_ACTORS)
        self._counted = Totals()
        self._rows: dict[int, Row] = {}
        """The rows that ``_counted`` has counted, by the samples' ids."""
        self._busy: dict[int, Sample] = {}
        """The actors that are not quiet: of thousands there are few, and most questions are about them alone."""

    def items(self) -> Iterator[Sample]:
        """Iterate over the actors of the last round, whatever happens meanwhile."""
        return iter(list(self.census.samples.values()))

    def is_busy(self, sample: Sample) -> bool:
        """Tell whether an actor did anything at the last round, or is not well (:func:`is_quiet`)."""
        return sample.id in self._busy

    async def totals(self) -> tuple[Totals, int]:
        """Sum up all actors; return the moment of the sums, too, in ns of the system's clock."""
        now = await self.fresh()
        totals = replace(self._counted, states={state: n for state, n in self._counted.states.items() if n})
        for part in slices(iter(list(self._busy.values())), GLANCE):
            for sample in part:
                totals.add(sample.row, now)
            await asyncio.sleep(0)
        return totals, now

    async def page(self, query: Query) -> dict[str, Any]:
        """Return a page of rows: ``rows``, ``total`` (that match), ``page``, ``pages``, ``hidden``.

        Args:
            query: ``scope`` (a shell pattern or a part of the path or the class), ``under`` (a path), ``only`` (``busy``,
                ``troubled``), ``sort`` (:data:`SORTS`), ``order`` (``asc``, ``desc``), ``page``, ``size``.

        Raises:
            BadQuery: a parameter is out of range.
        """
        key = SORTS.get(sort := query.get("sort", "age"))
        if key is None:
            raise BadQuery(f"sort is one of {', '.join(SORTS)}, not {sort[:100]!r}")
        size, number = number_of(query, "size", 50, MAX_PAGE), number_of(query, "page", 1, MAX_ACTORS)
        now = await self.fresh()
        wanted = selection(query, now)
        descending = query.get("order", "desc") == "desc"
        if sort in MOMENTARY and descending:  # quiet actors come last, in the tree's order: do not sort them
            # Equal rows would change places if they stood in the order in which they became busy.
            busy = sorted(self._busy.values(), key=lambda sample: sample.id)
            runs, found = await _sorted(iter(busy), wanted, key, descending)
            quiet = [] if query.get("only") else (s for s in self.items() if s.id not in self._busy)
            rest, idle = await _chosen(quiet, wanted)
            total = found + idle
        else:
            runs, total = await _sorted(self.items(), wanted, key, descending)
            rest = []
        pages = max(1, -(-total // size))
        number = min(number, pages)
        merged = heapq.merge(*runs, key=lambda s: key(s.cell, s.row), reverse=descending)
        skip, passed = (number - 1) * size, 0
        rows: list[dict[str, Any]] = []
        for ordered in slices(chain(merged, rest), GLANCE):
            window = ordered[max(0, skip - passed) : skip + size - passed]
            rows += [shown(sample.cell, sample.row, now) for sample in window]
            passed += len(ordered)
            if passed >= skip + size:
                break
            await asyncio.sleep(0)
        return {"rows": rows, "total": total, "page": number, "pages": pages, "hidden": self.census.hidden}


Wanted = Callable[["Cell", Row], bool] | None


async def _sorted(
    samples: Iterator[Sample], wanted: Wanted, key: Key, descending: bool
) -> tuple[list[list[Sample]], int]:
    """Choose samples and sort them in runs, which remain to be merged; return their number, too."""
    runs: list[list[Sample]] = []
    for part in slices(samples, GLANCE):
        run = [s for s in part if wanted is None or wanted(s.cell, s.row)]
        run.sort(key=lambda s: key(s.cell, s.row), reverse=descending)  # equal rows stay in their order
        runs.append(run)
        await asyncio.sleep(0)
    return runs, sum(len(run) for run in runs)


async def _chosen(samples: Iterable[Sample], wanted: Wanted) -> tuple[list[Sample], int]:
    """Choose samples, and count them."""
    found: list[Sample] = []
    for part in slices(iter(samples), GLANCE):
        found += part if wanted is None else [s for s in part if wanted(s.cell, s.row)]
        await asyncio.sleep(0)
    return found, len(found)


def number_of(query: Query, name: str, default: int, most: int) -> int:
    """Return a whole number of a query, from 1 to ``most``.

    Raises:
        BadQuery: it is none.
    """
    value = query.get(name, "") or str(default)
    if not re.fullmatch(r"[0-9]{1,6}", value) or not 1 <= int(value) <= most:
        raise BadQuery(f"{name} is a number from 1 to {most}, not {value[:100]!r}")
    return int(value)


def selection(query: Query, now: int) -> Wanted:
    """Make the filter of a query; None selects all.

    Raises:
        BadQuery: a parameter is too long or unknown.
    """
    scope, under, only = query.get("scope", "").strip(), query.get("under", ""), query.get("only", "")
    if len(scope) > MAX_SCOPE:
        raise BadQuery(f"a scope has {MAX_SCOPE} characters at most")
    tests: list[Callable[[Cell, Row], object]] = []
    if only == "busy":
        tests.append(lambda _cell, row: row[DEPTH] or row[OUT] or row[SINCE])
    elif only == "troubled":
        tests.append(lambda _cell, row: health(row, now)[0])
    elif only:
        raise BadQuery(f"only is busy or troubled, not {only[:100]!r}")
    if under.strip("/"):
        prefix = under.rstrip("/") + "/"
        tests.append(lambda cell, _row: cell.path.startswith(prefix) or cell.path == prefix[:-1])
    if scope and re.search(r"[*?\[]", scope):
        matches = re.compile(fnmatch.translate(scope), re.IGNORECASE).match
        tests.append(lambda cell, _row: matches(cell.path))
    elif scope:
        part = scope.casefold()
        tests.append(
            lambda cell, _row: part in cell.path.casefold() or part in cell.actor_class.__name__.casefold()
        )
    if not tests:
        return None
    return lambda cell, row: all(test(cell, row) for test in tests)


def shown(cell: Cell, row: Row, now: int) -> dict[str, Any]:
    """Make a row of the page: durations and ages in seconds, None for those of nothing."""
    level, reason = health(row, now)
    found = dict(zip(ROW, row, strict=True))
    oldest, since = found.pop("oldest"), found.pop("since")
    return {
        **found,
        "path": cell.path,
        "class": cell.actor_class.__name__,
        "age": max(0.0, (now - oldest) / 1e9) if oldest else None,
        "busy": max(0.0, (now - since) / 1e9) if since else None,
        "level": level,
        "reason": reason,
    }


__all__ = ["BAD", "OK", "WATCH", "Board", "Totals", "health", "shown"]
