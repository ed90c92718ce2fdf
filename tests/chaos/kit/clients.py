"""The parts that all clients share: connections to each daemon, the records, and when to stop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import aiohttp
import grpc

from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.chaos.kit.daemons import Daemon
from tests.chaos.kit.plan import Plan
from tests.chaos.kit.record import Recorder

DEADLINE = 20.0
"""Seconds that a client waits for an answer: more than a long poll may take with a join before it."""
PAUSE = 0.1
"""Seconds that a client waits after a failure."""

_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Clients:
    """The connections and tasks of the clients.

    Args:
        plan: the run.
        records: what they write down.
        daemons: whom they talk to.
    """

    def __init__(self, plan: Plan, records: Recorder, daemons: Sequence[Daemon]) -> None:
        self.plan = plan
        self.records = records
        self.daemons = daemons
        self.producing = True
        self.consuming = True
        self.paused: set[str] = set()
        """Groups whose clients make no requests now."""
        self._tasks: list[asyncio.Task[None]] = []
        self._channels: list[Any] = []
        self._stubs: dict[int, Any] = {}
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the connections."""
        timeout = aiohttp.ClientTimeout(total=DEADLINE)
        self._http = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        # A GET that it would repeat by itself after a broken connection may have handed records out: in one run 15 were
        # lost so between two reads of an instance.
        self._http._retry_connection = False
        for daemon in self.daemons:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{daemon.grpc.port}", options=_CHANNEL)
            self._channels.append(channel)
            self._stubs[daemon.number] = KafkaPixyStub(channel)

    def stub(self, daemon: int) -> Any:
        """Return the gRPC client of a daemon."""
        return self._stubs[daemon]

    def url(self, daemon: int, path: str) -> str:
        """Return a URL of a daemon.

        Args:
            daemon: its number, from 1 on.
            path: with a slash before it.
        """
        return f"http://127.0.0.1:{self.daemons[daemon - 1].rest.port}{path}"

    async def call(self, method: str, url: str, **options: Any) -> tuple[int, bytes]:
        """Make an HTTP request; return status and body, or 0 and the failure's text.

        Args:
            method: of HTTP.
            url: all of it.
            options: of aiohttp.
        """
        assert self._http is not None
        try:
            async with self._http.request(method, url, **options) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return 0, repr(error).encode()

    def rng(self, *names: object) -> random.Random:
        """Return the random generator of one client, the same for each run with this seed."""
        return random.Random(":".join(map(str, (self.plan.seed, *names))))

    def run(self, client: Coroutine[Any, Any, None]) -> None:
        """Run a client until it ends; its failure is the run's failure."""
        self._tasks.append(asyncio.ensure_future(client))

    def check(self) -> None:
        """Raise what a client has failed with."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                task.result()

    async def close(self) -> None:
        """End all clients, at the latest when their requests in flight have timed out."""
        self.producing = self.consuming = False
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DEADLINE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close()
        if self._http is not None:
            await self._http.close()


class Pace:
    """Waits so that something happens so many times a second; what a fault held up is not made up for.

    Args:
        per_second: how often.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._next = time.monotonic()

    async def wait(self) -> None:
        """Wait for the next turn."""
        now = time.monotonic()
        self._next = max(self._next + self._interval, now - 5 * self._interval)
        await asyncio.sleep(max(0.0, self._next - now))


__all__ = ["DEADLINE", "PAUSE", "Clients", "Pace"]
