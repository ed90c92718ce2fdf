"""Messages that landed without an offset: they are sent again, because nothing proves that the log has them.

If a request of an idempotent producer fails and a later one of its partition succeeds, librdkafka takes the messages of
the first for written: a broker that knows the producer would have refused the later one. But a broker accepts any first
sequence number of a producer that it does not know on a partition (KAFKA-15591, until Kafka 4.5): a partition is new, or
its leader has lost that memory. Then librdkafka reports messages as delivered that no log has. What it reports so has no
offset.

And messages that were taken back from a producer: the one that replaces it sends them.
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
_TAKEN_BACK = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


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
        self._waiting: deque[_Returned] = (
            deque()
        )  # librdkafka's queue is full, or its producer is being replaced
        self._held = False
        self._taken: list[
            tuple[bool, _Returned]
        ] = []  # since next_round(); whether its request was under way
        self._rounds: list[list[_Returned]] = []
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of messages that wait: for room in librdkafka's queue, or for its new producer."""
        return len(self._waiting) + len(self._taken) + sum(map(len, self._rounds))

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

    def take_back(self, item: Message, error: Any, message: Any, landed: Landed, returns: int = 0) -> bool:
        """Keep a message that the producer which is being replaced gives back.

        Args:
            item: what was sent.
            error: what confluent-kafka's delivery callback got.
            message: what it got.
            landed: that callback; it hears of the final result.
            returns: how often the message has landed without an offset.

        Returns:
            False if the error is another one.
        """
        taken = self._held and error.code() in _TAKEN_BACK
        if taken:
            under_way = error.code() == KafkaError._PURGE_INFLIGHT
            self._taken.append((under_way, _Returned(item, message, landed, returns)))
        return taken

    def next_round(self) -> None:
        """What has been taken back so far was behind what will be: that is in requests which have not ended."""
        if self._taken:
            self._taken.sort(
                key=lambda entry: not entry[0]
            )  # of what was taken at once, requests are before the queue
            self._rounds.append([returned for _, returned in self._taken])
            self._taken = []

    def hold(self) -> None:
        """Send nothing until :meth:`release`."""
        self._held = True

    def release(self) -> None:
        """Send what waits, to the new producer: what was taken back last goes first."""
        self._gather()
        self._held = False
        self.send()

    def _gather(self) -> None:
        self.next_round()
        while self._rounds:
            self._waiting.extend(self._rounds.pop())

    def send(self) -> None:
        """Send what waits, in order, as far as there is room."""
        waiting = self._waiting
        while waiting and not self._held:
            item, message, landed, returns = waiting[0]
            # A producer that has not learned of the topic yet gives its messages back without a partition.
            partition = -1 if message.partition() is None else message.partition()
            try:
                self._produce(message.topic(), item, partition, partial(self._landed, item, landed, returns))
            except BufferError:
                return
            except KafkaException as error:
                landed(error.args[0], message)
            except (TypeError, ValueError) as error:
                landed(KafkaError(KafkaError._INVALID_ARG, str(error)), message)
            waiting.popleft()

    def give_up(self) -> None:
        """Report an error for what still waits."""
        self._gather()
        self._held = False
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
        if error is None or not self.take_back(item, error, message, landed, returns):
            landed(error, message)
