"""The topics whose messages Kafka refuses have a producer client apart from that of the others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pixy.kafka import delivery_thread, new_producers, producer_clients
from pixy.kafka.producer_clients import ProducerClients
from tests.support import eventually
from tests.unit.kafka.scripted_producer import Item, Library
from tests.unit.kafka.test_producer import conf


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> type[Library]:
    class Fresh(Library):
        made: list[Any] = []
        refusals, stubborn, destroyed_by, deadly = 0, False, [], set()

    monkeypatch.setattr(delivery_thread, "Producer", Fresh)
    monkeypatch.setattr(new_producers, "Producer", Fresh)
    monkeypatch.setattr(producer_clients, "_MAKE_EVERY", 0.01)
    return Fresh


class Cluster:
    """Clients, and what their callers hear."""

    def __init__(self, **extra: Any) -> None:
        self.reports: list[Any] = []
        self.failed: list[Exception] = []
        self.clients = ProducerClients(conf(), self.reports.extend, self.failed.append, extra=extra)

    def refuse(self, code: int, topic: str = "t") -> None:
        """Have Kafka refuse a message of a topic."""
        client = self.clients.of(topic)
        assert client.send(topic, [Item(b"refused")], [0]) == (1, [])
        producer: Any = client._thread.producer
        producer.steps.append(lambda: producer.give_back(code, b"refused"))


async def moved(clients: ProducerClients, topic: str = "t") -> None:
    async def apart() -> bool:
        return clients.of(topic) is not clients.of("another")

    await eventually(apart)


@pytest.mark.parametrize(
    "code", [KafkaError.INVALID_RECORD, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED]
)
async def test_a_topic_with_a_refused_message_gets_a_client_apart(
    library: type[Library], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(**{"statistics.interval.ms": 5000})
    first = cluster.clients.of("t")
    assert cluster.clients.of("another") is first
    cluster.refuse(code)
    await moved(cluster.clients)
    assert cluster.clients.of("another") is first, "the others stay where they are"
    second = cluster.clients.of("t")
    settings = [each.settings for each in library.made]
    assert [each.get("statistics.interval.ms") for each in settings if "batch.num.messages" not in each] == [
        5000,
        None,
    ]
    assert second.send("t", [Item(b"next")], [0]) == (1, [])
    assert b"next" in second._thread.producer.values
    assert caplog.text.count("from now on this topic is written by a Kafka client apart") == 1
    await cluster.clients.close(0.1)
    assert not cluster.failed


@pytest.mark.parametrize("code", [KafkaError._MSG_TIMED_OUT, KafkaError.NOT_ENOUGH_REPLICAS])
async def test_what_is_no_refusal_moves_no_topic(library: type[Library], code: int) -> None:
    cluster = Cluster()
    cluster.refuse(code)

    async def reported() -> bool:
        return bool(cluster.reports)

    await eventually(reported)
    assert len(library.made) == 1
    assert cluster.clients.of("t") is cluster.clients.of("another")
    await cluster.clients.close(0.1)


async def test_a_second_client_that_cannot_be_made_is_tried_again(
    library: type[Library], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    first = cluster.clients.of("t")
    library.refusals = 3
    caplog.set_level(logging.WARNING)
    cluster.clients._refused("t")
    assert cluster.clients.of("t") is first, "messages are sent meanwhile"
    await moved(cluster.clients)
    assert library.refusals == 0
    assert caplog.text.count("no second Kafka client, which is tried again every second") == 1
    await cluster.clients.close(0.1)


async def test_a_close_while_the_second_client_is_made(library: type[Library]) -> None:
    cluster = Cluster()
    library.refusals = 10**6
    cluster.clients._refused("t")
    await asyncio.sleep(0.02)
    assert await cluster.clients.close(0.1) == 0
    made = library.refusals
    await asyncio.sleep(0.05)
    assert library.refusals == made, "nothing tries any more"


async def test_a_close_counts_what_both_clients_give_up(library: type[Library]) -> None:
    cluster = Cluster()
    cluster.clients._refused("t")
    await moved(cluster.clients)
    for topic in ("t", "another"):
        assert cluster.clients.of(topic).send(topic, [Item(b"a")], [0]) == (1, [])
    assert await cluster.clients.close(0.05) == 2
    assert [len(each.queue) for each in library.made] == [0, 0], "all have a result"


async def test_the_topics_apart_are_bounded(monkeypatch: pytest.MonkeyPatch, library: type[Library]) -> None:
    monkeypatch.setattr(producer_clients, "MOST_APART", 2)
    cluster = Cluster()
    for topic in ("a", "b", "c"):
        cluster.clients._refused(topic)
    await moved(cluster.clients, "c")
    first = cluster.clients.of("another")
    assert [cluster.clients.of(topic) is first for topic in ("a", "b", "c")] == [True, False, False]
    await cluster.clients.close(0.1)
