"""The embedded sandbox: librdkafka's in-process mock cluster.

It serves first steps and tests without Java. It keeps messages in memory, creates a topic with 4 partitions
when a client first names it, and does not implement group listings or topic configs.
"""

from __future__ import annotations

from confluent_kafka import Producer

from pixy.kafka.settings import logger

PARTITIONS = 4


class Sandbox:
    """A mock cluster that runs as long as this object exists."""

    def __init__(self, brokers: int = 1) -> None:
        self._owner = Producer({"test.mock.num.brokers": brokers, "logger": logger})
        found = self._owner.list_topics(timeout=10).brokers.values()
        self.seed_peers = [f"{broker.host}:{broker.port}" for broker in found]
