"""The producer of a topic, against a client that keeps what it is given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import ActorRef, ActorSystem, Future
from pixy.config import Producer
from pixy.engine.topic_producer import Delivered, Drain, Produce, TopicProducer
from pixy.errors import KafkaError, ShuttingDown, TooManyRequests, UnknownTopic


class Client:
    """Takes at most ``room`` messages in all."""

    def __init__(self, room: int = 10**9) -> None:
        self.batches: list[list[Any]] = []
        self.partitions: list[int] = []
        self.room = room

    @property
    def sent(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> tuple[int, list[Any]]:
        taken = batch[: self.room]
        self.room -= len(taken)
        if taken:
            self.batches.append(taken)
            self.partitions += partitions[: len(taken)]
        return len(taken), []

    def land(self, ref: ActorRef[Any], items: list[Any]) -> None:
        ref.tell(Delivered(tuple((item, None, 0, at) for at, item in enumerate(items))), urgent=True)


def start(
    system: ActorSystem, client: Client, partitions: tuple[int, ...] | None = (0, 1), **conf: Any
) -> ActorRef[Any]:
    async def writable(_topic: str) -> tuple[int, ...] | None:
        return partitions

    return system.spawn(TopicProducer, "t", Producer(**conf), client, writable, legacy=False)


async def until(check: Any) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0)


def ask(ref: ActorRef[Any], count: int, size: int = 1) -> list[Future[Any]]:
    return [ref.ask(Produce(None, b"x" * size), block=False) for _ in range(count)]


async def test_callers_that_come_together_go_together_and_later_ones_wait_for_the_flight() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        first = ask(ref, 5)
        await until(lambda: len(client.sent) == 5)
        assert len(client.batches) == 1
        second = ask(ref, 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(client.batches) == 1, "gathered while something is in flight"
        client.land(ref, client.batches[0])
        await until(lambda: len(client.sent) == 8)
        assert [await reply for reply in first] == [(0, at) for at in range(5)]
        client.land(ref, client.batches[1])
        assert [await reply for reply in second] == [(0, at) for at in range(3)]


async def test_what_was_gathered_goes_out_after_flush_frequency_at_the_latest() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=0.01)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 2)  # though the first has not landed


async def test_flush_bytes() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60, flush_bytes=100)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        ask(ref, 1, size=99)
        ask(ref, 1, size=2)
        await until(lambda: len(client.sent) == 3)


async def test_a_drain_sends_what_is_gathered_before_it_answers() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        waiting = ask(ref, 4)
        await ref.ask(Drain(), block=False)
        assert len(client.sent) == 5
        with pytest.raises(ShuttingDown):
            await ask(ref, 1)[0]
        client.land(ref, client.sent)
        assert len([await reply for reply in waiting]) == 4


async def test_a_full_client_keeps_order_and_goes_on_with_the_next_report() -> None:
    client = Client(room=2)
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=0.01)
        replies = [ref.ask(Produce(None, b"%d" % n), block=False) for n in range(5)]
        await until(lambda: len(client.sent) == 2)
        client.room = 10
        client.land(ref, client.sent)
        await until(lambda: len(client.sent) == 5)
        assert [item.value for item in client.sent] == [b"0", b"1", b"2", b"3", b"4"]
        client.land(ref, client.sent[2:])
        assert len([await reply for reply in replies]) == 5


async def test_the_bound_of_what_waits() -> None:
    client = Client(room=0)
    async with ActorSystem() as system:
        ref = start(system, client, channel_buffer_size=3)
        replies = ask(ref, 4)
        with pytest.raises(TooManyRequests):
            await replies[3]
        assert not any(reply.done() for reply in replies[:3])


async def test_too_large_and_unknown() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, max_message_bytes=1000)
        with pytest.raises(KafkaError, match="too large"):
            await ask(ref, 1, size=1000 - 35)[0]
        fits = ask(ref, 1, size=1000 - 36)
        await until(lambda: len(client.sent) == 1)
        client.land(ref, client.sent)
        assert await fits[0] == (0, 0)
        missing = start(system, client, partitions=None)
        with pytest.raises(UnknownTopic):
            await ask(missing, 1)[0]
        await until(lambda: not missing.is_alive())


async def test_round_robin_takes_the_writable_partitions_in_turn() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, partitions=(0, 2, 5), partitioner="roundrobin")
        ask(ref, 4)
        await until(lambda: len(client.sent) == 4)
        assert client.partitions == [0, 2, 5, 0]
