"""The blocking and the asyncio clients behind one interface, so that a test covers both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pixy.wire import aio, client
from tests.unit.wire.fake_broker import PARTITION, TOPIC, FakeBroker


class Blocking:
    """Calls the blocking clients."""

    module: Any = client

    def made(self, kind: str, *args: Any, **options: Any) -> Any:
        return getattr(client, kind)(*args, **options)

    def do(self, call: Callable[[], Any]) -> Any:
        return call()


class OnLoop(Blocking):
    """Calls the asyncio clients on one event loop."""

    module: Any = aio

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def made(self, kind: str, *args: Any, **options: Any) -> Any:
        return getattr(aio, kind)(*args, **options)

    def do(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return await call()

        return self.loop.run_until_complete(run())


def partition(side: Any, broker: FakeBroker, **options: Any) -> Any:
    return side.made("PartitionClient", broker.address, TOPIC, PARTITION, **options)
