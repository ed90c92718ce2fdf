"""The producer of a cluster: librdkafka sends, one thread collects the delivery reports.

Reports are appended to a list in librdkafka's callback and handed to the loop once per wake-up: the
thread and the loop fight for the GIL, so the less it does the better.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaError as LibraryError, KafkaException, Producer

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.kafka.settings import Settings

Headers = Sequence[tuple[str, bytes | None]]


class Outgoing(Protocol):
    """A message to send, and what its delivery report will carry."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def size(self) -> int: ...
    timestamp: int
    """Set by the delivery report, if the client is to: milliseconds, as Kafka has it."""


Report = tuple[Any, Any, int, int]
"""(the outgoing message, confluent-kafka's error or None, partition, offset)"""

_POLL = 0.1
_GATHER = 0.0005
_GATHER_POLLS = 4
_MAX_MESSAGES = 100_000  # librdkafka's queue.buffering.max.messages


class ProducerClient:
    """Thin, typed and non-blocking; everything that waits has a coroutine.

    Args:
        settings: see :mod:`pixy.kafka.settings`.
        deliver: called on the loop with each list of reports.
        failed: called on the loop with an error after which this client can not go on.
        stamp: set each message's ``timestamp`` before its report is delivered.
    """

    def __init__(
        self, settings: Settings, deliver: Callable[[list[Report]], None],
        failed: Callable[[Exception], None], *, stamp: bool = False,
    ) -> None:
        self._stamp = stamp
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._failed = failed
        self._reports: list[Report] = []
        self._outstanding = 0
        self._max_bytes = int(settings["queue.buffering.max.kbytes"]) * 1024
        self._closing = False
        self.down: str = ""
        """Why no broker can be reached, as librdkafka last said; empty when not known."""
        self._producer = Producer({**settings, "error_cb": self._error})
        self._thread = threading.Thread(target=self._poll, name="kafka-producer", daemon=True)
        self._thread.start()

    def send(
        self, topic: str, batch: Sequence[Outgoing], partitions: Sequence[int]
    ) -> tuple[int, list[tuple[Outgoing, KafkaError]]]:
        """Hand messages to librdkafka, in order; each will have its report.

        Args:
            partitions: one for each message; -1 leaves it to librdkafka's partitioner.

        Returns:
            How many from the front were dealt with (the rest did not fit: try again after the next
            delivery report), and those of them that librdkafka refused, with the reason.
        """
        # One C call for the batch costs 0.8 microseconds a message, one per message 1.45, and
        # librdkafka's thread, which wakes with the first, finds more of them. It takes no headers, and when its queue fills it may take a later
        # message and refuse an earlier one, so it is used only with room to spare.
        size = sum(item.size for item in batch)
        roomy = self._outstanding + size < self._max_bytes // 2 and len(
            self._producer
        ) + len(batch) < _MAX_MESSAGES // 2
        if len(batch) > 1 and roomy and not any(item.headers for item in batch):
            return len(batch), self._send_together(topic, batch, partitions, size)
        refused: list[tuple[Outgoing, KafkaError]] = []
        for at, (item, partition) in enumerate(zip(batch, partitions, strict=True)):
            try:
                self._producer.produce(
                    topic, item.value, item.key, partition,
                    on_delivery=partial(self._report, item), headers=list(item.headers) or None,
                )
                self._outstanding += item.size
            except BufferError:
                return at, refused
            except (KafkaException, TypeError, ValueError) as error:
                refused.append((item, translate(error)))
        return len(batch), refused

    def _send_together(
        self, topic: str, batch: Sequence[Outgoing], partitions: Sequence[int], size: int
    ) -> list[tuple[Outgoing, KafkaError]]:
        report = self._report
        messages: list[dict[str, Any]] = [
            {
                "value": item.value, "key": item.key, "partition": partition,
                "callback": partial(report, item),
            }
            for item, partition in zip(batch, partitions, strict=True)
        ]
        self._outstanding += size
        if self._producer.produce_batch(topic, messages) == len(batch):
            return []
        refused = [
            (item, translate(message["_error"]))
            for item, message in zip(batch, messages, strict=True)
            if "_error" in message
        ]
        self._outstanding -= sum(item.size for item, _ in refused)
        return refused

    async def metadata(self, topic: str | None, timeout: float) -> dict[str, Any]:
        """Topics by name as confluent-kafka's ``TopicMetadata``; may create the one asked for."""
        found = await asyncio.to_thread(self._list_topics, topic, timeout)
        return dict(found.topics)

    def brokers(self, timeout: float) -> str:
        """Blocking: the brokers' addresses, comma separated (for a sandbox's other clients)."""
        found = self._list_topics(None, timeout)
        return ",".join(f"{broker.host}:{broker.port}" for broker in found.brokers.values())

    async def close(self, timeout: float) -> int:
        """Send what is buffered, for at most ``timeout`` seconds; return how many were given up."""
        left = await asyncio.to_thread(self._flush, timeout)
        self._closing = True
        await asyncio.to_thread(self._thread.join, 5.0)
        return left

    # -- in other threads -------------------------------------------------------------------------

    def _list_topics(self, topic: str | None, timeout: float) -> Any:
        try:
            if topic is None:
                return self._producer.list_topics(timeout=timeout)
            return self._producer.list_topics(topic, timeout=timeout)
        except KafkaException as error:
            raise translate(error) from error

    def _flush(self, timeout: float) -> int:
        left = self._producer.flush(timeout)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)
        self._hand_over()
        return int(left)

    def _report(self, token: Any, error: Any, message: Any) -> None:
        if self._stamp:
            token.timestamp = message.timestamp()[1]
        self._reports.append((token, error, message.partition(), message.offset()))

    def _error(self, error: LibraryError) -> None:
        if error.code() in (LibraryError._ALL_BROKERS_DOWN, LibraryError._AUTHENTICATION, LibraryError._SSL):
            self.down = error.str()
        if error.fatal():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._failed, translate(error))

    def _poll(self) -> None:
        producer = self._producer
        poll = producer.poll
        while not self._closing:
            if poll(_POLL):
                # A batch lands partition by partition: what is about to land is handed over with
                # it, rather than by a wake-up of the loop each. A lone message does not wait.
                for _ in range(_GATHER_POLLS):
                    if not len(producer) or not poll(_GATHER):
                        break
                self._hand_over()

    def _hand_over(self) -> None:
        reports, self._reports = self._reports, []
        if reports:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._landed, reports)

    # -- on the loop ------------------------------------------------------------------------------

    def _landed(self, reports: list[Report]) -> None:
        self._outstanding -= sum(report[0].size for report in reports)
        self._deliver(reports)
