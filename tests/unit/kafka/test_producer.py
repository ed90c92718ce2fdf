"""The producer client without a broker."""

from __future__ import annotations

import socket
import threading
from typing import Any

from pixy.config.model import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_messages import Bulk
from tests.unit.engine.produce.test_topic_producer import Rec


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

    def tell(bulk: Bulk) -> None:
        threads.add(threading.current_thread().name)
        client.bulk_landed(bulk)

    bulks = [Bulk([Rec(), Rec()], 2, True, tell, client.send_again) for _ in range(50)]
    for bulk in bulks:
        assert client.send_bulk("t", bulk, [0, 0])
    assert await client.close(0.05) == 100
    assert threads == {"kafka-producer"}
    assert [report[0] for report in reports] == bulks
    assert all(bulk.complete() and all(bulk.results) for bulk in bulks)
