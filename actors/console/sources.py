"""The JSON sources of the console's own views."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from actors.console.board import Board
from actors.console.extension import BadQuery, Query, Source
from actors.console.failures import EventLog
from actors.console.hub import Activity
from actors.console.life import Lives
from actors.console.tree import tree_steps
from actors.console.waiting import waiting_steps
from actors.tracing.census import turning
from actors.tracing.flow import Flow
from actors.tracing.protocol import Redact

if TYPE_CHECKING:
    from actors._system import ActorSystem
    from actors.tracing.crashes import Crashes

MAX_EDGES = 300
"""Most edges of the flow map in one frame, the busiest; ``hidden`` counts the others."""


class BuiltIn:
    """The sources, and what they switch on while they are watched.

    Args:
        system: the system to show.
        redact: maps a message or an error to the text that is shown.
        crashes: the failures to show; None collects them.
        interval: seconds between two frames.
    """

    VIEWS: ClassVar[tuple[str, ...]] = ("actors", "tree", "waits", "flow", "failures", "actor")

    def __init__(
        self, system: ActorSystem, *, redact: Redact, crashes: Crashes | None, interval: float
    ) -> None:
        self.system = system
        self.board = Board(system, interval)
        self.late: Callable[[], float] = float
        """Seconds that the last tick came too late."""
        self.flow = Flow(system)
        self.log = EventLog(system, redact, crashes)
        self.lives = Lives(system, self.log)
        self._counted: tuple[float, dict[tuple[str, str, str], tuple[int, int, int]]] = (0.0, {})
        self.sources: Mapping[str, Source] = {
            "summary": self._summary,
            "actors": self.board.page,
            "tree": self._tree,
            "waits": self._waits,
            "flow": self._flow,
            "failures": self._failures,
            "actor": self._actor,
        }
        self.activities: Mapping[str, Activity] = {"flow": self._counting, "actor": self.lives.watched}

    def start(self) -> None:
        """Begin to collect what is rare and must not be missed: failures."""
        self.log.start()

    def stop(self) -> None:
        """End what :meth:`start` has begun."""
        self.log.stop()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Hold what exists only while a page is open."""
        try:
            with self.log.watched():
                yield
        finally:
            self.board.forget()

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        self._counted = time.monotonic(), {}
        with self.flow.watch():
            yield

    async def _summary(self, _query: Query) -> dict[str, Any]:
        totals, now = await self.board.totals()
        return {
            "actors": totals.actors,
            "hidden": self.board.census.hidden,
            "states": totals.states,
            "depth": totals.depth,
            "age": (now - totals.oldest) / 1e9 if totals.oldest else None,
            "in_rate": totals.arrived,
            "out_rate": totals.handled,
            "error_rate": totals.errors,
            "failed": totals.failed,
            "restarts": totals.restarts,
            "refused": totals.refused,
            "troubled": totals.troubled,
            "bad": totals.bad,
            "dead_letters": self.system.dead_letters,
            "late": self.late(),
        }

    async def _tree(self, query: Query) -> dict[str, Any]:
        await self.board.fresh()
        return await turning(tree_steps(self.board, query))

    async def _waits(self, _query: Query) -> dict[str, Any]:
        return {**await turning(waiting_steps(self.system)), "late": self.late()}

    async def _failures(self, _query: Query) -> dict[str, Any]:
        return self.log.shown()

    async def _actor(self, query: Query) -> dict[str, Any]:
        path = query.get("path", "")
        if not path:
            raise BadQuery("an actor is named by its path")
        return self.lives.describe(path, watched=self.lives in self.system._hooks.instruments)

    async def _flow(self, _query: Query) -> dict[str, Any]:
        """Return the edges with their rates since the last frame."""
        before_at, before = self._counted
        at = time.monotonic()
        window = max(1e-3, at - before_at)
        edges: list[dict[str, Any]] = []
        counted = {}
        for edge in await turning(self.flow.edge_steps()):
            key = edge.sender, edge.receiver, edge.message
            now = edge.count, edge.failed, edge.drops
            counted[key] = now
            was = before.get(key, (0, 0, 0))
            edges.append(
                {
                    "sender": edge.sender,
                    "receiver": edge.receiver,
                    "message": edge.message,
                    "count": edge.count,
                    "rate": (now[0] - was[0]) / window,
                    "errors": (now[1] - was[1]) / window,
                    "drops": (now[2] - was[2]) / window,
                    "lost": edge.drops,
                    "failed": edge.failed,
                    "wait": edge.wait_p99,
                    "run": edge.run_p99,
                }
            )
        self._counted = at, counted
        edges.sort(key=lambda edge: (-edge["rate"], -edge["count"]))
        return {
            "edges": edges[:MAX_EDGES],
            "hidden": max(0, len(edges) - MAX_EDGES),
            "beyond": self.flow.beyond,
            "counting": self.flow.watching,
        }


__all__ = ["BuiltIn"]
