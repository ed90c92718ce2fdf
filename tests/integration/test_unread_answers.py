"""A message whose answer is not written to its end is not done, whatever ends the call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import grpc
import pytest

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving

SIZE = 900_000
PASSES = 10_000
"""Bytes of an answer that pass the link before it stands still, in both directions: the client gives no leave to send more."""


class Link:
    """Forwards to an address, and as many bytes back; then no more until it is released."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self.stuck = asyncio.Event()
        self.free = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # what fits in there counts as written
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, (self._host, int(self._port)))
        up, to_server = await asyncio.open_connection(sock=small, limit=4096)
        self._writers += [writer, to_server]
        await asyncio.gather(self._pump(reader, to_server, None), self._pump(up, writer, PASSES))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while found := await reader.read(4096):
                passed += len(found)
                if most is not None and passed >= most:
                    self.stuck.set()
                if self.stuck.is_set():
                    await self.free.wait()
                writer.write(found)
                await writer.drain()

    def cut(self) -> None:
        self.free.set()
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def beyond(target: str) -> AsyncIterator[tuple[Link, KafkaPixyStub]]:
    """A client behind a link, which reads little in advance."""
    link = Link(target)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    options = [
        ("grpc.http2.lookahead_bytes", 16384),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.sockets[0].getsockname()[1]}", options=options
    ) as channel:
        yield link, KafkaPixyStub(channel)
    link.cut()
    server.close()


@pytest.mark.parametrize("end", ["deadline", "cut"])
async def test_a_message_whose_answer_is_stuck_when_the_call_ends_is_offered_again(
    kafka: Cluster, name: str, end: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), ack_timeout=300.0)
    async with serving(config) as daemon, beyond(daemon.engine.addresses["grpc"]) as (link, stub):
        await daemon.produce(name, b"x" * SIZE)
        request = pb.ConsNAckRq(topic=name, group=name, auto_ack=True)
        taking = await _stuck(link, stub, request, 3.0 if end == "deadline" else 60.0)
        if end == "cut":
            link.cut()
        assert await taking is None
        assert len((await daemon.consume(name, name, auto_ack=True)).message) == SIZE
        await eventually(
            lambda: daemon.offsets(name, name), lambda found: found[0].offset == 1
        )  # and this one is done


async def _stuck(
    link: Link, stub: KafkaPixyStub, request: pb.ConsNAckRq, timeout: float
) -> asyncio.Task[pb.ConsRs | None]:
    """Ask until an answer stands still on the link; return the call."""
    stuck = asyncio.create_task(link.stuck.wait())
    while True:
        taking = asyncio.create_task(_taken(stub.ConsumeNAck(request, timeout=timeout)))
        await asyncio.wait({taking, stuck}, return_when=asyncio.FIRST_COMPLETED)
        if stuck.done():
            return taking


async def _taken(call: grpc.aio.UnaryUnaryCall) -> pb.ConsRs | None:
    try:
        return await call  # type: ignore[no-any-return]
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return None


async def test_a_message_whose_answer_comes_slowly_is_done(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), ack_timeout=300.0)
    async with serving(config) as daemon, beyond(daemon.engine.addresses["grpc"]) as (link, stub):
        await daemon.produce(name, b"x" * SIZE)
        taking = await _stuck(link, stub, pb.ConsNAckRq(topic=name, group=name, auto_ack=True), 60.0)
        link.free.set()
        found = await taking
        assert found is not None and len(found.message) == SIZE
        await eventually(lambda: daemon.offsets(name, name), lambda offsets: offsets[0].offset == 1)
