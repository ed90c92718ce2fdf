"""A broker behind a TCP proxy that keeps back chosen requests and answers."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from tests.kafka.cluster import Cluster


class Relay:
    """A TCP proxy before a broker."""

    def __init__(self) -> None:
        self.port = self.target = 0
        self.requests: defaultdict[int, deque[float]] = defaultdict(deque)
        """By the key of the API: seconds by which the next requests of all connections come late."""
        self.answers: defaultdict[int, deque[float]] = defaultdict(deque)
        """By the key of the API: seconds by which the answers to the next requests come late."""
        self.seen: list[int] = []
        """The keys of all requests so far."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        late: dict[int, float] = {}
        """Seconds by correlation id."""

        def asked(frame: bytes) -> float:
            key, _version, number = struct.unpack_from(">hhi", frame)
            self.seen.append(key)
            if self.answers[key]:
                late[number] = self.answers[key].popleft()
            return self.requests[key].popleft() if self.requests[key] else 0.0

        def answered(frame: bytes) -> float:
            return late.pop(struct.unpack_from(">i", frame)[0], 0.0)

        for each in (self._pass(reader, back, asked), self._pass(there, writer, answered)):
            task = asyncio.create_task(each)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: Callable[[bytes], float]
    ) -> None:
        try:
            while True:
                head = await source.readexactly(4)
                frame = await source.readexactly(int.from_bytes(head))
                await asyncio.sleep(delay(frame))
                sink.write(head + frame)
                await sink.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            sink.close()

    async def close(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()


@asynccontextmanager
async def relayed(properties: Mapping[str, object] | None = None) -> AsyncIterator[tuple[Cluster, Relay]]:
    """Start a broker with a second listener, behind a relay, for an ``async with`` block."""
    relay = Relay()
    await relay.listen()
    cluster = await asyncio.to_thread(
        Cluster, brief=True, properties=dict(properties or {}), advertised={"RELAYED": {1: relay.port}}
    )
    relay.target = cluster.ports[1]["RELAYED"]
    try:
        yield cluster, relay
    finally:
        await relay.close()
        await asyncio.to_thread(cluster.close)
