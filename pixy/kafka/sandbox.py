"""The embedded sandbox: librdkafka's in-process mock cluster.

It serves first steps and tests without Java. It keeps messages in memory, creates a topic with 4 partitions
when a client first names it, and does not implement group listings or topic configs. A group that has had members takes commits
of members only (:mod:`pixy.kafka.sandbox_offsets` sets its offsets), and a new member of such a group waits as long as the session of the
last one would have lasted.
"""

from __future__ import annotations

import signal

from confluent_kafka import KafkaException, Producer

from pixy.errors import StartError
from pixy.kafka.errors import translate
from pixy.kafka.settings import logger

PARTITIONS = 4


class Sandbox:
    """A mock cluster that runs as long as this object exists.

    Raises:
        StartError: it does not answer, for example because the process may open no more files.
    """

    def __init__(self, brokers: int = 1) -> None:
        # The mock's thread ends when a signal interrupts it, and SIGHUP reloads: so it begins with all signals blocked.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._owner = Producer({"test.mock.num.brokers": brokers, "logger": logger})
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        try:
            found = self._owner.list_topics(timeout=10).brokers.values()
        except KafkaException as error:
            raise StartError(f"the sandbox does not answer: {translate(error)}") from error
        self.seed_peers = [f"{broker.host}:{broker.port}" for broker in found]
