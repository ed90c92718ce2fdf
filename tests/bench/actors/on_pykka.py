"""The scenarios on pykka's own ThreadingActor: one thread per actor."""

from __future__ import annotations

import gc
import time
from typing import Any

from pykka import ActorRef, ThreadingActor

from tests.bench.actors.handlers import (
    HOW_MANY,
    MESSAGE,
    Counter,
    Echo,
    Result,
    expect,
    rate,
    rss_kib,
)


class EchoActor(Echo, ThreadingActor):
    pass


class CounterActor(Counter, ThreadingActor):
    pass


def ask(count: int) -> Result:
    """Make blocking asks one by one; an ``await`` of pykka's future would block in the same way."""
    ref = EchoActor.start()

    def work(calls: int) -> None:
        for _ in range(calls):
            reply = ref.ask(MESSAGE)
        expect(reply, MESSAGE)

    try:
        return rate(work, count)
    finally:
        ref.stop()


thread_lone = ask


def tell(count: int) -> Result:
    """Send tells, then one ask; its answer means that all tells are handled."""
    ref = CounterActor.start()
    sent = 0

    def work(calls: int) -> None:
        nonlocal sent
        for _ in range(calls):
            ref.tell(MESSAGE)
        sent += calls
        expect(ref.ask(HOW_MANY), sent)

    try:
        return rate(work, count)
    finally:
        ref.stop()


def _spawn_and_stop_all(count: int) -> Result:
    gc.collect()
    begun = time.perf_counter()
    refs: list[ActorRef[Any]] = [EchoActor.start() for _ in range(count)]
    refs[-1].ask(MESSAGE)
    for stopped in [ref.stop(block=False) for ref in refs]:
        expect(stopped.get(timeout=30), True)
    return {"per_second": count / (time.perf_counter() - begun)}


def spawn_and_stop(count: int) -> Result:
    """Start ``count`` actors, then stop them, oldest first, which is fastest on pykka."""
    _spawn_and_stop_all(200)
    return _spawn_and_stop_all(count)


def memory(count: int) -> Result:
    """Measure resident KiB per idle actor that has handled a message."""
    refs: list[ActorRef[Any]] = [EchoActor.start() for _ in range(100)]
    before = rss_kib()
    refs += [EchoActor.start() for _ in range(count)]
    for ref in refs:
        ref.ask(MESSAGE)
    gc.collect()
    after = rss_kib()
    for ref in refs:
        ref.stop(block=False)
    return {"kib": (after - before) / count}


def thread_pipelined(count: int) -> Result:
    """Send all asks, then get all answers."""
    ref = EchoActor.start()

    def work(calls: int) -> None:
        for reply in [ref.ask(MESSAGE, block=False) for _ in range(calls)]:
            expect(reply.get(timeout=30), MESSAGE)

    try:
        return rate(work, count)
    finally:
        ref.stop()
