"""The producer of a topic, against a client that keeps what it is given."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from actors import ActorRef, ActorSystem, Future
from pixy.config import Producer
from pixy.engine.produce.topic_producer import (
    DeliveryReports,
    DrainProducer,
    Produce,
    ProduceMany,
    TopicProducer,
)
from pixy.errors import KafkaError, ShuttingDown, TooManyRequests, UnknownPartition, UnknownTopic
from pixy.kafka.producer import by_partition


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

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        taken = list(bulk.records[bulk.sent :])[: self.room]
        self.room -= len(taken)
        bulk.sent += len(taken)
        if taken:
            self.batches.append(taken)
            self.partitions += partitions[: len(taken)]
        return bulk.sent == len(bulk.records)

    def bulk_landed(self, bulk: Any) -> None:
        """Told by land_bulk itself."""

    def land(self, ref: ActorRef[Any], items: list[Any]) -> None:
        ref.tell(DeliveryReports(tuple((item, None, 0, at) for at, item in enumerate(items))), urgent=True)


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
        await ref.ask(DrainProducer(), block=False)
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


# -- batches --------------------------------------------------------------------------------------


@dataclass
class Rec:
    value: bytes | None = b"v"
    key: bytes | None = None
    partition: int | None = None
    headers: Any = None
    timestamp: int | None = None


class Landed:
    """A delivery report's message."""

    def __init__(self, partition: int, offset: int) -> None:
        self.partition, self.offset = (lambda: partition), (lambda: offset)


class BulkClient(Client):
    """Reports batches as librdkafka's thread does."""

    def __init__(self, room: int = 10**9) -> None:
        super().__init__(room)
        self.bulks: list[Any] = []
        self.complete: list[Any] = []

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        if bulk not in self.bulks:
            self.bulks.append(bulk)
        return super().send_bulk(topic, bulk, partitions)

    def bulk_landed(self, bulk: Any) -> None:
        self.complete.append(bulk)

    def deliver(self, ref: ActorRef[Any]) -> None:
        complete, self.complete = self.complete, []
        ref.tell(DeliveryReports(tuple((bulk, None, -1, -1) for bulk in complete)), urgent=True)


async def test_a_batch_is_one_message_and_has_a_result_for_each_record() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client)
        reply = ref.ask(ProduceMany([Rec(b"a"), Rec(b"b", partition=1), Rec(None, b"k")]), block=False)
        await until(lambda: client.bulks)
        [bulk] = client.bulks
        assert client.partitions == [-1, 1, -1]
        for at in (2, 0, 1):
            assert not client.complete, "told once, at the end"
            bulk.landed(at, None, Landed(at, 10 + at))
        client.deliver(ref)
        assert await reply == [(0, 10), (1, 11), (2, 12)]


async def test_a_record_of_a_batch_fails_alone() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client, max_message_bytes=1000)
        records = [
            Rec(b"a"),
            Rec(b"x" * 1000),
            Rec(b"b", partition=9),
            Rec(b"c", headers=[("h", b"x" * 960)]),
        ]
        reply = ref.ask(ProduceMany(records), block=False)
        await until(lambda: client.bulks)
        [bulk] = client.bulks
        assert [record.value for record in bulk.records] == [b"a", b"b"], "what is too large is not sent"
        bulk.refuse(1, LibraryError(LibraryError._UNKNOWN_PARTITION))
        bulk.landed(0, None, Landed(0, 5))
        client.deliver(ref)
        written = await reply
        assert written[0] == (0, 5)
        assert [type(each) for each in written[1:]] == [KafkaError, UnknownPartition, KafkaError]
        assert "too large" in str(written[1])


async def test_batches_and_single_messages_keep_their_order() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        ask(ref, 2)
        ref.ask(ProduceMany([Rec(b"1"), Rec(b"2")]), block=False)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 5)
        assert [len(batch) for batch in client.batches] == [2, 2, 1]


async def test_a_batch_that_does_not_fit_goes_on_where_it_stopped() -> None:
    client = BulkClient(room=2)
    async with ActorSystem() as system:
        ref = start(system, client)
        reply = ref.ask(ProduceMany([Rec(str(at).encode()) for at in range(5)]), block=False)
        await until(lambda: len(client.sent) == 2)
        client.room = 10
        for at in range(2):
            client.bulks[0].landed(at, None, Landed(0, at))
        await until(lambda: len(client.sent) == 5)
        assert [record.value for record in client.sent] == [b"0", b"1", b"2", b"3", b"4"]
        for at in range(2, 5):
            client.bulks[0].landed(at, None, Landed(0, at))
        client.deliver(ref)
        assert await reply == [(0, at) for at in range(5)]


async def test_a_batch_for_a_topic_that_is_not_there_fails_as_a_whole() -> None:
    async with ActorSystem() as system:
        ref = start(system, BulkClient(), partitions=None)
        with pytest.raises(UnknownTopic):
            await ref.ask(ProduceMany([Rec()]), block=False)


async def test_round_robin_leaves_a_record_its_own_partition() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client, partitions=(0, 1, 2), partitioner="roundrobin")
        ref.ask(ProduceMany([Rec(), Rec(partition=2), Rec(), Rec()]), block=False)
        await until(lambda: client.bulks)
        assert client.partitions == [0, 2, 1, 2]


@pytest.mark.parametrize(
    ("partitions", "groups"),
    [
        ([-1, -1, -1], [(-1, [0, 1, 2])]),
        ([2, 2], [(2, [0, 1])]),
        ([1, 0, 1, 0], [(1, [0, 2]), (0, [1, 3])]),
        ([1, -1], None),
    ],
)
def test_a_batch_is_cut_by_partition_unless_that_could_change_an_order(
    partitions: list[int], groups: list[tuple[int, list[int]]] | None
) -> None:
    found = by_partition(partitions)
    assert groups == (None if found is None else [(part, list(places)) for part, places in found])
