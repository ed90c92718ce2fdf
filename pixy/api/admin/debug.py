"""``/debug``: what the process does now, as JSON. Bounded: nothing here grows with what clients have sent."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from types import FrameType
from typing import Any, Final

from aiohttp import web

from actors import ActorStatistics, ActorSystem
from pixy.api.admin import profiling
from pixy.api.admin.access import Handler, error
from pixy.api.admin.queries import Wrong, number
from pixy.api.admin.slices import Renderings, Slices, TooManyRenderings
from pixy.api.edge.pace import Pace
from pixy.console.actor_figures import fullness, statistics_of
from pixy.engine.diagnostics import Diagnostics

logger = logging.getLogger("pixy.api")

MOST: Final = 1000
"""Actors, tasks or lines in one answer."""
_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "notset")
_OWN: Final = ("pixy", "actors")
"""Loggers whose level may be set: these, and those below them."""
_FRAMES: Final = 12

SORTS: Final = {
    "mailbox": lambda each: -fullness(each),
    "depth": lambda each: -each.mailbox.depth,
    "age": lambda each: -each.mailbox.oldest_age,
    "wait": lambda each: -each.wait.quantile(0.99),
    "run": lambda each: -each.run.quantile(0.99),
    "busy": lambda each: -each.current_age,
    "processed": lambda each: -each.processed,
    "failed": lambda each: -each.failed,
    "path": lambda each: each.path,
}


class Debug:
    """The handlers.

    Args:
        system: the actors.
        diagnostics: for the dump.
        steps: gives turns to what takes long.
    """

    def __init__(self, system: ActorSystem, diagnostics: Diagnostics, steps: Pace) -> None:
        self._system = system
        self._diagnostics = diagnostics
        self._profiling = asyncio.Lock()
        self._renderings = Renderings(steps)

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        return [
            web.get("/debug/actors", self._in_slices(self.actors)),
            web.get("/debug/dump", self._in_slices(self.dump)),
            web.get("/debug/tasks", self._in_slices(self.tasks)),
            web.get("/debug/threads", self._in_slices(self.threads)),
            web.get("/debug/heap", self.heap),
            web.get("/debug/profile", self.profile),
            web.get("/debug/log", self.levels),
            web.post("/debug/log", self.set_level),
        ]

    def _in_slices(self, render: Callable[[web.Request, Slices], Awaitable[web.Response]]) -> Handler:
        """Return a handler that renders an answer in slices, or refuses to."""

        async def handler(request: web.Request) -> web.Response:
            try:
                with self._renderings.begin(request) as slices:
                    return await render(request, slices)
            except TooManyRenderings as full:
                return error(503, str(full), retry_after=1)

        return handler

    async def actors(self, request: web.Request, slices: Slices) -> web.Response:
        """List actors: ``pattern`` (a shell pattern of paths), ``sort``, ``limit``, ``offset``."""
        key = SORTS.get(request.query.get("sort", "mailbox"))
        if key is None:
            return error(400, f"sort must be one of {', '.join(SORTS)}")
        limit, offset = number(request, "limit", 100, 1, MOST), number(request, "offset", 0, 0, 1_000_000)
        found = await statistics_of(self._system, request.query.get("pattern", "**"))
        keys = await slices.each(found, key)
        order = sorted(range(len(found)), key=keys.__getitem__)
        rows = await slices.each((found[at] for at in order[offset : offset + limit]), row_of)
        return await slices.document({"total": len(found), "offset": offset}, "actors", rows)

    async def dump(self, _request: web.Request, slices: Slices) -> web.Response:
        """Show what SIGUSR1 logs: all actors, who waits for whom, kinds of failures."""
        lines = await slices.each(self._diagnostics.dumping(), lambda line: line)
        return web.Response(text="\n".join(line for line in lines if line is not None) + "\n")

    async def tasks(self, _request: web.Request, slices: Slices) -> web.Response:
        """List tasks of the event loop with the place where each waits."""
        tasks = sorted(asyncio.all_tasks(), key=lambda each: each.get_name())
        rows = await slices.each(tasks[:MOST], _task)
        return await slices.document({"total": len(tasks)}, "tasks", rows)

    async def threads(self, _request: web.Request, slices: Slices) -> web.Response:
        """List threads with their stacks."""
        frames = sys._current_frames()
        threads = sorted(threading.enumerate(), key=lambda thread: thread.name)[:MOST]
        rows = await slices.each(threads, lambda each: _thread(each, frames))
        return await slices.document({}, "threads", rows)

    async def heap(self, request: web.Request) -> web.Response:
        """Trace allocations for ``seconds``, and list the lines that have allocated most of what is still there.

        Tracing makes the daemon about twice as slow meanwhile. It starts and ends here, unless the process traces anyway
        (``python -X tracemalloc``): then everything since its start counts.
        """
        seconds = number(request, "seconds", 5, 0, int(profiling.LONGEST))
        limit = number(request, "limit", 50, 1, MOST)
        if self._profiling.locked():
            return error(503, "another profile is being taken")
        async with self._profiling:
            began = not tracemalloc.is_tracing()
            if began:
                tracemalloc.start()
            try:
                await asyncio.sleep(seconds)
                snapshot = await asyncio.to_thread(tracemalloc.take_snapshot)
                traced, peak = tracemalloc.get_traced_memory()
            finally:
                if began:
                    tracemalloc.stop()
            found = await asyncio.to_thread(snapshot.statistics, "lineno")
        rows = [
            {"where": str(each.traceback), "bytes": each.size, "blocks": each.count} for each in found[:limit]
        ]
        return web.json_response(
            {"seconds": seconds, "bytes": traced, "peak_bytes": peak, "lines": len(found), "top": rows}
        )

    async def profile(self, request: web.Request) -> web.Response:
        """Take a profile of ``seconds``; ``format`` is ``svg`` (a flame graph) or ``folded``."""
        seconds = number(request, "seconds", 5, 1, int(profiling.LONGEST))
        form = request.query.get("format", "svg")
        if form not in ("svg", "folded"):
            return error(400, "format must be svg or folded")
        if self._profiling.locked():
            return error(503, "another profile is being taken")
        async with self._profiling:
            stacks = await asyncio.to_thread(profiling.sample, float(seconds))
        if form == "folded":
            return web.Response(text=profiling.folded(stacks))
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        picture = await asyncio.to_thread(profiling.flame_graph, stacks, f"{seconds} s of kafka-pixy, {when}")
        return web.Response(text=picture, content_type="image/svg+xml")

    async def levels(self, _request: web.Request) -> web.Response:
        """Show the levels of the loggers."""
        known = logging.root.manager.loggerDict
        names = sorted(name for name in known if name.partition(".")[0] in _OWN)
        rows = {
            name: logging.getLevelName(logging.getLogger(name).getEffectiveLevel()).lower()
            for name in names[:MOST]
        }
        return web.json_response({"levels": rows})

    async def set_level(self, request: web.Request) -> web.Response:
        """Set the level of a logger, ``logger`` and ``level``, until it is set again or the daemon ends."""
        name, level = request.query.get("logger", ""), request.query.get("level", "").lower()
        if level not in _LEVELS:
            return error(400, f"level must be one of {', '.join(_LEVELS)}")
        if name.partition(".")[0] not in _OWN or name not in {*logging.root.manager.loggerDict, *_OWN}:
            return error(400, "logger must be one that GET /debug/log shows")
        logging.getLogger(name).setLevel(level.upper())
        logger.warning("the level of logger %s is %s now", name, level)
        return web.json_response({"logger": name, "level": level})


def row_of(each: ActorStatistics) -> dict[str, Any]:
    """Describe an actor as JSON has it."""
    return {
        "path": each.path,
        "class": each.actor_class,
        "state": each.state,
        "current": each.current,
        "busy": round(each.current_age, 6),
        "processed": each.processed,
        "failed": each.failed,
        "restarts": each.restarts,
        "children": each.children,
        "tasks": each.tasks,
        "wait_p99": each.wait.quantile(0.99),
        "run_p99": each.run.quantile(0.99),
        "mailbox": dataclasses.asdict(each.mailbox),
    }


def _task(each: asyncio.Task[Any]) -> dict[str, Any]:
    return {
        "name": each.get_name(),
        "stack": [f"{_place(frame)} {frame.f_code.co_qualname}" for frame in each.get_stack(limit=_FRAMES)],
    }


def _thread(each: threading.Thread, frames: Mapping[int, FrameType]) -> dict[str, Any]:
    stack: list[str] = []
    frame = None if each.ident is None else frames.get(each.ident)
    while frame is not None and len(stack) < _FRAMES:
        stack.append(f"{_place(frame)} {frame.f_code.co_name}")
        frame = frame.f_back
    return {"name": each.name, "id": each.native_id, "daemon": each.daemon, "stack": stack[::-1]}


def _place(frame: Any) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


__all__ = ["SORTS", "Debug", "Wrong", "row_of"]
