"""Batches on their way through the producer of a topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from actors import ActorSystem, NoAnswer
from pixy.engine.journal.buffer import WAITED, Kind
from pixy.engine.produce.messages import DrainProducer, Produce, ProduceMany
from pixy.engine.produce.pending_records import sizes_of
from pixy.errors import KafkaError, UnknownPartition, UnknownTopic
from pixy.kafka.producer_messages import by_partition
from tests.unit.engine.produce.scripted_client import (
    BulkClient,
    Landed,
    Rec,
    ask,
    crash,
    events,
    start,
    start_journalled,
    until,
)


async def test_a_batch_has_a_result_for_each_record() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client)
        reply = ref.ask(ProduceMany([Rec(b"a"), Rec(b"b", partition=1), Rec(None, b"k")]), block=False)
        await until(lambda: client.bulks)
        [bulk] = client.bulks
        assert client.partitions == [-1, 1, -1]
        for at in (2, 0, 1):
            assert not client.complete, "reported before the last record landed"
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
        assert [record.value for record in bulk.records] == [b"a", b"b"], (
            "records that are too large are not sent"
        )
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


async def test_a_batch_that_does_not_fit_continues_where_it_stopped() -> None:
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


async def test_others_have_their_turn_while_a_batch_with_headers_is_handed_over() -> None:
    """librdkafka takes its records one by one, and each header takes a microsecond."""
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client)
        values = [b"%d" % at for at in range(1000)]
        ref.ask(ProduceMany([Rec(value, headers=[("h", b"1")] * 9) for value in values]), block=False)
        await until(lambda: client.batches)
        assert len(client.sent) <= 200
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1001)
        assert [record.value for record in client.sent] == [*values, b"x"]
        assert len(client.partitions) == 1001 and max(map(len, client.batches)) == 100


class Turns(BulkClient):
    """Counts what it is offered in each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.offered = [0]

    async def count(self) -> None:
        while True:
            self.offered.append(0)
            await asyncio.sleep(0)

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> tuple[int, list[Any]]:
        self.offered[-1] += len(batch)
        return super().send(topic, batch, partitions)

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        self.offered[-1] += len(partitions)
        return super().send_bulk(topic, bulk, partitions)


MEBIBYTE = 1_048_576


@pytest.mark.parametrize(
    ("flush_bytes", "headers", "count", "most"),
    [(1, 1, 20, 500), (MEBIBYTE, 1, 20, 500), (MEBIBYTE, 0, 20, 4500), (1, 200, 2, 5)],
)
async def test_others_have_their_turn_while_many_batches_are_handed_over(
    flush_bytes: int, headers: int, count: int, most: int
) -> None:
    client = Turns()
    async with ActorSystem() as system:
        ref = start(system, client, flush_bytes=flush_bytes, flush_frequency=0.05)
        ask(ref, 1)
        await until(lambda: client.sent)  # what comes while it is on its way is gathered
        turns = asyncio.ensure_future(client.count())
        batch = [Rec(b"%d" % at, headers=[("h", b"1")] * headers) for at in range(900)]
        for _ in range(count):
            ref.ask(ProduceMany(batch), block=False)
        await until(lambda: len(client.sent) == 1 + 900 * count)
        turns.cancel()
        assert [each.value for each in client.sent[1:]] == [each.value for each in batch] * count
        assert max(client.offered) <= most


async def test_others_have_their_turn_while_single_messages_with_many_headers_are_handed_over() -> None:
    client = Turns()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=0.05)
        ask(ref, 1)
        await until(lambda: client.sent)
        turns = asyncio.ensure_future(client.count())
        for at in range(300):
            ref.ask(Produce(None, b"%d" % at, [("h", b"1")] * 99), block=False)
        await until(lambda: len(client.sent) == 301)
        turns.cancel()
        assert [each.value for each in client.sent[1:]] == [b"%d" % at for at in range(300)]
        assert max(client.offered) <= 100


async def test_messages_are_not_refused_because_others_have_their_turn() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client, flush_bytes=700_000, channel_buffer_size=100)
        ask(ref, 1)
        await until(lambda: client.sent)
        replies = [ref.ask(Produce(None, b"v", [("h", b"1")] * 999), block=False) for _ in range(300)]
        await until(lambda: len(client.sent) == 301 or any(reply.done() for reply in replies))
        assert len(client.sent) == 301


async def test_the_sizes_of_a_batch_with_headers_are_added_up_in_steps() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.ensure_future(count())
    sizes = await sizes_of([Rec(b"v", b"k", headers=[("h", b"1")] * 9)] * 2000)
    others.cancel()
    assert sizes == [2 + 9 * 12] * 2000 and turns >= 5


async def test_the_rest_of_a_batch_that_was_sent_in_part_is_given_up_when_the_producer_fails() -> None:
    """Else its client waits for the rest, and counts its bytes, for ever."""
    client = BulkClient(room=1)
    async with ActorSystem() as system:
        ref, journal = start_journalled(system, client)
        reply = ref.ask(ProduceMany([Rec(b"a"), Rec(b"b")]), block=False)
        await until(lambda: client.sent)
        crash(ref)
        with pytest.raises(NoAnswer):
            await reply
        [bulk] = client.bulks
        bulk.landed(0, None, Landed(0, 5))
        assert client.complete == [bulk]
        client.deliver(ref)
        await until(lambda: journal.held == 2)
        purged = (Kind.PRODUCE_FAILED, -1, -1, LibraryError._PURGE_QUEUE, WAITED)
        assert sorted(events(journal)) == sorted([(Kind.PRODUCED, 0, 5, 0, WAITED), purged])


async def test_a_batch_that_was_sent_in_part_when_a_drain_ends_has_a_result_for_each_record() -> None:
    client = BulkClient(room=1)
    async with ActorSystem() as system:
        ref, journal = start_journalled(system, client, shutdown_timeout=0.01)
        reply = ref.ask(ProduceMany([Rec(b"a"), Rec(b"b"), Rec(b"c")]), block=False)
        await until(lambda: client.sent)
        assert await ref.ask(DrainProducer(), block=False) == 2
        client.bulks[0].landed(0, None, Landed(0, 5))
        client.deliver(ref)
        first, *others = await reply
        assert first == (0, 5) and {each.code for each in others} == {LibraryError._PURGE_QUEUE}
        assert journal.held == 3, "each record once"


@pytest.mark.slow
async def test_a_batch_for_an_unknown_topic_fails_as_a_whole() -> None:
    async with ActorSystem() as system:
        ref = start(system, BulkClient(), partitions=None)
        with pytest.raises(UnknownTopic):
            await ref.ask(ProduceMany([Rec()]), block=False)


async def test_an_empty_batch_has_no_results() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref = start(system, client)
        assert await ref.ask(ProduceMany([]), block=False) == []
        assert ref.is_alive() and client.bulks == []


async def test_round_robin_respects_the_partition_of_a_record() -> None:
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
def test_a_batch_is_grouped_by_partition_unless_that_could_change_an_order(
    partitions: list[int], groups: list[tuple[int, list[int]]] | None
) -> None:
    found = by_partition(partitions)
    assert groups == (None if found is None else [(part, list(indexes)) for part, indexes in found])
