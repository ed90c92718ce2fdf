"""Bytes that nobody looks at pass through the kernel; all arrive in order, also to a receiver that is slow or goes away."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from typing import Any

import pytest

from actors import SpawnRefused
from pixy.tap import direction as relaying
from pixy.tap.config import TapConfig
from pixy.tap.conversation import Conversation
from pixy.tap.listener import Listener
from pixy.tap.pipes import SharedBuffer
from pixy.tap.queueing import Queueing, Turns
from pixy.tap.relay import Relay
from pixy.tap.service import TapService
from pixy.wire import frames
from pixy.wire.batch import Builder
from tests.unit.tap.stage import Stage
from tests.unit.tap.test_rewrite import to_tap


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for each in (one, other):
        each.setblocking(False)
    return one, other


class Line:
    """A client and a broker with a relay between them."""

    def __init__(self, rewriting: bool = False) -> None:
        self.stage = Stage()
        self.client, inner = pair()
        outer, self.broker = pair()
        self.buffer, self.ended = SharedBuffer(), asyncio.Event()
        self.now = 0.0
        self.conversation = Conversation(
            1, self.stage, lambda: self.now, self.stage.config.bounds, to_tap if rewriting else None
        )
        self.relay = Relay(
            inner, outer, self.conversation, self.buffer, lambda _: self.ended.set(), rewriting=rewriting
        )
        self.relay.start()

    async def move(
        self, source: socket.socket, sink: socket.socket, data: bytes, slowly: bool = False
    ) -> bytes:
        loop, got = asyncio.get_running_loop(), bytearray()
        sending = asyncio.create_task(loop.sock_sendall(source, data))
        while len(got) < len(data):
            chunk = await loop.sock_recv(sink, 50_000 if slowly else 1 << 20)
            assert chunk
            got += chunk
            if slowly:
                await asyncio.sleep(0)
        await sending
        return bytes(got)

    def close(self) -> None:
        self.relay.close("done")
        for each in (self.client, self.broker):
            each.close()
        self.buffer.close()


def requests(sizes: list[int]) -> bytes:
    found = b""
    for number, size in enumerate(sizes, 1):
        records = Builder().add(None, random.Random(number).randbytes(size)).build().marshal()
        body = {"Acks": 1, "TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": records}]}]}
        found += frames.encode_request("Produce", 7, number, "c", body)
    return found


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("rewriting", [False, True])
async def test_large_requests_are_spliced_and_still_observed(
    slowly: bool, rewriting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spliced, real = [0], os.splice

    def splice(*args: Any, **options: Any) -> int:
        moved = real(*args, **options)
        spliced[0] += moved
        return moved

    monkeypatch.setattr(relaying.os, "splice", splice)
    line = Line(rewriting)
    data = requests([700_000, 10, 300_000, 70_000, 2_000_000, 5_000, 1_000_000])
    assert await line.move(line.client, line.broker, data, slowly) == data
    assert spliced[0] > len(data), "most bytes, once in and once out"
    assert line.conversation.counts["requests"] == 7 and not line.conversation.counts["undecodable"]
    assert line.conversation.counts["bytes_to_broker"] == len(data)
    answers = b"".join(frames.encode_response("Produce", 7, number, {}) for number in range(1, 8))
    assert await line.move(line.broker, line.client, answers) == answers
    assert line.conversation.in_flight == 0
    line.close()


async def test_what_is_not_kafka_is_spliced() -> None:
    line = Line()
    data = b"\x16\x03\x01" + random.Random(1).randbytes(3_000_000)
    assert await line.move(line.client, line.broker, data) == data and line.conversation.opaque == "TLS"
    back = random.Random(2).randbytes(1_000_000)
    assert await line.move(line.broker, line.client, back) == back
    line.client.shutdown(socket.SHUT_WR)
    assert await asyncio.get_running_loop().sock_recv(line.broker, 10) == b"", "half closed"
    assert await line.move(line.broker, line.client, b"still") == b"still"
    line.close()


async def test_a_receiver_that_goes_away_leaves_no_pipe_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    line = Line()
    loop = asyncio.get_running_loop()
    sending = asyncio.create_task(loop.sock_sendall(line.client, requests([20_000_000])))
    await loop.sock_recv(line.broker, 100_000)
    line.broker.close()
    await asyncio.wait_for(line.ended.wait(), 20)
    with pytest.raises(OSError):
        await sending
    line.close()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("lack", ["splice", "files"])
async def test_without_splice_bytes_are_copied(lack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_options: Any) -> Any:
        raise OSError(errno.EINVAL if lack == "splice" else errno.EMFILE, "no")

    monkeypatch.setattr(relaying.os, "splice" if lack == "splice" else "pipe2", refuse)
    line = Line()
    data = requests([1_000_000, 500_000])
    assert await line.move(line.client, line.broker, data) == data
    line.close()


async def until(done: Any) -> None:
    """Let the relay work until something is so."""
    for _ in range(100_000):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("the relay does not come to it")


async def test_the_time_in_which_the_broker_accepts_nothing_is_the_taps_and_not_the_brokers() -> None:
    line, loop = Line(), asyncio.get_running_loop()
    line.now = 1_000.0
    data = requests([20_000_000])
    sending = asyncio.create_task(loop.sock_sendall(line.client, data))
    await until(lambda: line.relay.to_broker.held)
    line.now += 5
    got = 0
    while got < len(data):
        got += len(await loop.sock_recv(line.broker, 1 << 20))
    await sending
    await until(lambda: not line.relay.to_broker.held)
    line.now += 2
    await loop.sock_sendall(line.broker, frames.encode_response("Produce", 7, 1, {}))
    await loop.sock_recv(line.client, 1_000)
    await until(lambda: not line.conversation.in_flight)
    found = line.conversation.tally()
    assert found is not None and found.seconds[0] == 2 and found.queue_seconds[0] == 5
    assert found.held == (5, 0) and sum(found.queues[0]) == sum(found.latency[0]) == 1
    line.close()


async def test_a_client_that_does_not_read_is_told_apart() -> None:
    line, loop = Line(), asyncio.get_running_loop()
    line.now = 1_000.0
    sending = asyncio.create_task(loop.sock_sendall(line.broker, b"\x7f" * 20_000_000))  # no Kafka
    await until(lambda: line.relay.to_client.held)
    line.now += 3
    got = 0
    while got < 20_000_000:
        got += len(await loop.sock_recv(line.client, 1 << 20))
    await sending
    await until(lambda: not line.relay.to_client.held)
    assert line.conversation.queueing.held == [0, 3]
    line.close()


async def test_what_is_read_later_in_a_turn_has_waited_since_its_beginning() -> None:
    turns = Turns()
    assert turns.began(1.0) == 1.0 and turns.began(1.5) == 1.0
    assert turns.began(0.5) == 0.5, "a clock that steps back gives no negative wait"
    await asyncio.sleep(0)
    assert turns.began(2.0) == 2.0


def test_a_response_is_the_brokers_time_and_the_rest_the_taps() -> None:
    stage = Stage()
    client = stage.client()
    queueing = client.conversation.queueing
    queueing.asked, queueing.sent = 1_000.0, 1_000.25  # read, and handed to the broker
    number = client.ask("Heartbeat", 4, {"GroupId": "g", "MemberId": "m"})
    stage.now, queueing.answered = 1_003.5, 1_003.25  # handed to the client, and read
    client.answer(number, {})
    found = client.conversation.tally()
    assert found is not None and found.seconds[12] == 3.0 and found.queue_seconds[12] == 0.5
    stage.put(found)
    shown = stage.observer.latency.to_json()["apis"][0]
    assert shown["mean"] == 3.0 and shown["tap"]["mean"] == 0.5


def test_a_delay_belongs_to_the_requests_that_waited() -> None:
    queueing = Queueing()
    queueing.delayed(3, 5, 2.0)
    queueing.delayed(8, 8, 1.0)
    assert [queueing.delay(number) for number in (1, 3, 5, 6, 8, 9)] == [0, 2, 2, 0, 1, 0]


async def test_a_connection_that_comes_while_the_tap_stops_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener's callback raised SpawnRefused, and the event loop printed a traceback."""
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))

    def refuse(*_: Any, **__: Any) -> None:
        raise SpawnRefused("the listener is stopping")

    monkeypatch.setattr(Listener, "spawn", refuse)
    service = TapService(TapConfig((("127.0.0.1", 1),), ("127.0.0.1", 0)))
    async with service as tap:
        reader, writer = await asyncio.open_connection(*tap.listening[0][0])
        assert await reader.read() == b""
        writer.close()
    assert not raised, raised
