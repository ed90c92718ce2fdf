"""Messages that were in a batch which Kafka refused: each is sent once more, alone in its request.

Kafka takes all of a batch or nothing. One invalid record, or a topic whose ``max.message.bytes`` is below our batches, would take valid
messages of other callers along. Alone, a message gets the answer that is its own. In librdkafka the size of a batch is a setting of the
producer, so these messages have a producer of their own, which exists as long as it has work.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from pixy.kafka.errors import REFUSED_BATCH_CODES
from pixy.kafka.library_calls import send_one
from pixy.kafka.producer_messages import Landed, Message, Returned
from pixy.kafka.retired_producers import RetiredProducers
from pixy.kafka.returned_messages import ReturnedMessages
from pixy.kafka.settings import Settings

logger = logging.getLogger("pixy.kafka")

_INVALID = "were in a batch with an invalid record, and are sent again, each alone"
_TOO_LARGE = (
    "were in a batch that Kafka finds too large, and are sent again, each alone "
    "(keep producer.flush_bytes below the topic's max.message.bytes)"
)
_SIZES = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_IDLE = 30.0
"""Seconds without a message after which the producer is destroyed."""
_LOG_EVERY = 10.0
"""Seconds between two lines of the log for a topic: a client that goes on sending invalid messages does not fill it."""
_MAKE_EVERY = 1.0
"""Seconds after which a producer is tried again, if none can be made: its certificate is being changed, for example."""
_PURGE = 1.0
"""Seconds that a producer with a fatal error has to give its messages back."""


class LoneMessages:
    """Sends messages alone. All methods are called in the producer's thread.

    Args:
        make: makes a librdkafka producer with the cluster's settings, and with these changes; it may raise.
        patience: seconds after which such a message is not sent once more to a new producer.
        idempotent: whether a message that is written has an offset.
    """

    def __init__(self, make: Callable[[Settings], Producer], patience: float, *, idempotent: bool) -> None:
        self._make = make
        self._returned = ReturnedMessages(self._produce, patience, idempotent=idempotent)
        self._owner: list[Producer] = []
        self._retired = RetiredProducers()
        self._broken = False
        self._used = self._make_at = self._log_at = 0.0

    def __len__(self) -> int:
        """Return the number of messages without a result."""
        return len(self._returned) + sum(map(len, self._owner)) + len(self._retired)

    def __bool__(self) -> bool:
        """Return whether :meth:`serve` has anything to do."""
        return bool(self._owner or self._retired or len(self._returned))

    @property
    def failed(self) -> int:
        """The number of messages that have failed."""
        return self._returned.failed

    def take(self, returned: Returned, error: Any) -> bool:
        """Send a message once more, if its batch was refused. What Kafka says of it then is final.

        Args:
            returned: the message.
            error: that it failed with.

        Returns:
            False if the error speaks of the message alone, or of something else.
        """
        code = error.code()
        if code not in REFUSED_BATCH_CODES:
            return False
        why = _TOO_LARGE if code in _SIZES else _INVALID
        self._returned.add(returned.item, returned.message, returned.landed, returned.order, why)
        return True

    def serve(self, timeout: float) -> None:
        """Serve callbacks, and send what waits.

        Args:
            timeout: seconds to wait for a callback, if one is to be expected.
        """
        if self._owner:
            self._poll(self._owner[0], timeout if len(self._owner[0]) else 0.0)
        if self._broken:
            self._replace()
        self._returned.send()
        if self._retired:
            self._retired.poll()
        if self._owner and not len(self) and time.monotonic() > self._used + _IDLE:
            self._retire()

    def give_up(self, until: float) -> None:
        """Fail all messages.

        Args:
            until: when to stop waiting for librdkafka's reports (``time.monotonic``).
        """
        self._returned.give_up()
        self._log_at = 0.0
        if self._owner:
            self._retire()
        self._retired.give_up(until)

    def log(self) -> None:
        """Log how many messages were sent alone, and why: at once, then every ten seconds while there are more."""
        now = time.monotonic()
        if now >= self._log_at and self._returned.log():
            self._log_at = now + _LOG_EVERY

    def _produce(self, topic: str, item: Message, partition: int, report: Landed) -> bool:
        self._used = time.monotonic()
        if not self._owner:
            self._owner = [self._made()]
        return send_one(self._owner[0], topic, item, partition, report)

    def _made(self) -> Producer:
        """Make a producer. Raises BufferError if there is none yet: the message waits."""
        if self._used < self._make_at:
            raise BufferError
        try:
            return self._make({"batch.num.messages": 1, "error_cb": self._error})
        except KafkaException as error:
            self._make_at = self._used + _MAKE_EVERY
            logger.error("no producer for messages that are sent alone, tried again every second: %s", error)
            raise BufferError from error

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self._returned.hold(fatal=True)
            self._broken = True

    def _poll(self, producer: Producer, timeout: float) -> None:
        try:
            producer.poll(timeout)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self._error(error.args[0])

    def _replace(self) -> None:
        """Take the messages back from a producer with a fatal error; the next one is made when they are sent."""
        [producer] = self._owner
        producer.purge()
        with contextlib.suppress(KafkaException):  # the fatal error again
            producer.flush(_PURGE)
        self._broken = False
        del producer
        self._retire()
        self._returned.release()

    def _retire(self) -> None:
        owner, self._owner = self._owner, []
        self._retired.add(owner)


__all__ = ["LoneMessages"]
