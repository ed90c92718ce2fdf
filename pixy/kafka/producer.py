"""The producer client of a cluster: librdkafka sends, one thread collects the delivery reports.

librdkafka's callback appends reports to a list, and the thread hands the list to the loop once per wake-up.
The thread and the loop compete for the GIL, so the thread does as little as possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError as LibraryError, KafkaException, Producer

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.kafka.producer_messages import Bulk, Message, Outgoing, Report, by_partition
from pixy.kafka.settings import Settings

_POLL = 0.1
"""Seconds that the thread waits for a report before it looks whether the client is closing."""
_GATHER = 0.0005
"""Seconds that the thread waits for one more report of a batch that is landing."""
_GATHER_POLLS = 4
_MAX_MESSAGES = 100_000  # librdkafka's queue.buffering.max.messages


class ProducerClient:
    """A thin, typed producer whose methods do not block the loop; what waits is a coroutine.

    Args:
        settings: see :mod:`pixy.kafka.settings`.
        deliver: called on the loop with each list of reports.
        failed: called on the loop with an error after which this client cannot continue.
        stamp: set each message's ``timestamp`` before its report is delivered.
    """

    def __init__(
        self,
        settings: Settings,
        deliver: Callable[[list[Report]], None],
        failed: Callable[[Exception], None],
        *,
        stamp: bool = False,
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
        """Why no broker can be reached, as librdkafka last said; empty if it has not."""
        self._producer = Producer({**settings, "error_cb": self._error})
        self._thread = threading.Thread(target=self._poll, name="kafka-producer", daemon=True)
        self._thread.start()

    def send(
        self, topic: str, batch: Sequence[Outgoing], partitions: Sequence[int]
    ) -> tuple[int, list[tuple[Outgoing, KafkaError]]]:
        """Hand messages to librdkafka, in order; each gets its own report.

        Args:
            topic: of all messages.
            batch: the messages.
            partitions: one for each message; -1 leaves it to librdkafka's partitioner.

        Returns:
            How many messages from the front were handled (the rest did not fit: try again after the next
            delivery report), and those of them that librdkafka refused, with the reason.
        """
        size = sum([item.size for item in batch])
        if (
            len(batch) > 1
            and self._roomy(len(batch), size)
            and not any(item.headers or item.timestamp for item in batch)
        ):
            groups = by_partition(partitions)
            if groups is not None:
                self._outstanding += size
                return len(batch), [
                    each
                    for partition, indexes in groups
                    for each in self._send_together(topic, [batch[at] for at in indexes], partition)
                ]
        refused: list[tuple[Outgoing, KafkaError]] = []
        for at, (item, partition) in enumerate(zip(batch, partitions, strict=True)):
            try:
                self._send_one(topic, item, partition, partial(self._report, item))
                self._outstanding += item.size
            except BufferError:
                return at, refused
            except (KafkaException, TypeError, ValueError) as error:
                refused.append((item, translate(error)))
        return len(batch), refused

    def send_bulk(self, topic: str, bulk: Bulk, partitions: Sequence[int]) -> bool:
        """Hand records to librdkafka, in order; they get one report together.

        Args:
            topic: of all records.
            bulk: the records; the method continues after those that it was offered before.
            partitions: as in :meth:`send`.

        Returns:
            False if some did not fit: call again after the next delivery report. They stay behind the
            records of their partition that did fit.
        """
        before = bulk.sent
        all_sent = self._send_rest(topic, bulk, partitions)
        if before == 0 and bulk.sent:
            self._outstanding += bulk.size
        if all_sent and bulk.complete():
            # If the last report came before the last refusal was noted, the producer's thread did not tell.
            self._loop.call_soon(self._landed, [(bulk, None, -1, -1)])
        return all_sent

    def _send_rest(self, topic: str, bulk: Bulk, partitions: Sequence[int]) -> bool:
        records = bulk.records
        if bulk.plain and bulk.sent == 0 and self._roomy(len(records), bulk.size):
            groups = by_partition(partitions)
            if groups is not None:
                for partition, indexes in groups:
                    self._send_group(topic, bulk, partition, indexes)
                bulk.sent = len(records)
        for at in range(bulk.sent, len(records)):
            try:
                self._send_one(topic, records[at], partitions[at], partial(bulk.landed, at))
            except BufferError:
                return False
            except (KafkaException, TypeError, ValueError) as error:
                bulk.refuse(at, error)
            bulk.sent = at + 1
        return True

    def _roomy(self, count: int, size: int) -> bool:
        """Whether librdkafka's queue has room to spare for a batch in one call to ``produce_batch``.

        One call for all costs 0.8 microseconds a message, one call each 1.45; and the producer's thread, which
        wakes with the first message, then finds more of them. But ``produce_batch`` takes no headers, ignores
        timestamps, takes one partition for all messages, and when its queue fills it may accept a later
        message after it refused an earlier one.
        """
        return (
            self._outstanding + size < self._max_bytes // 2
            and len(self._producer) + count < _MAX_MESSAGES // 2
        )

    def _send_one(
        self, topic: str, item: Message, partition: int, report: Callable[[Any, Any], None]
    ) -> None:
        self._producer.produce(
            topic,
            item.value,
            item.key,
            partition,
            on_delivery=report,
            timestamp=item.timestamp or 0,
            headers=list(item.headers) if item.headers else None,
        )

    def _send_group(self, topic: str, bulk: Bulk, partition: int, indexes: Sequence[int]) -> None:
        records, landed = bulk.records, bulk.landed
        messages: list[dict[str, Any]] = [
            {"value": record.value, "key": record.key, "callback": partial(landed, at)}
            for at in indexes
            for record in (records[at],)
        ]
        if self._producer.produce_batch(topic, messages, partition) < len(messages):
            for at, message in zip(indexes, messages, strict=True):
                if "_error" in message:
                    bulk.refuse(at, message["_error"])

    def _send_together(
        self, topic: str, batch: Sequence[Outgoing], partition: int
    ) -> list[tuple[Outgoing, KafkaError]]:
        report = self._report
        messages: list[dict[str, Any]] = [
            {"value": item.value, "key": item.key, "callback": partial(report, item)} for item in batch
        ]
        if self._producer.produce_batch(topic, messages, partition) == len(batch):
            return []
        refused = [
            (item, translate(message["_error"]))
            for item, message in zip(batch, messages, strict=True)
            if "_error" in message
        ]
        self._outstanding -= sum(item.size for item, _ in refused)
        return refused

    async def metadata(self, topic: str | None, timeout: float) -> dict[str, Any]:
        """Return topics by name, as confluent-kafka's ``TopicMetadata``.

        Args:
            topic: the only one to ask for, which the broker may create; None for all.
            timeout: seconds.

        Raises:
            KafkaError: no broker answered in time.
        """
        found = await asyncio.to_thread(self._list_topics, topic, timeout)
        return dict(found.topics)

    async def close(self, timeout: float) -> int:
        """Send what is buffered, for at most ``timeout`` seconds. Return how many messages were given up."""
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

    def bulk_landed(self, bulk: Bulk) -> None:
        """Report a bulk whose last record has landed. Called in the producer's thread."""
        self._reports.append((bulk, None, -1, -1))

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
                # A batch lands partition by partition: gather the reports that are about to come, rather
                # than wake the loop for each. A lone message does not wait.
                for _ in range(_GATHER_POLLS):
                    if not len(producer) or not poll(_GATHER):
                        break
                self._hand_over()

    def _hand_over(self) -> None:
        reports, self._reports = self._reports, []
        if reports:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for them
                self._loop.call_soon_threadsafe(self._landed, reports)

    # -- on the loop ------------------------------------------------------------------------------

    def _landed(self, reports: list[Report]) -> None:
        for token, *_ in reports:
            if isinstance(token, Bulk):
                if token.done:
                    reports = [report for report in reports if report[0] is not token]
                    continue
                token.done = True
            self._outstanding -= token.size
        if reports:
            self._deliver(reports)
