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
from pixy.wire.types import RecordHeaders


class Message(Protocol):
    """What librdkafka gets; ``timestamp`` in milliseconds since 1970, nothing for now."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> RecordHeaders | None: ...
    @property
    def timestamp(self) -> int | None: ...


class Outgoing(Message, Protocol):
    """A message to send, and what its delivery report will carry."""

    @property
    def size(self) -> int: ...

    timestamp: int
    """Set by the delivery report, if the client is to: milliseconds, as Kafka has it."""


class Bulk:
    """Records that are sent together and reported together, through :meth:`ProducerClient.send_bulk`.

    A report each would cost the loop a microsecond a record. Here librdkafka's thread writes the
    results down and the loop hears of the whole. That thread alone counts ``_landed`` and the loop
    alone ``_refused``; each looks at the sum after its own step, so one of them at least sees the
    end, and ``done``, the loop's, sees to it that it ends once.

    Attributes:
        owner: who is told.
        results: (partition, offset), or confluent-kafka's error, for each record.
        size: bytes of keys, values and headers.
        plain: whether all are without headers and timestamps.
        sent: how many, from the front, librdkafka has been offered.
        stamps: the records' timestamps as Kafka has them, milliseconds, -1 until known; None: nobody
            wants to know.
        done: whether the loop knows the end.
    """

    __slots__ = (
        "_landed",
        "_refused",
        "_tell",
        "done",
        "owner",
        "plain",
        "records",
        "results",
        "sent",
        "size",
        "stamps",
    )

    def __init__(
        self,
        records: Sequence[Message],
        size: int,
        plain: bool,
        owner: Any,
        tell: Callable[[Bulk], None],
        *,
        stamp: bool = False,
    ) -> None:
        self.records = records
        self.owner = owner
        self.results: list[Any] = [None] * len(records)
        self.size = size
        self.plain = plain
        self.sent = 0
        self.stamps = [-1] * len(records) if stamp else None
        self.done = False
        self._landed = self._refused = 0
        self._tell = tell

    def landed(self, at: int, error: Any, message: Any) -> None:
        """In librdkafka's thread: the report of one record."""
        self.results[at] = (message.partition(), message.offset()) if error is None else error
        if self.stamps is not None and error is None:
            self.stamps[at] = message.timestamp()[1]
        self._landed += 1
        if self._landed + self._refused == len(self.results):
            self._tell(self)

    def refuse(self, at: int, error: Any) -> None:
        """On the loop: librdkafka has not taken the record."""
        self.results[at] = error
        self._refused += 1

    def complete(self) -> bool:
        """Whether every record has its result."""
        return self._landed + self._refused == len(self.results)


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
                    for partition, places in groups
                    for each in self._send_together(topic, [batch[at] for at in places], partition)
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
        """Hand records to librdkafka, in order; they will have one report together.

        Args:
            partitions: as in :meth:`send`.

        Returns:
            False: some did not fit; try again after the next delivery report. They stay behind
            those of their partition that did.
        """
        before = bulk.sent
        all_sent = self._send_rest(topic, bulk, partitions)
        if before == 0 and bulk.sent:
            self._outstanding += bulk.size
        if all_sent and bulk.complete():
            # The last report may have come before the last refusal was known: then nobody has told.
            self._loop.call_soon(self._landed, [(bulk, None, -1, -1)])
        return all_sent

    def _send_rest(self, topic: str, bulk: Bulk, partitions: Sequence[int]) -> bool:
        records = bulk.records
        if bulk.plain and bulk.sent == 0 and self._roomy(len(records), bulk.size):
            groups = by_partition(partitions)
            if groups is not None:
                for partition, places in groups:
                    self._send_places(topic, bulk, partition, places)
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
        """Whether a batch may go in one call into C.

        That costs 0.8 microseconds a message, one call each 1.45, and librdkafka's thread, which
        wakes with the first, finds more of them. It takes no headers and ignores timestamps and the
        messages' own partitions (it takes one for all), and when its queue fills it may take a later
        message and refuse an earlier one, so it is used only with room to spare.
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

    def _send_places(self, topic: str, bulk: Bulk, partition: int, places: Sequence[int]) -> None:
        records, landed = bulk.records, bulk.landed
        messages: list[dict[str, Any]] = [
            {"value": record.value, "key": record.key, "callback": partial(landed, at)}
            for at in places
            for record in (records[at],)
        ]
        if self._producer.produce_batch(topic, messages, partition) < len(messages):
            for at, message in zip(places, messages, strict=True):
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

    def bulk_landed(self, bulk: Bulk) -> None:
        """In librdkafka's thread: the last report of a bulk has come."""
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
        for token, *_ in reports:
            if isinstance(token, Bulk):
                if token.done:
                    reports = [report for report in reports if report[0] is not token]
                    continue
                token.done = True
            self._outstanding -= token.size
        if reports:
            self._deliver(reports)


def by_partition(partitions: Sequence[int]) -> list[tuple[int, Sequence[int]]] | None:
    """The places of a batch's messages, in a part for each partition; the order within each stays.
    None where it might not: messages of known partitions among others that may go to the same ones.
    """
    first = partitions[0]
    if partitions.count(first) == len(partitions):
        return [(first, range(len(partitions)))]
    if -1 in partitions:
        return None
    groups: dict[int, list[int]] = {}
    for at, partition in enumerate(partitions):
        groups.setdefault(partition, []).append(at)
    return list(groups.items())
