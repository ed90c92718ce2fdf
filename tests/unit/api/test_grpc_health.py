"""What a watcher of gRPC's health hears."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc_health.v1 import health_pb2 as pb

from pixy.api.grpc.health import Health

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


class Watcher:
    """The context of a call; a write takes a turn of the loop, at whose end ``then`` is called."""

    def __init__(self, then: Any = lambda: None) -> None:
        self.heard: list[int] = []
        self._then = then

    async def write(self, answer: Any) -> None:
        self.heard.append(answer.status)
        await asyncio.sleep(0)
        self._then()


@pytest.mark.parametrize("when", ["before", "meanwhile", "later"])
async def test_a_watcher_hears_of_a_drain_whenever_it_begins(when: str) -> None:
    """One that began while the first status was written was never told."""
    health = Health(("a",))
    if when == "before":
        health.drain()
    watcher = Watcher(health.drain if when == "meanwhile" else lambda: None)
    call = asyncio.create_task(health._watch(pb.HealthCheckRequest(service="a").SerializeToString(), watcher))
    for _ in range(10):
        await asyncio.sleep(0)
    if when == "later":
        health.drain()
        for _ in range(10):
            await asyncio.sleep(0)
    call.cancel()
    assert watcher.heard == ([NOT_SERVING] if when == "before" else [SERVING, NOT_SERVING])
