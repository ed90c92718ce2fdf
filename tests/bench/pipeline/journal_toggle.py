"""Run a daemon that turns its journal off and on, and measure processor time per request with and without it.

``python -m tests.bench.pipeline.journal_toggle CONFIG produce|consume PERIODS``: process, load and memory
layout stay the same, so two periods differ only in the journal. Prints a JSON list of processor microseconds
per request by period; the first period and every other one after it are without the journal.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

import uvloop

from pixy.cli import serve
from pixy.config import load_file, validate
from pixy.engine.client import ClusterClient
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.engine.engine import Engine
from pixy.engine.journal.writer import JournalWriter, _Flush
from pixy.engine.produce.topic_producer import TopicProducer

SETTLE, MEASURE, WRITE = 0.1, 0.4, 0.08
"""Seconds: the pause in which requests of the previous period end, the measured period, and its last part, in
which the journal writes the period's events.

A period's events are written within the period, in batches as large as the default ``linger`` of 500 ms makes
them, so no other period pays for them. The periods are short because the machine's speed changes within
seconds: 61 periods of 2.2 seconds gave the median to within 5.5 %, 361 of half a second to within 2.3 %, 941
to within 1.5 %.
"""
LINGER = "1h"
"""The journal's linger: so long that only the bench makes it write."""
ENOUGH = 50
"""The least requests in a period; fewer mean that the load has ended."""


class Switch:
    """Turns the journal of all partition owners and producers in this process on and off."""

    def __init__(self) -> None:
        self._owners = [(each, each._notes) for each in gc.get_objects() if type(each) is PartitionOwner]
        self._producers = [
            (each._settler, each._settler._listener, each._client._thread)
            for each in gc.get_objects()
            if type(each) is TopicProducer
        ]
        if not any(notes for _, notes in self._owners) and not any(
            listener for _, listener, _ in self._producers
        ):
            raise RuntimeError("no owner or producer has a journal to turn off")
        (self._writer,) = [each for each in gc.get_objects() if type(each) is JournalWriter]

    def turn(self, on: bool) -> None:
        for owner, notes in self._owners:
            owner._notes = notes if on else None
        for settler, listener, thread in self._producers:
            settler._listener = listener if on else None
            thread._stamp = on

    def write(self) -> None:
        """Make the journal write its events, as the end of ``linger`` does."""
        self._writer.actor_ref.tell(_Flush(True))


def count(kind: str) -> list[int]:
    """Count answered requests of a kind; the counting costs the same with and without the journal.

    Returns:
        A list whose only item is the number of answered requests.
    """
    counted = [0]
    method = getattr(ClusterClient, kind)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = await method(*args, **kwargs)
        counted[0] += 1
        return found

    setattr(ClusterClient, kind, wrapper)
    return counted


async def run(config: str, kind: str, periods: int) -> None:
    """Run a daemon under a load that comes from outside, with the journal off and on in turn; print what each period cost.

    Args:
        config: the path of the daemon's configuration.
        kind: the method of ClusterClient whose calls are counted.
        periods: of which the first has the journal off.
    """
    counted = count(kind)
    app = validate(load_file(config))
    engine = Engine(app)
    await engine.start(serve.listeners(engine, app))
    while counted[0] < 5000:  # warm up
        await asyncio.sleep(0.1)
    switch, costs = Switch(), []
    for period in range(periods):
        switch.turn(period % 2 == 1)
        await asyncio.sleep(SETTLE)
        before, used = counted[0], time.process_time()
        await asyncio.sleep(MEASURE - WRITE)
        switch.write()
        await asyncio.sleep(WRITE)
        requests = counted[0] - before
        if requests < ENOUGH:
            raise RuntimeError(f"{requests} requests in {MEASURE} s: the load has ended")
        costs.append((time.process_time() - used) / requests * 1e6)
    print(json.dumps(costs), flush=True)
    await engine.stop()


if __name__ == "__main__":
    serve.tune_process()
    uvloop.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
