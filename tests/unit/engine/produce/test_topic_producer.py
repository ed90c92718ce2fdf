"""The producer of a topic, with a client that keeps the messages that it is given."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from actors import ActorDeadError, ActorRef, ActorSystem, Backoff, Future, NoAnswer, Supervision
from actors.testing import simulate
from pixy.config import Producer
from pixy.config.model import Journal as JournalConf, Proxy
from pixy.engine.client import ClusterClient
from pixy.engine.journal.buffer import WAITED, Journal, Kind
from pixy.engine.produce.pending_records import sizes_of
from pixy.engine.produce.topic_producer import (
    DeliveryReports,
    DrainProducer,
    Produce,
    ProduceMany,
    Resolved,
    TopicProducer,
    _IdleCheck,
)
from pixy.errors import (
    KafkaError,
    ShuttingDown,
    TooManyRequests,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from pixy.kafka.producer_messages import by_partition


class Client:
    """Takes at most ``room`` messages in all."""

    def __init__(self, room: int = 10**9) -> None:
        self.batches: list[list[Any]] = []
        self.partitions: list[int] = []
        self.room = room
        self.gated: list[tuple[str, tuple[int, ...]]] = []
        self.full = False
        """Whether it had to refuse messages."""

    @property
    def sent(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> tuple[int, list[Any]]:
        taken = batch[: self.room]
        self.full |= len(taken) < len(batch)
        self.room -= len(taken)
        if taken:
            self.batches.append(taken)
            self.partitions += partitions[: len(taken)]
        return len(taken), []

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        taken = list(bulk.records[bulk.sent :])[: min(self.room, len(partitions))]
        self.room -= len(taken)
        bulk.sent += len(taken)
        if taken:
            self.batches.append(taken)
            self.partitions += partitions[: len(taken)]
        return bulk.sent == len(bulk.records)

    def bulk_landed(self, bulk: Any) -> None:
        """Do nothing: the tests deliver the reports of a bulk themselves."""

    def send_again(self, item: Any, message: Any, landed: Any) -> bool:
        """Send nothing again: what lands here has an offset."""
        return False

    def gate(self, topic: str, partitions: tuple[int, ...]) -> None:
        self.gated.append((topic, partitions))

    def ungate(self, topic: str) -> None:
        self.gated = [each for each in self.gated if each[0] != topic]

    def land(self, ref: ActorRef[Any], items: list[Any]) -> None:
        reports = tuple((item, None, 0, at) for at, item in enumerate(items))
        ref.tell(DeliveryReports(items[0].life, reports), urgent=True)


def start(
    system: ActorSystem,
    client: Client,
    partitions: tuple[int, ...] | None = (0, 1),
    journal: Journal | None = None,
    writable: Any = None,
    **conf: Any,
) -> ActorRef[Any]:
    async def known(_topic: str) -> tuple[int, ...] | None:
        # What a test asks at once is there before the answer, also if a slow machine cuts the actor's turn after each message.
        for _ in range(20):
            await asyncio.sleep(0)
        return partitions

    return system.spawn(
        TopicProducer,
        "t",
        Producer(**conf),
        client,
        writable or known,
        legacy=False,
        journal=journal,
        supervision=Supervision(backoff=Backoff(first=0.001)),
    )


async def until(check: Any) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0)


def ask(ref: ActorRef[Any], count: int, size: int = 1) -> list[Future[Any]]:
    return [ref.ask(Produce(None, b"x" * size), block=False) for _ in range(count)]


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


class Outage:
    """A cluster that answers nothing until it is over."""

    def __init__(self) -> None:
        self.over = False
        self.asked = 0

    async def __call__(self, _topic: str) -> tuple[int, ...]:
        self.asked += 1
        if not self.over:
            await asyncio.sleep(5.0)
            raise OUT_OF_BROKERS
        return (0,)


OUT_OF_BROKERS = KafkaError("out of brokers", -195, "_TRANSPORT", retriable=True)


def test_asynchronous_messages_survive_an_outage_before_their_topic_is_known() -> None:
    """They wait as long as those of a known topic; callers hear after three look-ups."""

    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage)
        caller = ask(ref, 1)[0]
        ref.tell(Produce(None, b"0"))
        batch = ref.ask(ProduceMany([Rec(b"batch")]), block=False)
        ref.tell(Produce(None, b"1"))
        for reply in (caller, batch):
            with pytest.raises(KafkaError, match="out of brokers"):
                await reply
        assert 15 <= system.loop.time() < 17
        await asyncio.sleep(45)
        assert client.sent == [] and ref.is_alive()
        outage.over = True
        await asyncio.sleep(10)
        assert [item.value for item in client.sent] == [b"0", b"1"]
        client.land(ref, client.sent)

    simulate(play, seed=1)


def test_an_outage_that_lasts_loses_each_message_when_its_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage, retry_backoff=10, retry_max=6, timeout=10)
        ref.tell(Produce(None, b"0"))
        await asyncio.sleep(30)
        ref.tell(Produce(None, b"1"))
        lost = "an asynchronous message is lost: out of brokers"
        await asyncio.sleep(39.9)
        assert lost not in caplog.text and ref.is_alive()
        await asyncio.sleep(0.2)
        assert caplog.text.count(lost) == 1 and ref.is_alive()
        await asyncio.sleep(30)
        assert caplog.text.count(lost) == 2 and not ref.is_alive()
        assert client.sent == []

    simulate(play, seed=1)


def test_a_topic_that_does_not_exist_loses_its_messages_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def play(system: ActorSystem) -> None:
        ref = start(system, Client(), partitions=None)
        ref.tell(Produce(None, b"0"))
        await asyncio.sleep(1)
        assert caplog.text.count("an asynchronous message is lost: kafka server: Request was for") == 1
        assert not ref.is_alive()

    simulate(play, seed=1)


def test_a_drain_during_an_outage_keeps_asynchronous_messages_until_its_time_is_over() -> None:
    async def play(system: ActorSystem) -> None:
        client, outage = Client(), Outage()
        ref = start(system, client, writable=outage, shutdown_timeout=30)
        ref.tell(Produce(None, b"0"))
        assert await ref.ask(DrainProducer(), block=False) == 1
        assert system.loop.time() >= 30

    simulate(play, seed=1)


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
        self.timestamp = lambda: (1, 1_700_000_000_000 + offset)


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

    def give_up(self, bulk: Any) -> None:
        for at in range(bulk.sent, len(bulk.records)):
            bulk.refuse(at, LibraryError(LibraryError._PURGE_QUEUE))
        bulk.sent = len(bulk.records)

    def deliver(self, ref: ActorRef[Any]) -> None:
        complete, self.complete = self.complete, []
        reports = tuple((bulk, None, -1, -1) for bulk in complete)
        ref.tell(DeliveryReports(complete[0].life, reports), urgent=True)


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


# -- listener --------------------------------------------------------------------------------------

TIMED_OUT = LibraryError(LibraryError._MSG_TIMED_OUT)


def start_journalled(system: ActorSystem, client: Client, **conf: Any) -> tuple[ActorRef[Any], Journal]:
    journal = Journal(JournalConf(topic="journal"), system.loop.time)
    return start(system, client, journal=journal, **conf), journal


def events(journal: Journal) -> list[tuple[int, int, int, int, int]]:
    """Take the events: kind, partition, offset, Kafka's error code, flags."""
    taken = [event for batch, _ in journal.take(partly=True) for event in batch]
    assert all(event[2].topic == "t" and event[6] >= 0 for event in taken)
    return [(event[0], event[2].partition, event[3], event[7], event[8]) for event in taken]


async def test_the_journal_has_an_event_for_each_single_message(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    async with ActorSystem() as system:
        ref, journal = start_journalled(system, client, max_message_bytes=1000)
        waited = ask(ref, 2)
        ref.tell(Produce(None, b"asynchronous"))
        await until(lambda: len(client.sent) == 3)
        first, second, third = client.sent
        reports = ((first, None, 1, 7), (second, TIMED_OUT, -1, -1), (third, None, 0, 9))
        ref.tell(DeliveryReports(first.life, reports), urgent=True)
        assert await waited[0] == (1, 7)
        with pytest.raises(KafkaError):
            await waited[1]
        assert sorted(events(journal)) == [
            (Kind.PRODUCED, 0, 9, 0, 0),
            (Kind.PRODUCED, 1, 7, 0, WAITED),
            (Kind.PRODUCE_FAILED, -1, -1, LibraryError._MSG_TIMED_OUT, WAITED),
        ]
        with pytest.raises(KafkaError):
            await ask(ref, 1, size=1000)[0]
        assert events(journal) == [(Kind.PRODUCE_FAILED, -1, -1, 10, WAITED)], "too large: never sent"
        assert "asynchronous message is lost" not in caplog.text
        ref.tell(Produce(None, b"asynchronous"))
        await until(lambda: len(client.sent) == 4)
        ref.tell(DeliveryReports(first.life, ((client.sent[3], TIMED_OUT, -1, -1),)), urgent=True)
        await until(lambda: journal.held == 5)
        assert events(journal) == [(Kind.PRODUCE_FAILED, -1, -1, LibraryError._MSG_TIMED_OUT, 0)]
        assert caplog.text.count("asynchronous message is lost") == 1


async def test_the_journal_has_an_event_for_each_record_of_a_batch() -> None:
    client = BulkClient()
    async with ActorSystem() as system:
        ref, journal = start_journalled(system, client, max_message_bytes=1000)
        reply = ref.ask(ProduceMany([Rec(b"a"), Rec(b"x" * 1000), Rec(b"b")]), block=False)
        await until(lambda: client.bulks)
        [bulk] = client.bulks
        bulk.landed(1, None, Landed(1, 8))
        bulk.refuse(0, TIMED_OUT)
        client.bulk_landed(bulk)
        client.deliver(ref)
        assert [type(each) for each in await reply] == [KafkaError, KafkaError, tuple]
        taken = [event for batch, _ in journal.take(partly=True) for event in batch]
        assert [(event[0], event[5], event[7]) for event in taken] == [
            (Kind.PRODUCE_FAILED, -1, LibraryError._MSG_TIMED_OUT),
            (Kind.PRODUCE_FAILED, -1, 10),
            (Kind.PRODUCED, 1_700_000_000_008, 0),
        ]


@pytest.mark.slow
async def test_messages_for_an_unknown_topic_are_in_the_journal() -> None:
    async with ActorSystem() as system:
        ref, journal = start_journalled(system, BulkClient(), partitions=None)
        single, batch = ask(ref, 1)[0], ref.ask(ProduceMany([Rec(), Rec()]), block=False)
        for reply in (single, batch):
            with pytest.raises(UnknownTopic):
                await reply
        assert events(journal) == [(Kind.PRODUCE_FAILED, -1, -1, 3, WAITED)] * 3


async def test_reports_of_an_earlier_life_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Its callers have their answer already; the journal, and whoever reads the log, hear what became of the messages."""
    client = Client()
    async with ActorSystem() as system:
        ref, journal = start_journalled(system, client, flush_frequency=60)
        lost = ask(ref, 1)[0]
        ref.tell(Produce(None, b"asynchronous"))
        await until(lambda: len(client.sent) == 2)
        crash(ref)
        with pytest.raises(NoAnswer):
            await lost
        waiting = ask(ref, 1)[0]
        await until(lambda: len(client.sent) == 3)
        gathered = ask(ref, 1)[0]
        early, asynchronous, late = client.sent
        assert early.life is not late.life and early.life.ref == late.life.ref
        reports = ((early, None, 0, 0), (asynchronous, TIMED_OUT, -1, -1))
        ref.tell(DeliveryReports(early.life, reports), urgent=True)
        await until(lambda: "an asynchronous message is lost" in caplog.text)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(client.sent) == 3, "the second life's message is still in flight"
        failed = (Kind.PRODUCE_FAILED, -1, -1, LibraryError._MSG_TIMED_OUT, 0)
        assert sorted(events(journal)) == sorted([failed, (Kind.PRODUCED, 0, 0, 0, WAITED)])
        client.land(ref, [late])
        assert await waiting == (0, 0)
        await until(lambda: len(client.sent) == 4)
        assert events(journal) == [(Kind.PRODUCED, 0, 0, 0, WAITED)]
        assert not gathered.done()


async def test_a_report_of_an_earlier_life_makes_a_full_client_continue() -> None:
    """Any delivery report means that the client has room, whichever life sent the message."""
    client = Client(room=1)
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        crash(ref)
        ask(ref, 1)
        await until(lambda: client.full)
        assert len(client.sent) == 1
        client.room = 1
        client.land(ref, client.sent)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(client.sent) == 2


async def test_a_producer_that_fails_sends_no_caller_to_send_twice(caplog: pytest.LogCaptureFixture) -> None:
    """What is on its way fails with NoAnswer; what was never sent with a plain ActorDeadError, and can be repeated."""
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client, flush_frequency=60)
        sent = ask(ref, 1)[0]
        await until(lambda: len(client.sent) == 1)
        waiting = ask(ref, 1)[0]
        ref.tell(Produce(None, b"asynchronous"))
        crash(ref)
        with pytest.raises(NoAnswer):
            await sent
        with pytest.raises(ActorDeadError) as refused:
            await waiting
        assert type(refused.value) is ActorDeadError
        assert caplog.text.count("an asynchronous message is lost: the topic's producer has failed") == 1


async def test_a_message_whose_producer_fails_is_not_repeated() -> None:
    client = Client()
    async with ActorSystem() as system:
        made = ClusterClient(Found(start(system, client)), Proxy(), lambda: False)
        producing = asyncio.create_task(made.produce("t", b"x"))
        await until(lambda: len(client.sent) == 1)
        crash(client.sent[0].life.ref)
        with pytest.raises(Unavailable, match="may or may not be written"):
            await producing
        assert len(client.sent) == 1


class Found:
    """A cluster that has one producer after the other."""

    def __init__(self, *producers: Any) -> None:
        self.producers = list(producers)

    def ask(self, _message: Any, *, block: bool) -> Future[Any]:
        reply: Future[Any] = Future()
        reply.try_set(self.producers.pop(0))
        return reply


async def test_an_idle_producer_stops_only_if_no_message_has_come() -> None:
    client = Client()
    async with ActorSystem() as system:
        ref = start(system, client)
        ref.tell(_IdleCheck())  # from now on it is idle
        await until(lambda: not list(ref.actor_inbox))
        ref.tell(Produce(None, b"first"))
        ref.tell(_IdleCheck(), urgent=True)  # handled before the message, as a timer is
        await until(lambda: [each.value for each in client.sent] == [b"first"])
        client.land(ref, client.sent)
        ref.tell(_IdleCheck())
        ref.tell(_IdleCheck())
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


async def test_a_topic_that_a_refresh_does_not_find_keeps_its_producer_while_messages_are_on_their_way() -> (
    None
):
    client, known = Client(), [(0, 1)]

    async def writable(_topic: str) -> tuple[int, ...] | None:
        return known[0]

    async with ActorSystem() as system:
        ref = start(system, client, writable=writable, partitioner="roundrobin")
        reply = ask(ref, 1)[0]
        await until(lambda: len(client.sent) == 1)
        ref.tell(Resolved(None))
        await until(lambda: not list(ref.actor_inbox))
        client.land(ref, client.sent)
        assert await reply == (0, 0)
        ref.tell(Resolved(None))
        await until(lambda: not ref.is_alive())


def crash(ref: ActorRef[Any]) -> None:
    """Make the producer fail and restart, with records that are none and for which nobody waits."""
    ref.tell(ProduceMany([b"not a record"]))  # type: ignore[list-item]


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
