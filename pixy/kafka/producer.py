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
from pixy.kafka.brokers import LIMIT, Brokers
from pixy.kafka.delivery_thread import Busy, DeliveryThread, Probe
from pixy.kafka.errors import INCURABLE_CODES, translate
from pixy.kafka.gated_sender import GatedSender, Sending
from pixy.kafka.library_calls import list_topics, send_one, send_together
from pixy.kafka.partition_gates import gate_of
from pixy.kafka.producer_messages import Bulk, Landed, Message, Outgoing, Report, by_partition
from pixy.kafka.remade_topics import LOOK_EVERY, RemadeTopics
from pixy.kafka.settings import Settings
from pixy.kafka.threads import KafkaThreads

logger = logging.getLogger("pixy.kafka")

_LOOK_UPS = 16
"""Requests for metadata at the same time, each in a thread."""
_MAX_MESSAGES = 100_000  # librdkafka's queue.buffering.max.messages
_FIRST_LOOK = 0.5
"""Seconds after which the id of a topic that is written to for the first time is asked for, with those of others."""


class ProducerClient:
    """A thin, typed producer whose methods do not block the loop; what waits is a coroutine.

    Args:
        settings: see :mod:`pixy.kafka.settings`.
        deliver: called on the loop with each list of reports.
        failed: called on the loop with an error of our own, after which this client cannot continue. A fatal error of
            librdkafka's producer is none: a new producer sends its messages.
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
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._outstanding = 0
        self._partitions: dict[str, Sequence[int]] = {}
        self._hashing = str(settings.get("partitioner", "")).startswith("fnv1a")
        self._max_bytes = int(settings["queue.buffering.max.kbytes"]) * 1024
        self._idempotent = bool(settings.get("enable.idempotence"))
        self._thread = DeliveryThread(
            settings, self._landed, failed, self._fatal, self._replaced, self._gate_of, stamp=stamp
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
            hashing=self._hashing,
        )
        self._brokers = Brokers(settings, patience=2 * LIMIT, keep=1)
        self._remade = RemadeTopics(timeout)
        self._replacing = self._closed = False
        self._refusal: LibraryError | None = None  # what every message gets while the producer is replaced
        self._looking: asyncio.Task[None] | None = None
        self._look_at = self._loop.call_later(LOOK_EVERY, self._begin_look)

    @property
    def down(self) -> str:
        """Why no broker can be reached, as librdkafka last said; empty if it has not."""
        return self._thread.down

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
        if self._replacing:
            if self._refusal is None:
                return 0, []
            return len(batch), [(item, translate(self._refusal)) for item in batch]
        self._use(topic)
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
        producer = self._thread.producer
        for at, (item, partition) in enumerate(zip(batch, partitions, strict=True)):
            report = partial(self._report, item)
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
        if self._replacing and self._refusal is None:
            return False
        self._use(topic)
        before = bulk.sent
        all_sent = self._refuse_rest(bulk) if self._refusal else self._send_rest(topic, bulk, partitions)
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
        producer = self._thread.producer
        for at in range(bulk.sent, len(records)):
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
        return True

    def _refuse_rest(self, bulk: Bulk) -> bool:
        for at in range(bulk.sent, len(bulk.records)):
            bulk.refuse(at, self._refusal)
        bulk.sent = len(bulk.records)
        return True

    def _roomy(self, count: int, size: int) -> bool:
        """Whether librdkafka's queue has room to spare for a batch in one call; see ``send_together``."""
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
            if error.code() == LibraryError._FATAL:
                self._adopt(topic, records[indexes[at]], partition, partial(landed, indexes[at]))
            else:
                bulk.refuse(indexes[at], error)

    def _send_batch(
        self, topic: str, batch: Sequence[Outgoing], partition: int
    ) -> list[tuple[Outgoing, KafkaError]]:
        report = self._report
        messages = [
            {"value": item.value, "key": item.key, "callback": partial(report, item)} for item in batch
        ]
        refused = []
        for at, error in send_together(self._thread.producer, topic, messages, partition):
            if error.code() == LibraryError._FATAL:
                self._adopt(topic, batch[at], partition, partial(report, batch[at]))
            else:
                refused.append((batch[at], translate(error)))
        self._outstanding -= sum(item.size for item, _ in refused)
        return refused

    def gate(self, topic: str, partitions: Sequence[int]) -> None:
        """Before others, send one message alone to each of these partitions; see :mod:`pixy.kafka.partition_gates`.

        Args:
            topic: that is about to be written to.
            partitions: those that have a leader, sorted.
        """
        if self._idempotent:
            self._partitions[topic] = partitions
            self._gated.shut(topic, partitions)

    def ungate(self, topic: str) -> None:
        """Forget which partitions of a topic have not been written to."""
        self._partitions.pop(topic, None)
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
        self._closed = True
        self._look_at.cancel()
        if self._looking is not None:
            self._looking.cancel()
        held = await self._gated.drain(timeout)
        self._thread.stop(until)
        # The thread ends in time by itself; the bound is for one that died.
        await KafkaThreads("kafka-flush", 1).run(lambda: self._thread.join(timeout))
        self._brokers.close()
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

    def _produce(self, topic: str, item: Message, partition: int, report: Landed) -> None:
        if self._replacing:
            if self._refusal is not None:
                raise KafkaException(self._refusal)
            raise BufferError
        try:
            send_one(self._thread.producer, topic, item, partition, report)
        except KafkaException as error:
            if self._is_fatal(error):
                raise BufferError from error
            raise

    def _is_fatal(self, error: Exception) -> bool:
        """Whether librdkafka refuses a message because of its producer; then a new one is made."""
        fatal = isinstance(error, KafkaException) and error.args[0].code() == LibraryError._FATAL
        if fatal:
            self._replace()
        return fatal

    def _adopt(self, topic: str, item: Message, partition: int, landed: Landed) -> None:
        """Let the next producer send a message of a batch from which librdkafka has taken others."""
        self._thread.adopt(topic, item, partition, landed)
        self._loop.call_soon(self._replace)  # once the batch is through

    def _gate_of(self, topic: str, key: bytes | None, partition: int) -> int | None:
        """Called in the producer's thread."""
        partitions = self._partitions.get(topic)
        return None if not partitions else gate_of(key, partition, partitions, hashing=self._hashing)

    def _fatal(self, error: LibraryError) -> None:
        if error.code() in INCURABLE_CODES:
            self._refusal = error
        self._replace()

    def _replace(self) -> None:
        if not self._replacing:
            self._replacing = True
            self._thread.replace()

    def _replaced(self, busy: Busy) -> None:
        """Nothing has proved yet that the leaders know the new producer."""
        self._replacing, self._refusal = False, None
        self._gated.shut_again(self._partitions, busy)
        self._remade.renewed()
        self._look_soon()

    # -- topics that are made again -----------------------------------------------------------------

    def _use(self, topic: str) -> None:
        if self._remade.used(topic, self._loop.time()):
            self._look_soon()

    def _look_soon(self) -> None:
        soon = self._loop.time() + _FIRST_LOOK
        if self._looking is None and not self._closed and self._look_at.when() > soon:
            self._look_at.cancel()
            self._look_at = self._loop.call_at(soon, self._begin_look)

    def _begin_look(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        waiting, errors = len(self._thread.producer), self._thread.errors
        names, troubled = self._remade.look(self._loop.time(), waiting, errors)
        try:
            if names and not self._replacing:
                found = await self._lookups.run(lambda: self._brokers.topics(names))
                remade = self._remade.found(found.ids, troubled)
                if remade and not self._closed:
                    logger.warning(
                        "%s: made again, and messages wait: a new producer sends them", ", ".join(remade)
                    )
                    self._replace()
        except KafkaError as error:
            logger.debug("topic ids are not known: %s", error)
        finally:
            self._looking = None
            if not self._closed:
                self._look_at = self._loop.call_later(LOOK_EVERY, self._begin_look)
