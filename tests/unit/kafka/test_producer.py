"""The producer client without a broker."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from pixy.config.model import Kafka, Proxy
from pixy.kafka import brokers, settings
from pixy.kafka.brokers import LIMIT, Brokers
from pixy.kafka.errors import error_of
from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_messages import Bulk
from pixy.wire.connection import Broker
from tests.unit.engine.produce.scripted_client import Rec

OTHER = Broker("127.0.0.1", 2, 2)
"""Not a seed: learned from metadata."""


def conf() -> dict[str, Any]:
    """Settings of a cluster that nobody serves."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return settings.producer(Proxy(kafka=Kafka(seed_peers=[f"127.0.0.1:{port}"])), "random")


async def test_a_close_counts_what_it_gives_up_and_one_thread_serves_all_callbacks() -> None:
    """The landed records of a bulk are counted without a lock, so one thread alone may count them."""
    threads: set[str] = set()
    reports: list[Any] = []
    client = ProducerClient(conf(), reports.extend, reports.append)

    landed = client.bulk_landed

    def tell(bulk: Bulk) -> None:
        threads.add(threading.current_thread().name)
        landed(bulk)

    client.bulk_landed = tell
    bulks = [Bulk([Rec(), Rec()], 2, True) for _ in range(50)]
    for bulk in bulks:
        assert client.send_bulk("t", bulk, [0, 0])
    assert await client.close(0.05) == 100
    assert threads == {"kafka-producer"}
    assert [report[0] for report in reports] == bulks
    assert all(bulk.complete() and all(bulk.results) for bulk in bulks)


async def test_the_look_for_topics_made_again_asks_another_broker_when_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it fails for as long as an only seed is away: messages for the topic time out."""
    now, asked = [0.0], list[Broker]()
    monkeypatch.setattr(brokers, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def ask(_brokers: Brokers, broker: Broker, _ask: object, _limit: float | None) -> dict[str, Any]:
        asked.append(broker)
        if broker != OTHER:
            now[0] += LIMIT  # a network that is cut
            raise error_of(LibraryError._TIMED_OUT)
        return {"Brokers": [], "Topics": []}

    monkeypatch.setattr(Brokers, "ask", ask)
    client = ProducerClient(conf(), [].extend, [].append)
    client._watch.brokers._found = (OTHER,)
    assert client._watch.brokers.topics(["t"]).brokers == ()
    assert asked[1:] == [OTHER]
    await client.close(0.05)
