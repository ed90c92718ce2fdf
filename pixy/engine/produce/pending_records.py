"""Messages and batches that a topic's producer has accepted and Kafka has not confirmed yet.

Each carries the future of its caller and the :class:`ProducerLife` that its delivery report goes to, and is
settled once. It knows neither the producer nor the journal: the producer passes what is settled on to a
:class:`SettledListener`.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

from actors import ActorRef, Future
from pixy.errors import PixyError, UnknownPartition, UnknownTopic
from pixy.kafka.errors import is_unknown_topic, message_too_large, translate
from pixy.kafka.producer_messages import Bulk, Message, Report
from pixy.wire.types import RecordHeaders

_HEADER_OVERHEAD = 10
_MEASURED = 4_000
"""Records and headers whose sizes are added up before others have their turn: a millisecond. This and the next one."""
BUDGET = 1_000
"""Records and headers that are handed to librdkafka one by one in a turn of the loop: those with headers take 5 microseconds each,
and more for each header.
"""
_TOGETHER = 4
"""Records that are handed over in one call cost as much as one of the others."""


class ProducerLife:
    """One life of a topic's producer, from its start to its stop or failure; compared by identity.

    Attributes:
        ref: the producer; the same in all its lives.
    """

    __slots__ = ("ref",)

    def __init__(self, ref: ActorRef[Any]) -> None:
        self.ref = ref


class Record(Message, Protocol):
    """A record of a batch."""


next_order = itertools.count(1).__next__
"""Numbers messages and batches in the order in which they are taken, in all lives of all producers."""

Written = tuple[int, int] | PixyError
"""(partition, offset), or why a record could not be written. The offset is ``NO_OFFSET`` (-1) with
``required_acks: no_response``.
"""


class Single(Protocol):
    """A single message as a caller hands it over."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> RecordHeaders: ...
    @property
    def client(self) -> str: ...


class PendingMessage:
    """A single message that Kafka has not confirmed yet.

    Attributes:
        arrived: event-loop time, in seconds; 0 without a listener.
        client: who wants it; empty: not known.
        timestamp: milliseconds since 1970 as Kafka has it; 0 until the delivery report sets it.
        reply: the caller's future; None for an asynchronous message.
        order: its number among all that producers have taken.
        size: bytes of key, value and headers.
        waits_since: event-loop time at which it began to wait for its topic; 0 if it never has.
        partition: None, because single messages ask for none.
    """

    partition = None
    __slots__ = (
        "arrived",
        "client",
        "headers",
        "key",
        "life",
        "order",
        "reply",
        "size",
        "timestamp",
        "value",
        "waits_since",
    )

    def __init__(
        self, message: Single, size: int, reply: Future[Any] | None, life: ProducerLife, arrived: float
    ) -> None:
        self.arrived = arrived
        self.waits_since = 0.0
        self.timestamp = 0
        self.key = message.key
        self.value = message.value
        self.headers = message.headers
        self.client = message.client
        self.size = size
        self.reply = reply
        self.life = life
        self.order = next_order()

    def sent_again(self, life: ProducerLife) -> PendingMessage:
        """Return the message to send once more, because the client refused it."""
        self.life = life
        return self

    def fail(self, error: PixyError) -> bool:
        """Settle with an error. Return whether a caller hears of it."""
        return self.reply is not None and self.reply.try_fail(error)


class PendingBatch(Bulk):
    """The records of one request, on their way together.

    Attributes:
        arrived: event-loop time, in seconds; 0 without a listener.
        order: its number among all that producers have taken.
        waits_since: event-loop time at which it began to wait for its topic; 0 if it never has.
        wanted: the partition that each record to send asks for, or None.
        written: once settled, the result of each record, in the order of the request.
        timestamps: once settled, the records' timestamps as Kafka has them, in milliseconds since 1970, -1
            where there is none; None if nobody wants them.

    Args:
        records: of the request, at least one.
        fits: bytes of the largest record that may be sent; a larger one fails alone, here.
        reply: the caller's future.
        life: where the delivery report goes.
        sizes: of the records, as :func:`sizes_of` returns them; None: they are added up here.
        stamp: collect the records' timestamps.
        client: who wants it; empty: not known.
    """

    __slots__ = (
        "_indexes",
        "_oversized",
        "arrived",
        "client",
        "life",
        "order",
        "reply",
        "timestamps",
        "waits_since",
        "wanted",
        "written",
    )

    def __init__(
        self,
        records: Sequence[Record],
        fits: int,
        reply: Future[Any],
        life: ProducerLife,
        *,
        sizes: Sequence[int] | None = None,
        arrived: float = 0.0,
        stamp: bool = False,
        client: str = "",
    ) -> None:
        plain = not any([record.headers or record.timestamp for record in records])  # noqa: C419
        if sizes is None:
            sizes = [_size(record) for record in records]
        self.reply = reply
        self.life = life
        self.arrived = arrived
        self.client = client
        self.waits_since = 0.0
        self.order = next_order()
        self.written: list[Written] = []
        self.timestamps: list[int] | None = None
        # With records that are too large: the results of all, and which of them the others belong to.
        self._oversized: list[Written | None] = []
        self._indexes: list[int] = []
        if max(sizes) > fits:
            self._indexes = [at for at, size in enumerate(sizes) if size <= fits]
            self._oversized = [None if size <= fits else message_too_large() for size in sizes]
            records = [records[at] for at in self._indexes]
            sizes = [size for size in sizes if size <= fits]
        self.wanted = [record.partition for record in records]
        super().__init__(records, sum(sizes), plain, stamp=stamp)

    def next_step(self, budget: int) -> tuple[int, int]:
        """Return how many records, from the front, will have been offered to librdkafka after the next step, and what it costs.

        Args:
            budget: what is left of :data:`BUDGET`. The step costs little more, except that plain records go in one call.
        """
        count = len(self.records)
        if self.plain:
            return count, 1 + (count - self.sent) // _TOGETHER
        step = 0
        for at in range(self.sent, count):
            step += _cost_of(self.records[at])
            if step >= budget:
                return at + 1, step
        return count, step

    def refused(self) -> bool:
        """Return whether the client has refused all records because it knows no such topic.

        A record that has asked for a partition is refused for good if the topic exists without it.
        """
        return type(self.results[0]) is not tuple and all(
            is_unknown_topic(result, partition is None)
            for result, partition in zip(self.results, self.wanted, strict=True)
        )

    def sent_again(self, life: ProducerLife) -> PendingBatch:
        """Return a copy without results to send once more: the client may speak of this one once again."""
        fresh = copy.copy(self)
        fresh.life = life
        stamp = self.stamps is not None
        Bulk.__init__(fresh, self.records, self.size, self.plain, stamp=stamp)
        return fresh

    def fail(self, error: PixyError) -> None:
        """Settle with an error: none was sent. A record that is too large has an error of its own."""
        self.written = [each or error for each in self._oversized] or [error] * len(self.records)
        self.reply.try_fail(error)

    def settle(self) -> None:
        """Settle with the result of each record; all have one."""
        written, stamps = self.results, self.stamps
        if any(type(result) is not tuple for result in written):
            written = [
                result if type(result) is tuple else self._error(result, partition)
                for result, partition in zip(written, self.wanted, strict=True)
            ]
        if self._oversized:
            of_all: list[Any] = self._oversized
            for at, result in zip(self._indexes, written, strict=True):
                of_all[at] = result
            written = of_all
            if stamps is not None:
                known = dict(zip(self._indexes, stamps, strict=True))
                stamps = [known.get(at, -1) for at in range(len(written))]
        self.written, self.timestamps = written, stamps
        self.reply.try_set(written)

    @staticmethod
    def _error(result: Any, partition: int | None) -> PixyError:
        error = translate(result)
        if isinstance(error, UnknownTopic) and partition is not None:
            # The topic was found before anything was sent.
            return UnknownPartition(str(error), error.code, error.name)
        return error


class SettledListener(Protocol):
    """Hears of every message and batch that a producer has settled, after its caller."""

    def now(self) -> float:
        """Return event-loop time, in seconds: the ``arrived`` of what comes in now."""

    def delivered(self, reports: Sequence[Report]) -> None:
        """Hear of single messages that Kafka has. They come together, so that one call serves many."""

    def failed(self, message: PendingMessage, error: PixyError) -> None:
        """Hear of a single message that Kafka does not have, or of which nobody knows."""

    def batch_settled(self, batch: PendingBatch) -> None:
        """Hear of a batch: each of its records has its result in ``batch.written``."""


def _cost_of(record: Message) -> int:
    """Return the part of :data:`BUDGET` that a record of a batch takes if it is handed over alone."""
    return 1 + len(record.headers or ())


async def sizes_of(records: Sequence[Record]) -> list[int]:
    """Return the bytes of key, value and headers of each record. They are added up step by step, with turns for others between."""
    sizes, step = list[int](), 0
    for record in records:
        sizes.append(_size(record))
        step += _cost_of(record)
        if step >= _MEASURED:
            step = 0
            await asyncio.sleep(0)
    return sizes


def _size(record: Record) -> int:
    size = len(record.value or b"") + len(record.key or b"")
    return size + headers_size(record.headers) if record.headers else size


def headers_size(headers: RecordHeaders) -> int:
    """Return the bytes that headers add to a record's size."""
    # A request may have 100,000 of them; a generator would take four times as long.
    names = len("".join([name for name, _ in headers]).encode())
    return names + sum([len(value) for _, value in headers if value]) + _HEADER_OVERHEAD * len(headers)
