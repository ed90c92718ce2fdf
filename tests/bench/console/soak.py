"""Watch a program of thousands of busy actors with five pages for an hour: ``make soak-console MINUTES=60``.

By turns nobody watches, and five pages do, as a browser would: each has the summary and one view, compressed. Both halves of a pair are
measured one right after the other in the same process, so what the pages cost is the difference. The program measures how long
the console's steps hold its loop, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from actors.console.hub import INTERVAL
from tests.bench.console.steps import LONG
from tests.bench.report import ROOT, Report, console

RESULT = ROOT / "build" / "bench-console.json"
ACTORS = 5000
HALF = 5.0
"""Seconds of a half of a pair."""
SETTLED = 1.5
"""Seconds after a change until the measuring begins: the first look at all actors is no tick."""
MOST_SHARE = 0.03
"""Of a processor, for five pages that get a frame a second."""
MOST_GROWTH = 0.05
"""Of the memory, between the second and the last fifth of the run."""
VIEWS: tuple[tuple[str, dict[str, str]], ...] = (
    ("actors", {}),
    ("tree", {"open": '["/section-0","/section-1"]'}),
    ("waits", {}),
    ("flow", {}),
    ("failures", {}),
    ("actor", {"path": "/section-7"}),
)
"""Five of them are watched at a time; which one is left out changes from pair to pair."""
COMPRESSED = 15
"""The window of permessage-deflate, which browsers offer."""


class Page:
    """A page that watches one view, and the summary.

    Args:
        source: the view's.
        query: its parameters.
    """

    def __init__(self, source: str, query: dict[str, str]) -> None:
        self.source, self._query = source, query
        self.frames: Counter[str] = Counter()
        """Frames by source."""
        self.errors: list[str] = []
        self.characters = 0

    async def watch(self, http: aiohttp.ClientSession, address: str) -> None:
        """Watch until cancelled."""
        names = {1: "summary", 2: self.source}
        async with http.ws_connect(f"{address}stream", compress=COMPRESSED, max_msg_size=0) as socket:
            await socket.send_json({"id": 1, "watch": "summary"})
            await socket.send_json({"id": 2, "watch": self.source, "query": self._query})
            async for message in socket:
                frame = json.loads(message.data)
                self.frames[names[frame["id"]]] += 1
                self.characters += len(message.data)
                if "error" in frame:
                    self.errors.append(frame["error"])


@contextlib.asynccontextmanager
async def watching(http: aiohttp.ClientSession, address: str, turn: int) -> AsyncIterator[list[Page]]:
    """Watch with five pages for a block."""
    pages = [Page(*view) for number, view in enumerate(VIEWS) if number != turn % len(VIEWS)]
    tasks = [asyncio.create_task(page.watch(http, address)) for page in pages]
    try:
        yield pages
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Program:
    """The watched program, as a process of its own.

    Args:
        process: it.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """Read a line that it prints."""
        assert self._process.stdout is not None
        found = await self._process.stdout.readline()
        if not found:
            raise RuntimeError("the program has ended")
        return found.decode().strip()

    async def figures(self) -> dict[str, Any]:
        """Ask for its figures since the last time."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return dict(json.loads(await self.line()))

    async def half(self, seconds: float, pages: Sequence[Page] = ()) -> dict[str, Any]:
        """Measure half of a pair: processor time ``used``, ``ticks`` of the console, and what its ticks and steps took."""
        await asyncio.sleep(SETTLED)
        before, first = await self.figures(), [page.frames["summary"] for page in pages]
        await asyncio.sleep(seconds)
        after = await self.figures()
        ticks = [page.frames["summary"] - had for page, had in zip(pages, first, strict=True)]
        changes = {each: after[each] - before[each] for each in ("replaced", "messages")}
        return {
            **after,
            **changes,
            "used": after["used"] - before["used_after"],
            "took": after["at"] - before["at_after"],
            "ticks": max(ticks, default=0),
        }


def paired(alone: dict[str, Any], watched: dict[str, Any], pages: Sequence[Page]) -> dict[str, Any]:
    """Compare the halves of a pair.

    On a machine that is busy with other programs this one gets less to do, in one half more so than in the other. So the work of the half
    alone is scaled to the messages of the other one, and the difference is that of a tick, of which there is one a second.
    """
    work = alone["used"] * watched["messages"] / max(1, alone["messages"])
    ticks = max(1, watched["ticks"])
    step = max(watched["longest"].items(), key=lambda each: each[1], default=("nothing", 0.0))
    frames = sum(page.frames.total() for page in pages)
    return {
        "cost": (watched["used"] - work) / ticks / INTERVAL,
        "own": watched["computed"] / ticks / INTERVAL,
        "alone": alone["used"] / alone["took"],
        "took": watched["took"],
        "longest": step[1],
        "by": step[0],
        "characters": sum(page.characters for page in pages) / max(1, frames),
        "views": [page.source for page in pages],
        "errors": [error for page in pages for error in page.errors],
        **{
            each: watched[each]
            for each in ("ticks", "long", "steps", "collection", "replaced", "messages", "rss", "objects")
        },
    }


@contextlib.asynccontextmanager
async def running(actors: int) -> AsyncIterator[tuple[Program, str]]:
    """Run the program for a block; yield the console's address, too."""
    command = [sys.executable, "-m", "tests.bench.console.fleet", str(actors)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    program = Program(process)
    try:
        yield program, await program.line()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def pairs(minutes: float, actors: int = ACTORS, half: float = HALF) -> list[dict[str, Any]]:
    """Measure one pair after another; print a line each."""
    found: list[dict[str, Any]] = []
    ends = time.monotonic() + 60 * minutes
    async with running(actors) as (program, address), aiohttp.ClientSession() as http:
        while not found or time.monotonic() < ends:
            alone = await program.half(half)
            async with watching(http, address, len(found)) as pages:
                watched = await program.half(half, pages)
            found.append(pair := paired(alone, watched, pages))
            console.print(
                f"{len(found):>4}: {pair['cost']:.2%} of a processor ({pair['own']:.2%} in steps on the loop; {pair['ticks']} ticks, "
                f"{pair['messages']:,} messages in {pair['took']:.0f} s), "
                f"longest step {1000 * pair['longest']:.1f} ms ({pair['by']}), {pair['rss']:.1f} MiB, {pair['objects']:,} objects",
                soft_wrap=True,
            )
    return found


def report(found: list[dict[str, Any]]) -> bool:
    """Print the table; return whether all targets are met."""
    made = Report()
    ticking = [each for each in found if each["ticks"] > 1 and each["messages"]] or found
    costs = [each["cost"] for each in ticking]
    cost = statistics.median(costs)
    made.add(
        f"five pages, {ACTORS:,} actors: share of a processor",
        f"{cost:.2%}",
        f"< {MOST_SHARE:.0%}",
        cost < MOST_SHARE,
        f"{len(ticking)} pairs, {min(costs):.2%} to {max(costs):.2%}; in steps on the loop {statistics.median(each['own'] for each in ticking):.2%}; "
        f"{sum(each['messages'] for each in found) / sum(each['took'] for each in found):,.0f} messages a second",
    )
    worst = max(found, key=lambda each: each["longest"])
    made.add(
        "longest step of the console on the loop",
        f"{1000 * worst['longest']:.1f} ms",
        f"< {1000 * LONG:.0f} ms",
        worst["longest"] < LONG,
        f"{worst['by']}; {sum(each['long'] for each in found)} of {sum(each['steps'] for each in found):,} steps are longer than "
        f"that; the longest collection of garbage took {1000 * max(each['collection'] for each in found):.0f} ms",
    )
    fifth = max(1, len(found) // 5)
    first, last = (
        [each["rss"] for each in part] for part in (found[fifth : 2 * fifth] or found, found[-fifth:])
    )
    growth = statistics.median(last) / statistics.median(first) - 1
    made.add(
        "growth of the memory",
        f"{growth:+.1%}",
        f"< {MOST_GROWTH:.0%}",
        growth < MOST_GROWTH,
        f"{statistics.median(first):.1f} to {statistics.median(last):.1f} MiB, {found[0]['objects']:,} to {found[-1]['objects']:,} objects",
    )
    errors = [error for each in found for error in each["errors"]]
    made.add("frames with an error", str(len(errors)), "0", not errors, "; ".join(sorted(set(errors))[:3]))
    return made.finish(RESULT)


def main() -> int:
    """Run. Returns the exit code: 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    return 0 if report(asyncio.run(pairs(given.minutes))) else 1


if __name__ == "__main__":
    sys.exit(main())
