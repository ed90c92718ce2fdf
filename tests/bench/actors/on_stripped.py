"""This project's runtime with parts removed, to measure the cost of the parts.

A variant is compiled from the source of the real hot path without some of its lines, so the variants cannot
drift from the real code: a line that is missing there ends the run. The variants take turns of some
milliseconds within one process, because two processes differ by more than a part costs.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import statistics
import time
from itertools import repeat
from types import FunctionType
from typing import Any

from actors import ActorRef, ActorSystem
from actors._core import cell as cell_module, handling
from tests.bench.actors.handlers import MESSAGE, Result, expect
from tests.bench.actors.on_actors import EchoActor

TURN = 200
"""Asks per turn."""

HOOKS = (
    """            if hooks is not None and (fault := hooks.began(cell, envelope)) is not None:
                raise fault
""",
    """        if hooks is not None:
            hooks.ended(cell, envelope, began, ended, error)
""",
    "        hooks = cell.hooks\n",
)
ACCOUNTING = (
    """        try:
            waits[((began - sent) >> SHIFT).bit_length()] += 1
        except IndexError:
            count_long(waits, began - sent)
        try:
            runs[(run >> SHIFT).bit_length()] += 1
        except IndexError:
            count_long(runs, run)
        recent.append((kind, sender, sent))
""",
    """        if error is not None or run > slow_ns:
            _slow_or_failed(cell, envelope, error, run)
""",
    "        cell.began = cell.ended = ended = clock()\n        run = ended - began\n",
    "        began = ended\n",
)


def without(parts: tuple[str, ...]) -> type[Any]:
    """Make an actor class whose messages are handled without these parts of the source.

    Raises:
        LookupError: a part is not in the source of the hot path.
    """
    source = inspect.getsource(handling.work)
    for part in parts:
        if part not in source:
            raise LookupError(f"not in the hot path any more:\n{part}")
        source = source.replace(part, "")
    made: dict[str, Any] = {}
    exec(compile(source, "<variant>", "exec"), vars(handling), made)
    run = FunctionType(cell_module.Cell.run.__code__, vars(cell_module) | made)
    variant = type("Variant", (cell_module.Cell,), {"__slots__": (), "run": run})
    return type("Variant", (EchoActor,), {"_cell_class": variant})


async def _turn(ref: ActorRef[Any]) -> float:
    reply = None
    begun = time.perf_counter()
    for _ in range(TURN):
        reply = await ref.ask(MESSAGE, block=False)
    took = time.perf_counter() - begun
    expect(reply, MESSAGE)
    return took


def costs(turns: int) -> Result:
    """Measure the shares of an ask's time: counters and histograms, and the checks for hooks.

    The variant without counters also has a clock that costs almost nothing.
    """

    async def main() -> Result:
        async with ActorSystem() as system, ActorSystem(clock=repeat(0).__next__) as timeless:
            refs: list[ActorRef[Any]] = [
                system.spawn(EchoActor),
                timeless.spawn(without((*HOOKS[1:2], *ACCOUNTING))),
                system.spawn(without(HOOKS)),
            ]
            for ref in refs:
                await _turn(ref)
            gc.collect()
            took: list[list[float]] = [[] for _ in refs]
            for turn in range(turns):
                for at in (0, 1, 2) if turn % 2 else (2, 1, 0):
                    took[at].append(await _turn(refs[at]))
        whole, uncounted, unhooked = took
        return {
            "counters": 1 - statistics.median(b / a for a, b in zip(whole, uncounted, strict=True)),
            "hooks": 1 - statistics.median(b / a for a, b in zip(whole, unhooked, strict=True)),
            "per_second": TURN / statistics.median(whole),
        }

    return asyncio.run(main())
