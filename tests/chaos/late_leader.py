"""A proxy before a broker that lets each partition's first produce request fail, as a leader does that is not ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from pixy.tap.config import Address
from pixy.tap.rewrite import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA, rewrite
from pixy.wire import frames

PRODUCE = 0
NOT_LEADER = 6
_WAIT = 1.0
"""Seconds that a first request waits for a second one before it fails alone."""


class LateLeader:
    """Forwards everything between clients and one broker, in order.

    The first produce request of a partition is answered with NOT_LEADER_OR_FOLLOWER and never reaches the broker; not
    before a second request of that partition is on its way, if one comes.

    Attributes:
        first: the partitions, as (topic, number), whose first request has come.
        overtaken: those of them of which another request was in flight.
        stuck: partitions whose every request is refused.
        delay: seconds from a produce request to its response, at least.
    """

    def __init__(self, broker: Address, *, refuse: bool = True, delay: float = 0.0) -> None:
        self._broker = broker
        self._refuse = refuse
        self.delay = delay
        self.address: Address = ("", 0)
        self.first: dict[tuple[str, int], asyncio.Event] = {}
        self.overtaken: set[tuple[str, int]] = set()
        self.stuck: set[tuple[str, int]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve until the end of the block; yields the address that clients connect to."""
        connections: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._serve(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                connections.discard(task)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.address = server.sockets[0].getsockname()[:2]
        try:
            yield f"127.0.0.1:{self.address[1]}"
        finally:
            server.close()
            for task in tuple(connections):
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_broker = await asyncio.open_connection(*self._broker)
        answers: asyncio.Queue[Awaitable[bytes]] = asyncio.Queue()

        async def answer() -> None:
            while True:
                writer.write(await (await answers.get()))
                await writer.drain()

        answering = asyncio.ensure_future(answer())
        try:
            while True:
                frame = await _frame(reader)
                header = frames.decode_request_header(frame)
                partition = _partition(frame) if header.key == PRODUCE else None
                if partition is not None and self._is_first(partition):
                    answers.put_nowait(self._refusal(frame, partition))
                    continue
                to_broker.write(frames.frame(frame))
                await to_broker.drain()
                due = asyncio.get_running_loop().time() + (self.delay if header.key == PRODUCE else 0.0)
                answers.put_nowait(self._forwarded(upstream, header.key, header.version, due))
        finally:
            answering.cancel()
            while not answers.empty():
                answers.get_nowait().close()  # type: ignore[attr-defined]
            to_broker.close()

    def _is_first(self, partition: tuple[str, int]) -> bool:
        if not self._refuse:
            return False
        first = partition not in self.first
        if first:
            self.first[partition] = asyncio.Event()
        else:
            self.first[partition].set()
        return first or partition in self.stuck

    async def _refusal(self, frame: bytes, partition: tuple[str, int]) -> bytes:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                await self.first[partition].wait()
                self.overtaken.add(partition)
        request = frames.decode_request(frame)
        topics: list[dict[str, Any]] = request.body["TopicData"]
        body = {
            "Responses": [
                {
                    **{key: topic[key] for key in ("Name", "TopicId") if key in topic},
                    "PartitionResponses": [
                        {"Index": each["Index"], "ErrorCode": NOT_LEADER, "BaseOffset": -1}
                        for each in topic["PartitionData"]
                    ],
                }
                for topic in topics
            ]
        }
        header = request.header
        return frames.encode_response(PRODUCE, header.version, header.correlation_id, body)

    async def _forwarded(self, upstream: asyncio.StreamReader, key: int, version: int, due: float) -> bytes:
        frame = await _frame(upstream)
        if self.delay:
            await asyncio.sleep(due - asyncio.get_running_loop().time())
        if key in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER):
            changed = rewrite(frame, key, version, lambda _address, _count: self.address)
            assert changed is not None
            return changed
        return frames.frame(frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def _partition(frame: bytes) -> tuple[str, int]:
    [topic] = frames.decode_request(frame).body["TopicData"]
    [partition] = topic["PartitionData"]
    return str(topic.get("Name") or topic["TopicId"]), int(partition["Index"])
