"""The producer of a topic, with a client that keeps the messages that it is given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import ActorRef, ActorSystem
from pixy.config.model import Proxy
from pixy.engine.client import ClusterClient
from pixy.engine.produce.messages import DrainProducer, Produce, ProduceMany
from pixy.engine.produce.timers import IdleCheck
from pixy.errors import KafkaError, ShuttingDown, TooManyRequests, UnknownTopic
from tests.unit.engine.produce.scripted_client import (
    Client,
    Found,
    Rec,
    ask,
    start,
    until,
)


async def test_concurrent_messages_are_sent_together_and_later_ones_wait_until_they_land() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        first = ask(ref, 5)
        await until(lambda: len(client.sent) == 5)
        assert len(client.batches) == 1
        second = ask(ref, 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(client.batches) == 1, "the first messages are still in flight"
        client.land(ref, client.batches[0])
        await until(lambda: len(client.sent) == 8)
        assert [await reply for reply in first] == [(0, at) for at in range(5)]
        client.land(ref, client.batches[1])
        assert [await reply for reply in second] == [(0, at) for at in range(3)]


async def test_gathered_messages_are_sent_after_flush_frequency_at_the_latest() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=0.01)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 2)  # though the first has not landed


async def test_gathered_messages_are_sent_once_they_exceed_flush_bytes() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60, flush_bytes=100)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        ask(ref, 1, size=99)
        ask(ref, 1, size=2)
        await until(lambda: len(client.sent) == 3)


async def test_a_drain_sends_gathered_messages_before_it_replies() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        waiting = ask(ref, 4)
        await ref.ask(DrainProducer(), block=False)
        assert len(client.sent) == 5
        with pytest.raises(ShuttingDown):
            await ask(ref, 1)[0]
        client.land(ref, client.sent)
        assert len([await reply for reply in waiting]) == 4


async def test_a_drain_waits_for_messages_whose_topic_is_looked_up() -> None:
    client, found = Client(), asyncio.Event()

    async def writable(_topic: str) -> tuple[int, ...]:
        await found.wait()
        return (0,)

    async with ActorSystem() as system:
        ref = start(system, client, writable=writable)
        ref.tell(Produce(None, b"asynchronous"))
        draining = ref.ask(DrainProducer(), block=False)
        with pytest.raises(ShuttingDown):
            await ref.ask(Produce(None, b"late"), block=False)
        assert not draining.done() and client.sent == []
        found.set()
        assert await draining == 0
        assert [item.value for item in client.sent] == [b"asynchronous"]


async def test_a_drain_waits_for_room_in_the_client() -> None:
    client = Client(room=1)
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=0.01)
        ask(ref, 3)
        await until(lambda: len(client.sent) == 1)
        draining = ref.ask(DrainProducer(), block=False)
        assert not draining.done()
        client.room = 10
        client.land(ref, client.sent)
        assert await draining == 0
        assert len(client.sent) == 3


async def test_a_drain_that_takes_too_long_gives_up_and_says_how_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(room=0)
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=0.01, shutdown_timeout=0.05)
        ref.tell(Produce(None, b"asynchronous"))
        waiting = ask(ref, 2)
        assert await ref.ask(DrainProducer(), block=False) == 3
        for reply in waiting:
            with pytest.raises(ShuttingDown):
                await reply
    assert caplog.text.count("an asynchronous message is lost: service is shutting down") == 1


async def test_sending_to_a_full_client_continues_in_order_with_the_next_report() -> None:
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


async def test_messages_beyond_channel_buffer_size_are_refused() -> None:
    client = Client(room=0)
    async with ActorSystem() as system:
        ref = start(system, client, channel_buffer_size=3)
        replies = ask(ref, 4)
        with pytest.raises(TooManyRequests):
            await replies[3]
        assert not any(reply.done() for reply in replies[:3])


@pytest.mark.slow
async def test_a_message_that_is_too_large_and_an_unknown_topic_are_refused() -> None:
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


async def test_the_gates_of_a_topic_are_shut_when_it_has_been_found_and_gone_with_its_producer() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, partitions=(0, 2))
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        assert client.gated == [("t", (0, 2))]
        await ref.stop(block=False)
        assert client.gated == []


async def test_gathered_bytes_are_bounded() -> None:
    client = Client(room=0)
    async with ActorSystem() as system:
        ref = start(system, client, buffer_max_bytes=2_000_000)
        kept = ask(ref, 2, size=999_000) + ask(ref, 1, size=3000)
        for refused in (ask(ref, 1)[0], ref.ask(ProduceMany([Rec()]), block=False)):
            with pytest.raises(TooManyRequests, match=r"producer\.buffer_max_bytes"):
                await refused
        assert not any(reply.done() for reply in kept)


async def test_round_robin_uses_the_writable_partitions_in_turn() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, partitions=(0, 2, 5), partitioner="roundrobin")
        ask(ref, 4)
        await until(lambda: len(client.sent) == 4)
        assert client.partitions == [0, 2, 5, 0]


async def test_an_idle_producer_stops_only_if_no_message_has_come() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client)
        ref.tell(IdleCheck())  # from now on it is idle
        await until(lambda: not list(ref.actor_inbox))
        ref.tell(Produce(None, b"first"))
        ref.tell(IdleCheck(), urgent=True)  # handled before the message, as a timer is
        await until(lambda: [each.value for each in client.sent] == [b"first"])
        client.land(ref, client.sent)
        ref.tell(IdleCheck())
        ref.tell(IdleCheck())
        await until(lambda: not ref.is_alive())
        # An asynchronous message that meets it at this moment goes to the next one.
        dying, heir = ref, start(system, client)
        made = ClusterClient(Found(dying, heir), Proxy(), lambda: False)
        made._producers["t"] = AliveFor(dying)  # type: ignore[assignment]
        await made.produce_async("t", b"second")
        await until(lambda: [each.value for each in client.sent] == [b"first", b"second"])


class AliveFor:
    """A producer that ends between the look whether it is alive and the message."""

    def __init__(self, ref: ActorRef[Any]) -> None:
        self.tell = ref.tell

    def is_alive(self) -> bool:
        return True
