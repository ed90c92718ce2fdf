"""A client that takes a topic for gone refuses its messages: they fail only if the topic is not found then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError, KafkaException

from actors import ActorSystem
from actors.testing import simulate
from pixy.engine.produce.messages import DeliveryReports, DrainProducer, Produce, ProduceMany
from pixy.errors import KafkaError, UnknownPartition, UnknownTopic
from pixy.kafka.errors import unknown_topic
from tests.unit.engine.produce.scripted_client import (
    OUT_OF_BROKERS,
    Client,
    Rec,
    ask,
    start,
    start_journalled,
)

GONE = LibraryError(LibraryError._UNKNOWN_TOPIC)


class Forgetful(Client):
    """Refuses messages of a topic that it takes for gone, until it is asked for the topic, which exists.

    Attributes:
        gone: whether it takes the topic for gone.
        exists: whether the topic is found.
        stubborn: whether it does not learn from what is found.
        learns: whether it hears that the topic exists as soon as it has refused a batch.
        asked: how often it was asked for the topic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gone = self.stubborn = self.learns = False
        self.exists = True
        self.asked = 0
        self.bulks: list[Any] = []
        self.ref: Any = None

    async def find(self, _topic: str) -> tuple[int, ...] | None:
        self.asked += 1
        exists = self.exists
        await asyncio.sleep(0.01)
        self.gone = self.gone and (self.stubborn or not exists)
        return (0, 1) if exists else None

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> tuple[int, list[Any]]:
        if self.gone:
            return 1, [(batch[0], unknown_topic())]
        return super().send(topic, batch, partitions)

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        self.bulks.append(bulk)
        if not self.gone:
            return super().send_bulk(topic, bulk, partitions)
        for at in range(bulk.sent, len(bulk.records)):
            bulk.refuse(at, KafkaException(GONE))
        bulk.sent = len(bulk.records)
        self.gone = not self.learns
        asyncio.get_running_loop().call_soon(self.report, (bulk, None))
        return True

    def report(self, *reports: tuple[Any, Any]) -> None:
        """Deliver reports: messages, each with its error."""
        made = tuple((item, error, 0, 0) for item, error in reports)
        self.ref.tell(DeliveryReports(reports[0][0].life, made), urgent=True)

    @property
    def values(self) -> str:
        return b"".join(item.value for item in self.sent).decode()


def begin(system: ActorSystem, **conf: Any) -> tuple[Forgetful, Any]:
    client = Forgetful()
    client.ref = start(system, client, writable=client.find, **conf)
    return client, client.ref


def tell(ref: Any, values: str) -> None:
    for value in values:
        ref.tell(Produce(None, value.encode()))


def test_messages_that_are_refused_although_the_topic_exists_are_sent_in_their_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        client.gone = True
        tell(ref, "bc")
        reply = ref.ask(Produce(None, b"d"), block=False)
        tell(ref, "e")
        await asyncio.sleep(1)
        assert client.values == "abcde" and client.asked == 2
        assert client.gated == [("t", (0, 1))], "one message goes ahead to each partition of another topic"
        client.report(*((item, None) for item in client.sent[1:]))
        assert await reply == (0, 0) and not caplog.messages

    simulate(play, seed=1)


def test_what_comes_back_goes_before_what_was_taken_later_however_late_it_comes() -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "abcd")
        await asyncio.sleep(1)
        a, b, c, d = client.sent
        client.gone = True
        client.report((c, GONE))
        client.report((a, GONE))
        tell(ref, "ef")
        await asyncio.sleep(5)
        assert client.values == "abcd", "b and d are on their way"
        client.gone = True
        client.report((d, GONE))
        await asyncio.sleep(5)
        assert client.values == "abcd"
        client.report((b, None))
        await asyncio.sleep(1)
        assert client.values == "abcd" + "acdef"

    simulate(play, seed=1)


def test_a_topic_that_is_gone_is_answered_with_404_after_three_look_ups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.gone, client.exists = True, False
        reply = ask(ref, 1)[0]
        tell(ref, "b")
        with pytest.raises(UnknownTopic) as caught:
            await reply
        assert str(caught.value) == str(unknown_topic()) and client.asked == 4
        assert system.loop.time() < 3
        client.report((client.sent[0], GONE))
        await asyncio.sleep(2)
        assert caplog.text.count("an asynchronous message is lost: kafka server: Request was for") == 2
        assert not ref.is_alive()

    simulate(play, seed=1)


def test_a_message_that_comes_during_the_look_ups_has_look_ups_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The topic may be made, and the message accepted, while the answer that it is missing is on its way."""

    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        client.exists = False
        tell(ref, "a")
        while client.asked < 3:
            await asyncio.sleep(0.001)
        client.exists = True
        tell(ref, "b")
        await asyncio.sleep(1)
        assert client.values == "b" and caplog.text.count("message is lost") == 1

    simulate(play, seed=1)


def test_a_client_that_does_not_learn_of_the_topic_loses_messages_when_their_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system, retry_backoff=10, retry_max=6, timeout=10)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        client.gone = client.stubborn = True
        tell(ref, "b")
        await asyncio.sleep(69)
        assert "message is lost" not in caplog.text
        await asyncio.sleep(2)
        assert caplog.text.count("message is lost") == 1
        assert client.asked < 80, "once a second"

    simulate(play, seed=1)


def test_a_batch_that_is_refused_is_sent_again_and_a_record_that_asks_for_a_missing_partition_is_not() -> (
    None
):
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        client.gone = True
        reply = ref.ask(ProduceMany([Rec(b"b"), Rec(b"c", partition=1)]), block=False)
        tell(ref, "d")
        await asyncio.sleep(1)
        assert client.values == "abcd"
        first, second = client.bulks
        assert first is not second and not second.complete()
        for at in range(2):
            second.refuse(at, LibraryError(LibraryError._UNKNOWN_PARTITION))
        client.report((second, None))
        results = await reply
        assert [type(each) for each in results] == [UnknownTopic, UnknownPartition]
        assert len(client.bulks) == 2

    simulate(play, seed=1)


def test_a_drain_waits_for_messages_that_were_refused() -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        client.gone = True
        tell(ref, "b")
        assert await ref.ask(DrainProducer(), block=False) == 0
        assert client.values == "ab"
        client.gone = True
        client.report((client.sent[1], GONE))  # too late: nobody would send it
        await asyncio.sleep(1)
        assert client.values == "ab"

    simulate(play, seed=1)


def test_no_broker_answers_after_a_refusal() -> None:
    """Callers hear of it; asynchronous messages wait, as they do for a topic that is not known yet."""

    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        client.gone = True

        async def fail(_topic: str) -> tuple[int, ...]:
            raise OUT_OF_BROKERS

        find, ref._cell.actor._writable = ref._cell.actor._writable, fail
        reply = ref.ask(Produce(None, b"b"), block=False)
        tell(ref, "c")
        with pytest.raises(KafkaError, match="out of brokers"):
            await reply
        await asyncio.sleep(30)
        ref._cell.actor._writable = find
        await asyncio.sleep(5)
        assert client.values == "ac"

    simulate(play, seed=1)


def test_a_client_that_learns_of_the_topic_after_it_has_refused_a_batch_gets_it_before_what_came_later() -> (
    None
):
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system)
        tell(ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        client.gone = client.learns = True
        ref.ask(ProduceMany([Rec(b"b"), Rec(b"c")]), block=False)
        tell(ref, "d")
        await asyncio.sleep(1)
        assert client.values == "abcd"

    simulate(play, seed=1)


def test_a_message_that_is_refused_late_does_not_lengthen_the_wait_of_what_came_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system, retry_backoff=10, retry_max=6, timeout=10)
        tell(ref, "abc")
        await asyncio.sleep(1)
        a, _b, c = client.sent
        client.gone = client.stubborn = True
        client.report((c, GONE))
        await asyncio.sleep(40)
        client.report((a, GONE))
        await asyncio.sleep(32)
        assert caplog.text.count("message is lost") == 1
        await asyncio.sleep(40)
        assert caplog.text.count("message is lost") == 2

    simulate(play, seed=1)


def test_a_message_waits_as_long_for_what_is_in_flight_as_for_its_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(system: ActorSystem) -> None:
        client, ref = begin(system, retry_max=0, timeout=70)
        tell(ref, "ab")
        await asyncio.sleep(1)
        client.gone, client.exists = True, False
        client.report((client.sent[1], GONE))
        await asyncio.sleep(1)
        assert caplog.text.count("message is lost: kafka server: Request was for") == 1
        client.exists = True
        tell(ref, "c")
        await asyncio.sleep(69)
        assert caplog.text.count("message is lost") == 1 and client.values == "ab"
        await asyncio.sleep(2)
        assert caplog.text.count("message is lost: kafka: no answer in time to a message") == 1

    simulate(play, seed=1)


def test_a_message_that_the_client_has_had_for_long_is_kept_as_long_with_a_journal() -> None:
    async def play(system: ActorSystem) -> None:
        client = Forgetful()
        client.ref, _journal = start_journalled(system, client, writable=client.find, retry_max=0, timeout=70)
        tell(client.ref, "a")
        await asyncio.sleep(1)
        client.report((client.sent[0], None))
        tell(client.ref, "b")
        await asyncio.sleep(71)
        client.report((client.sent[1], GONE))
        await asyncio.sleep(1)
        assert client.values == "abb"

    simulate(play, seed=1)
