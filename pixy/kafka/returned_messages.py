"""Messages that landed without an offset: they are sent again, because nothing proves that the log has them.

If a request of an idempotent producer fails and a later one of its partition succeeds, librdkafka takes the messages of
the first for written: a broker that knows the producer would have refused the later one. But a broker accepts any first
sequence number of a producer that it does not know on a partition (KAFKA-15591, until Kafka 4.5): a partition is new, or
its leader has lost that memory. Then librdkafka reports messages as delivered that no log has. What it reports so has no
offset.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from functools import partial
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from pixy.kafka.producer_messages import Landed, Message

logger = logging.getLogger("pixy.kafka")

MOST_RETURNS = 5
"""How often a message is sent again, at most. Each return needs another failure at just the wrong moment, so more are not
to be expected.
"""


class Produce(Protocol):
    """Hands a message to librdkafka; see ``ProducerClient``. Raises BufferError and KafkaException."""

    def __call__(self, topic: str, item: Message, partition: int, report: Landed) -> None: ...


class _Returned(NamedTuple):
    item: Message
    message: Any
    landed: Landed
    returns: int


class ReturnedMessages:
    """Sends messages again. All methods are called in the producer's thread.

    Args:
        produce: hands a message to librdkafka.
    """

    def __init__(self, produce: Produce) -> None:
        self._produce = produce
        self._waiting: deque[_Returned] = deque()  # librdkafka's queue is full
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of messages that wait for room in librdkafka's queue."""
        return len(self._waiting)

    def add(self, item: Message, message: Any, landed: Landed, returns: int = 1) -> None:
        """Send a message to its partition again, behind those that librdkafka already has.

        Args:
            item: what was sent.
            message: what confluent-kafka's delivery callback got.
            landed: that callback; it hears of the final result.
            returns: how often the message has come back.
        """
        self._counts[message.topic()] += 1
        self._waiting.append(_Returned(item, message, landed, returns))
        if len(self._waiting) == 1:
            self.send()

    def send(self) -> None:
        """Send what waits, in order, as far as there is room."""
        waiting = self._waiting
        while waiting:
            item, message, landed, returns = waiting[0]
            try:
                self._produce(
                    message.topic(), item, message.partition(), partial(self._landed, item, landed, returns)
                )
            except BufferError:
                return
            except KafkaException as error:
                landed(error.args[0], message)
            waiting.popleft()

    def give_up(self) -> None:
        """Report an error for what still waits."""
        while self._waiting:
            returned = self._waiting.popleft()
            returned.landed(KafkaError(KafkaError._PURGE_QUEUE), returned.message)

    def log(self) -> None:
        """Log how many messages have come back since the last call, one line a topic."""
        for topic, count in self._counts.items():
            logger.warning("%s: %d messages landed without an offset and are sent again", topic, count)
        self._counts.clear()

    def _landed(self, item: Message, landed: Landed, returns: int, error: Any, message: Any) -> None:
        if error is None and message.offset() is None:
            if returns < MOST_RETURNS:
                self.add(item, message, landed, returns + 1)
                return
            error = KafkaError(KafkaError._MSG_TIMED_OUT, "Kafka names no offset of the message")
        landed(error, message)
