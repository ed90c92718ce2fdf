"""The producer client of a cluster: librdkafka sends, one thread collects the delivery reports.

See :mod:`pixy.kafka.delivery_thread` for the thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError as LibraryError, KafkaException

from pixy.errors import KafkaError
from pixy.kafka.delivery_thread import Busy, DeliveryThread, Probe
from pixy.kafka.errors import INCURABLE_CODES, is_unknown_topic, translate
from pixy.kafka.gated_sender import GatedSender, Sending
from pixy.kafka.library_calls import list_topics, may_move, send_one, send_together
from pixy.kafka.new_producers import ReadyProducer
from pixy.kafka.partition_gates import Layout
from pixy.kafka.producer_messages import Bulk, Landed, Message, Outgoing, Report, by_partition
from pixy.kafka.settings import Settings
from pixy.kafka.threads import KafkaThreads
from pixy.kafka.topic_watch import TopicWatch
from pixy.kafka.topics import Topics

logger = logging.getLogger("pixy.kafka")

_LOOK_UPS = 16
"""Requests for metadata at the same time, each in a thread."""
_MAX_MESSAGES = 100_000  # librdkafka's queue.buffering.max.messages


class ProducerClient:
    """A thin, typed producer whose methods do not block the loop; what waits is a coroutine.

    Args:
        settings: see :mod:`pixy.kafka.settings`.
        deliver: called on the loop with each list of reports.
        failed: called on the loop with an error of our own, after which this client cannot continue. A fatal error of
            librdkafka's producer is none: a new producer sends its messages.
        refused: called on the loop with a topic, once at least, when Kafka has refused a message of it; see
            :data:`pixy.kafka.errors.REFUSAL_CODES`.
        stamp: set each message's ``timestamp`` before its report is delivered.
        ready: the first producer of librdkafka; None: it is made here.
    """

    def __init__(
        self,
        settings: Settings,
        deliver: Callable[[list[Report]], None],
        failed: Callable[[Exception], None],
        *,
        refused: Callable[[str], None] = lambda _topic: None,
        stamp: bool = False,
        ready: ReadyProducer | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._outstanding = self._offered = 0
        self._max_bytes = int(settings["queue.buffering.max.kbytes"]) * 1024
        self._idempotent = bool(settings.get("enable.idempotence"))
        self._thread = DeliveryThread(
            settings,
            self._landed,
            failed,
            self._fatal,
            self._replaced,
            self._gate_of,
            refused,
            stamp=stamp,
            ready=ready,
        )
        self.send_again, self.bulk_landed = self._thread.send_again, self._thread.bulk_landed
        self._report = self._thread.report
        self._lookups = KafkaThreads("kafka-metadata", _LOOK_UPS)
        timeout = settings.get("message.timeout.ms", 300_000) / 1000
        self._gated = GatedSender(
            self._produce,
            self._fail_held,
            self._thread.probes,
            max_bytes=self._max_bytes,
            timeout=timeout,
            hashing=str(settings.get("partitioner", "")).startswith("fnv1a"),
        )
        self._watch = TopicWatch(settings, self._lookups, timeout, self._trouble, self._found, self._remade)
        self._replacing = False
        self._refusal: LibraryError | None = None  # what every message gets while the producer is replaced

    @property
    def down(self) -> str:
        """The reason why no broker can be reached, as librdkafka last said; empty if it has not."""
        return self._thread.outages.down

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
            delivery report; or it is behind one whose topic librdkafka does not know), and those of them that librdkafka
            refused, with the reason.
        """
        if self._replacing:
            if self._refusal is None:
                return 0, []
            return len(batch), [(item, translate(self._refusal)) for item in batch]
        if self._crowded():
            return 0, []
        self._watch.use(topic)
        first = self._number(len(batch))
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
                    for each in self._send_batch(topic, batch, first, partition, indexes)
                ]
        refused: list[tuple[Outgoing, KafkaError]] = []
        producer = self._thread.producer
        for at, (item, partition) in enumerate(zip(batch, partitions, strict=True)):
            report = partial(self._report, item, first + at)
            try:
                if targets is None:
                    send_one(producer, topic, item, partition, report)
                else:
                    self._gated.put(topic, targets[at], Sending(item, partition, report, item.size))
                self._outstanding += item.size
            except BufferError:
                return at, refused
            except (KafkaException, TypeError, ValueError) as error:
                if self._is_fatal(error):
                    return at, refused
                refused.append((item, translate(error)))
                if is_unknown_topic(error):
                    return at + 1, refused  # once the topic is known, the others come after this one
        return len(batch), refused

    def send_bulk(self, topic: str, bulk: Bulk, partitions: Sequence[int]) -> bool:
        """Hand records to librdkafka, in order; they get one report together.

        Args:
            topic: of all records.
            bulk: the records; the method continues after those that it was offered before.
            partitions: as in :meth:`send`, for those that are offered now.

        Returns:
            Whether all of its records have been taken. Some of these did not fit if ``bulk.sent`` says so: call again
            after the next delivery report. They stay behind the records of their partition that did fit.
        """
        if (self._replacing and self._refusal is None) or self._crowded():
            return False
        self._watch.use(topic)
        before = bulk.sent
        if before == 0:
            bulk.begin(self._number(len(bulk.records)), self.bulk_landed, self.send_again)
        if self._refusal:
            all_sent = self._refuse_rest(bulk, self._refusal)
        else:
            all_sent = self._send_rest(topic, bulk, partitions)
        if before == 0 and bulk.sent:
            self._outstanding += bulk.size
        if all_sent:
            self._complete(bulk)
        return all_sent

    def give_up(self, bulk: Bulk) -> None:
        """Send no more of records that were sent in part. Their report comes when what was sent has its results."""
        self._refuse_rest(bulk, LibraryError(LibraryError._PURGE_QUEUE))
        self._complete(bulk)

    def _number(self, count: int) -> int:
        """Return the first of ``count`` numbers for messages. Should they come back, they are sent again in this order.

        A message for which librdkafka has no room gets a higher number when it is offered again. The records of a bulk keep theirs.
        """
        first = self._offered
        self._offered += count
        return first

    def _complete(self, bulk: Bulk) -> None:
        if bulk.complete():
            # If the last report came before the last refusal was noted, the producer's thread did not tell.
            self._loop.call_soon(self._landed, [(bulk, None, -1, -1)])

    def _send_rest(self, topic: str, bulk: Bulk, partitions: Sequence[int]) -> bool:
        records, first = bulk.records, bulk.sent
        stop = first + len(partitions)
        rest = records if len(partitions) == len(records) else records[first:stop]
        partitions, targets = self._gated.choose(topic, rest, partitions)
        if (
            targets is None
            and bulk.plain
            and len(rest) == len(records)
            and self._roomy(len(records), bulk.size)
        ):
            groups = by_partition(partitions)
            if groups is not None:
                for partition, indexes in groups:
                    self._send_group(topic, bulk, partition, indexes)
                bulk.sent = len(records)
        producer = self._thread.producer
        for at in range(bulk.sent, stop):
            record, partition, report = records[at], partitions[at - first], partial(bulk.landed, at)
            try:
                if targets is None:
                    send_one(producer, topic, record, partition, report)
                else:
                    size = len(record.value or b"") + len(record.key or b"")
                    sending = Sending(record, partition, report, size, bulk, at)
                    self._gated.put(topic, targets[at - first], sending)
            except BufferError:
                return False
            except (KafkaException, TypeError, ValueError) as error:
                if self._is_fatal(error):
                    return False
                bulk.refuse(at, error)
            bulk.sent = at + 1
        return bulk.sent == len(records)

    def _refuse_rest(self, bulk: Bulk, error: LibraryError) -> bool:
        for at in range(bulk.sent, len(bulk.records)):
            bulk.refuse(at, error)
        bulk.sent = len(bulk.records)
        return True

    def _crowded(self) -> bool:
        """Return whether so many messages are being sent alone that no others are taken until some have their results."""
        alone = self._thread.alone
        return alone >= _MAX_MESSAGES or (alone > 0 and self._outstanding >= 2 * self._max_bytes)

    def _roomy(self, count: int, size: int) -> bool:
        """Return whether librdkafka's queue has room to spare for a batch in one call; see ``send_together``."""
        return (
            self._outstanding + size < self._max_bytes // 2
            and len(self._thread.producer) + count < _MAX_MESSAGES // 2
        )

    def _send_group(self, topic: str, bulk: Bulk, partition: int, indexes: Sequence[int]) -> None:
        records, landed = bulk.records, bulk.landed
        messages = [
            {"value": record.value, "key": record.key, "callback": partial(landed, at)}
            for at in indexes
            for record in (records[at],)
        ]
        for at, error in send_together(self._thread.producer, topic, messages, partition):
            index = indexes[at]
            report = partial(landed, index)
            if not self._goes_on(topic, records[index], partition, report, bulk.first + index, error):
                bulk.refuse(index, error)

    def _send_batch(
        self, topic: str, batch: Sequence[Outgoing], first: int, partition: int, indexes: Sequence[int]
    ) -> list[tuple[Outgoing, KafkaError]]:
        report = self._report
        messages = [
            {"value": item.value, "key": item.key, "callback": partial(report, item, first + at)}
            for at in indexes
            for item in (batch[at],)
        ]
        refused = []
        for at, error in send_together(self._thread.producer, topic, messages, partition):
            item, order = batch[indexes[at]], first + indexes[at]
            if not self._goes_on(topic, item, partition, partial(report, item, order), order, error):
                refused.append((item, translate(error)))
        self._outstanding -= sum(item.size for item, _ in refused)
        return refused

    def gate(self, topic: str, partitions: Sequence[int]) -> None:
        """Send one message alone to each of these partitions before others; see :mod:`pixy.kafka.partition_gates`.

        Args:
            topic: that is about to be written to.
            partitions: those that have a leader, sorted.
        """
        if self._idempotent:
            self._gated.shut(topic, partitions)

    def ungate(self, topic: str) -> None:
        """Forget which partitions of a topic have not been written to.

        While the producer is replaced nothing is forgotten: messages sent again may go before new ones to the topic.
        """
        if not self._replacing:
            self._gated.forget(topic)

    async def metadata(self, topic: str | None, timeout: float) -> dict[str, Any]:
        """Return topics by name, as confluent-kafka's ``TopicMetadata``.

        Args:
            topic: the only one to ask for, which the broker may create; None for all.
            timeout: seconds.

        Raises:
            KafkaError: no broker answered in time.
        """
        return await self._lookups.run(lambda: list_topics(self._thread.producer, topic, timeout))

    async def close(self, timeout: float) -> int:
        """Send what is buffered, for at most ``timeout`` seconds. Return how many messages were given up."""
        until = time.monotonic() + timeout
        self._watch.stop()
        self._thread.hurry()
        held = await self._gated.drain(timeout)
        self._thread.stop(until)
        # The thread ends in time by itself; the bound is for one that died.
        await KafkaThreads("kafka-flush", 1).run(lambda: self._thread.join(timeout))
        self._watch.close()
        return held + self._thread.given_up

    # -- on the loop ------------------------------------------------------------------------------

    def _landed(self, reports: list[Report], probes: Sequence[Probe] = ()) -> None:
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

    # -- new producers ------------------------------------------------------------------------------

    def _produce(self, topic: str, item: Message, partition: int, report: Landed) -> bool:
        if self._replacing:
            if self._refusal is not None:
                raise KafkaException(self._refusal)
            raise BufferError
        try:
            return send_one(self._thread.producer, topic, item, partition, report)
        except KafkaException as error:
            if self._is_fatal(error):
                raise BufferError from error
            raise

    def _is_fatal(self, error: Exception) -> bool:
        """Return whether librdkafka refuses a message because of its producer, and begin to replace the producer then."""
        fatal = isinstance(error, KafkaException) and error.args[0].code() == LibraryError._FATAL
        if fatal:
            self._replace(fatal=True)
        return fatal

    def _goes_on(
        self,
        topic: str,
        item: Message,
        partition: int,
        landed: partial[None],
        order: int,
        error: LibraryError,
    ) -> bool:
        """Send a message on that librdkafka refused in a batch: to the next producer, or to another partition."""
        if error.code() == LibraryError._FATAL:
            self._thread.adopt(topic, item, partition, partial(landed, final=True), order)
            self._loop.call_soon(partial(self._replace, fatal=True))  # once the batch is through
            return True
        if not may_move(item, partition, error):
            return False
        try:
            return send_one(self._thread.producer, topic, item, partition, landed)
        except (BufferError, KafkaException):
            return False

    def _gate_of(self, topic: str, key: bytes | None, partition: int) -> int | None:
        return self._gated.gate_of(topic, key, partition)

    def _fatal(self, error: LibraryError) -> None:
        if error.code() in INCURABLE_CODES:
            self._refusal = error
        self._replace()

    def _replace(self, *, fatal: bool = False) -> None:
        if not self._replacing:
            self._replacing = True
            self._thread.replace(fatal=fatal)

    def _replaced(self, busy: Busy) -> None:
        """Close the gates: nothing has proved yet that the leaders know the new producer."""
        self._replacing, self._refusal = False, None
        self._gated.shut_again(busy)
        self._watch.renewed()

    # -- what topics are ------------------------------------------------------------------------------

    def _trouble(self) -> tuple[int, int]:
        return len(self._thread.producer), self._thread.errors

    def _found(self, topics: Topics) -> None:
        if self._replacing:
            return  # the new producer's messages are being sorted by what was known before
        for name, partitions in topics.partitions.items():
            writable = tuple([each.partition for each in partitions if each.leader >= 0])
            self._gated.found(name, Layout(tuple([each.partition for each in partitions]), writable))

    def _remade(self, topics: list[str]) -> None:
        if not self._replacing:
            logger.warning("%s: made again, and messages wait: a new producer sends them", ", ".join(topics))
            self._replace()
