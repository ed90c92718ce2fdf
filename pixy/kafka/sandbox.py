"""The embedded sandbox: librdkafka's in-process mock cluster.

A stand-in for first steps and tests without Java. It keeps messages in memory, creates topics when
they are first mentioned (4 partitions), and does not implement group listings or topic configs.
"""

from __future__ import annotations

from confluent_kafka import Producer

from pixy.kafka.settings import logger

PARTITIONS = 4


class Sandbox:
    """A mock cluster that lives as long as this object."""

    def __init__(self, brokers: int = 1) -> None:
        self._owner = Producer({"test.mock.num.brokers": brokers, "logger": logger})
        found = self._owner.list_topics(timeout=10).brokers.values()
        self.seed_peers = [f"{broker.host}:{broker.port}" for broker in found]
