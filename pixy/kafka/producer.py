"""The producer client of a cluster: librdkafka sends, one thread collects the delivery reports.

librdkafka's callback appends reports to a list, and the thread hands the list to the loop once per wake-up.
The thread and the loop compete for the GIL, so the thread does as little as possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError as LibraryError, KafkaException, Producer

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.kafka.gated_sender import GatedSender, Sending
from pixy.kafka.library_calls import list_topics, send_one, send_together
from pixy.kafka.producer_messages import Bulk, Landed, Message, Outgoing, Report, by_partition
from pixy.kafka.returned_messages import ReturnedMessages
from pixy.kafka.settings import Settings
from pixy.kafka.threads import KafkaThreads

_POLL = 0.1
"""Seconds that the thread waits for a report before it looks whether the client is closing."""
_GATHER = 0.0005
"""Seconds that the thread waits for one more report of a batch that is landing."""
_GATHER_POLLS = 4
_LOOK_UPS = 16
"""Requests for metadata at the same time, each in a thread."""
_MAX_MESSAGES = 100_000  # librdkafka's queue.buffering.max.messages
_PURGE = 1.0
"""Seconds that a close waits for the reports of the messages that it gives up."""


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
        self._idempotent = bool(settings.get("enable.idempotence"))
        # Set by `close` for the thread to see, in this order.
        self._give_up_at = math.inf
        self._closing = False
        self._given_up = 0
        self.down: str = ""
        """Why no broker can be reached, as librdkafka last said; empty if it has not."""
        self._producer = Producer({**settings, "error_cb": self._error})
        self._lookups = KafkaThreads("kafka-metadata", _LOOK_UPS)
        produce = partial(send_one, self._producer)
        self._returned = ReturnedMessages(produce)
        self._probes: list[tuple[str, int, int | None]] = []
        self._gated = GatedSender(
            produce,
            self._fail_held,
            self._probes,
            max_bytes=self._max_bytes,
            timeout=settings.get("message.timeout.ms", 300_000) / 1000,
            hashing=str(settings.get("partitioner", "")).startswith("fnv1a"),
        )
        self._thread = threading.Thread(target=self._run, name="kafka-producer", daemon=True)
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
        partitions, targets = self._gated.choose(topic, batch, partitions)
        if (
            targets is None
            and len(batch) > 1
            and self._roomy(len(batch), size)
            and not any(item.headers or item.timestamp for item in batch)
        ):
            groups = by_partition(partitions)
            if groups is not None:
                self._outstanding += size
                return len(batch), [
                    each
                    for partition, indexes in groups
                    for each in self._send_batch(topic, [batch[at] for at in indexes], partition)
                ]
        refused: list[tuple[Outgoing, KafkaError]] = []
        for at, (item, partition) in enumerate(zip(batch, partitions, strict=True)):
            report = partial(self._report, item)
            try:
                if targets is None:
                    send_one(self._producer, topic, item, partition, report)
                else:
                    self._gated.put(topic, targets[at], Sending(item, partition, report, item.size))
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
        records, first = bulk.records, bulk.sent
        rest = records
        if first:
            rest, partitions = records[first:], partitions[first:]
        partitions, targets = self._gated.choose(topic, rest, partitions)
        if targets is None and bulk.plain and first == 0 and self._roomy(len(records), bulk.size):
            groups = by_partition(partitions)
            if groups is not None:
                for partition, indexes in groups:
                    self._send_group(topic, bulk, partition, indexes)
                bulk.sent = len(records)
        for at in range(bulk.sent, len(records)):
            record, partition, report = records[at], partitions[at - first], partial(bulk.landed, at)
            try:
                if targets is None:
                    send_one(self._producer, topic, record, partition, report)
                else:
                    size = len(record.value or b"") + len(record.key or b"")
                    sending = Sending(record, partition, report, size, bulk, at)
                    self._gated.put(topic, targets[at - first], sending)
            except BufferError:
                return False
            except (KafkaException, TypeError, ValueError) as error:
                bulk.refuse(at, error)
            bulk.sent = at + 1
        return True

    def _roomy(self, count: int, size: int) -> bool:
        """Whether librdkafka's queue has room to spare for a batch in one call; see ``send_together``."""
        return (
            self._outstanding + size < self._max_bytes // 2
            and len(self._producer) + count < _MAX_MESSAGES // 2
        )

    def _send_group(self, topic: str, bulk: Bulk, partition: int, indexes: Sequence[int]) -> None:
        records, landed = bulk.records, bulk.landed
        messages = [
            {"value": record.value, "key": record.key, "callback": partial(landed, at)}
            for at in indexes
            for record in (records[at],)
        ]
        for at, error in send_together(self._producer, topic, messages, partition):
            bulk.refuse(indexes[at], error)

    def _send_batch(
        self, topic: str, batch: Sequence[Outgoing], partition: int
    ) -> list[tuple[Outgoing, KafkaError]]:
        report = self._report
        messages = [
            {"value": item.value, "key": item.key, "callback": partial(report, item)} for item in batch
        ]
        refused = [
            (batch[at], translate(error))
            for at, error in send_together(self._producer, topic, messages, partition)
        ]
        self._outstanding -= sum(item.size for item, _ in refused)
        return refused

    def gate(self, topic: str, partitions: Sequence[int]) -> None:
        """Before others, send one message alone to each of these partitions; see :mod:`pixy.kafka.partition_gates`.

        Args:
            topic: that is about to be written to.
            partitions: those that have a leader, sorted.
        """
        if self._idempotent:
            self._gated.shut(topic, partitions)

    def ungate(self, topic: str) -> None:
        """Forget which partitions of a topic have not been written to."""
        self._gated.forget(topic)

    async def metadata(self, topic: str | None, timeout: float) -> dict[str, Any]:
        """Return topics by name, as confluent-kafka's ``TopicMetadata``.

        Args:
            topic: the only one to ask for, which the broker may create; None for all.
            timeout: seconds.

        Raises:
            KafkaError: no broker answered in time.
        """
        return await self._lookups.run(lambda: list_topics(self._producer, topic, timeout))

    async def close(self, timeout: float) -> int:
        """Send what is buffered, for at most ``timeout`` seconds. Return how many messages were given up."""
        until = time.monotonic() + timeout
        held = await self._gated.drain(timeout)
        self._give_up_at = until
        self._closing = True
        # The thread ends in time by itself; the bound is for one that died.
        await KafkaThreads("kafka-flush", 1).run(lambda: self._thread.join(timeout + _PURGE + 5.0))
        return held + self._given_up

    # -- in other threads -------------------------------------------------------------------------

    def _report(self, token: Any, error: Any, message: Any) -> None:
        offset = message.offset()
        if offset is None and error is None and self.send_again(token, message, partial(self._report, token)):
            return
        if self._stamp:
            token.timestamp = message.timestamp()[1]
        self._reports.append((token, error, message.partition(), offset))

    def send_again(self, item: Message, message: Any, landed: Landed) -> bool:
        """Send a message again that landed without an error and without an offset; see :class:`ReturnedMessages`.

        Called in the producer's thread.

        Args:
            item: what was sent.
            message: what the delivery callback got.
            landed: the delivery callback.

        Returns:
            False if no offset was to be expected, because the producer is not idempotent.
        """
        if self._idempotent:
            self._returned.add(item, message, landed)
        return self._idempotent

    def bulk_landed(self, bulk: Bulk) -> None:
        """Report a bulk whose last record has landed. Called in the producer's thread."""
        self._reports.append((bulk, None, -1, -1))

    def _error(self, error: LibraryError) -> None:
        if error.code() in (LibraryError._ALL_BROKERS_DOWN, LibraryError._AUTHENTICATION, LibraryError._SSL):
            self.down = error.str()
        if error.fatal():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._failed, translate(error))

    def _run(self) -> None:
        # Only this thread serves librdkafka's callbacks, also during `close`: a bulk's count has one writer.
        while not self._closing:
            self._poll()
        while self._left() and time.monotonic() < self._give_up_at:
            self._poll()
        self._given_up = self._left()
        if self._given_up:
            self._returned.give_up()
            self._producer.purge()
            self._producer.flush(_PURGE)
        self._hand_over()

    def _left(self) -> int:
        return len(self._producer) + len(self._returned)

    def _poll(self) -> None:
        producer = self._producer
        poll = producer.poll
        if poll(_POLL):
            # A batch lands partition by partition: gather the reports that are about to come, rather
            # than wake the loop for each. A lone message does not wait.
            for _ in range(_GATHER_POLLS):
                if not len(producer) or not poll(_GATHER):
                    break
            self._hand_over()
        if self._returned:
            self._returned.send()

    def _hand_over(self) -> None:
        self._returned.log()
        reports, self._reports = self._reports, []
        probes: Sequence[tuple[str, int, int | None]] = ()
        if self._probes:
            probes = tuple(self._probes)
            self._probes.clear()
        if reports or probes:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for them
                self._loop.call_soon_threadsafe(self._landed, reports, probes)

    # -- on the loop ------------------------------------------------------------------------------

    def _landed(self, reports: list[Report], probes: Sequence[tuple[str, int, int | None]] = ()) -> None:
        for token, *_ in reports:
            if isinstance(token, Bulk):
                if token.done:
                    reports = [report for report in reports if report[0] is not token]
                    continue
                token.done = True
            self._outstanding -= token.size
        if reports:
            self._deliver(reports)
        for probe in probes:
            self._gated.landed(*probe)

    def _fail_held(self, sending: Sending, error: object) -> None:
        bulk = sending.bulk
        if bulk is None:
            self._landed([(sending.item, error, -1, -1)])
            return
        bulk.refuse(sending.at, error)
        if bulk.complete():
            self._landed([(bulk, None, -1, -1)])
