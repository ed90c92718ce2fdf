"""A daemon that turns its journal off and on all the while, and says what a request takes then and now.

``python -m tests.bench.pipeline.toggled CONFIG produce|consume PERIODS``: one process, one load, one layout of memory;
what differs between two periods is the journal. Prints JSON: processor microseconds a request by period, the first
and every other one without the journal.
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
"""Seconds: what is under way from the period before, a period, and before its end the writing of what it noted.

So what a period notes is written within one, in batches as large as the default ``linger`` of 500 ms makes them, and
no other period pays for it. Short periods, for the machine's pace changes within seconds: with 61 of 2.2 seconds the
median was known to 5.5 %, with 361 of half a second to 2.3 %, with 941 to 1.5 %.
"""
LINGER = "1h"
"""Of the journal: the bench itself says when to write."""
ENOUGH = 50
"""Requests of a period that counts."""


class Switch:
    """The journals of all owners and producers of this process."""

    def __init__(self) -> None:
        self._owners = [(each, each._notes) for each in gc.get_objects() if type(each) is PartitionOwner]
        self._producers = [
            (each, each._listener, each._client) for each in gc.get_objects() if type(each) is TopicProducer
        ]
        if not any(notes for _, notes in self._owners) and not any(
            listener for _, listener, _ in self._producers
        ):
            raise RuntimeError("there is nothing to turn off")
        (self._writer,) = [each for each in gc.get_objects() if type(each) is JournalWriter]

    def turn(self, on: bool) -> None:
        for owner, notes in self._owners:
            owner._notes = notes if on else None
        for producer, listener, client in self._producers:
            producer._listener = listener if on else None
            client._stamp = on

    def write(self) -> None:
        """Have what was noted written, as the end of ``linger`` does."""
        self._writer.actor_ref.tell(_Flush(True))


def count(kind: str) -> list[int]:
    """Count requests as they are answered; costs both sides the same."""
    counted = [0]
    method = getattr(ClusterClient, kind)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = await method(*args, **kwargs)
        counted[0] += 1
        return found

    setattr(ClusterClient, kind, wrapper)
    return counted


async def run(config: str, kind: str, periods: int) -> None:
    counted = count(kind)
    app = validate(load_file(config))
    engine = Engine(app)
    await engine.start(serve.listeners(engine, app))
    while counted[0] < 5000:  # warm
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
    serve._tune_collector()
    uvloop.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
