"""Who hears of a message that is settled: its caller, the journal and the log, also of an earlier life of the producer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from actors import ActorDeadError, ActorSystem, NoAnswer
from actors.testing import simulate
from pixy.config.model import Proxy
from pixy.engine.client import ClusterClient
from pixy.engine.journal.buffer import WAITED, Kind
from pixy.engine.produce.messages import DeliveryReports, Produce, ProduceMany
from pixy.errors import KafkaError, Unavailable, UnknownTopic
from tests.unit.engine.produce.scripted_client import (
    BulkClient,
    Client,
    Found,
    Landed,
    Rec,
    ask,
    crash,
    events,
    start,
    start_journalled,
    until,
)

TIMED_OUT = LibraryError(LibraryError._MSG_TIMED_OUT)


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


async def test_the_log_counts_all_that_a_producer_loses_when_it_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ActorSystem() as system:
        client = Client()
        ref = start(system, client, flush_frequency=60)
        ask(ref, 1)
        await until(lambda: len(client.sent) == 1)
        ask(ref, 1)
        for _ in range(30):
            ref.tell(Produce(None, b"asynchronous"))
        crash(ref)
        await until(lambda: "10 more asynchronous messages were lost" in caplog.text)
        assert caplog.text.count("an asynchronous message is lost: the topic's producer has failed") == 20


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


class Broken(BulkClient):
    """Fails when it gets a batch."""

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        if not self.bulks:
            self.bulks.append(bulk)
            raise RuntimeError("it is broken")
        return super().send_bulk(topic, bulk, partitions)


async def test_what_is_behind_a_message_that_makes_the_producer_fail_was_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ActorSystem() as system:
        ref = start(system, Broken(), flush_frequency=60)
        batch = ref.ask(ProduceMany([Rec()]), block=False)
        behind = ask(ref, 1)[0]
        ref.tell(Produce(None, b"asynchronous"))
        with pytest.raises(NoAnswer):
            await batch
        with pytest.raises(ActorDeadError) as refused:
            await behind
        assert type(refused.value) is ActorDeadError
        lost = "an asynchronous message is lost: the topic's producer has failed: it is broken"
        assert caplog.text.count(lost) == 1


def test_the_journal_has_an_event_for_a_record_that_is_too_large_in_a_batch_whose_topic_is_missing() -> None:
    async def play(system: ActorSystem) -> None:
        ref, journal = start_journalled(system, BulkClient(), partitions=None, max_message_bytes=1000)
        reply = ref.ask(ProduceMany([Rec(b"x" * 1000), Rec(b"a")]), block=False)
        with pytest.raises(UnknownTopic):
            await reply
        assert events(journal) == [
            (Kind.PRODUCE_FAILED, -1, -1, 10, WAITED),
            (Kind.PRODUCE_FAILED, -1, -1, 3, WAITED),
        ]

    simulate(play, seed=1)
