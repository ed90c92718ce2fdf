"""What a topic's producer sends: single messages and the records of batches, and who waits for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from actors import Future
from pixy.engine.produce.journaling import ProduceJournal
from pixy.errors import PixyError, UnknownPartition, UnknownTopic
from pixy.kafka.errors import message_too_large, translate
from pixy.kafka.producer import Bulk, Message
from pixy.wire.types import RecordHeaders

logger = logging.getLogger("pixy.engine")

_HEADER_OVERHEAD = 10


class Record(Message, Protocol):
    """A record of a batch. ``partition`` None leaves the choice to the partitioner."""

    @property
    def partition(self) -> int | None: ...


Written = tuple[int, int] | PixyError
"""(partition, offset), or why a record could not be written."""


class Single(Protocol):
    """A single message as it is asked for."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> RecordHeaders: ...


class Owner(Protocol):
    """The actor that sends."""

    @property
    def path(self) -> str: ...
    @property
    def journal(self) -> ProduceJournal: ...


class PendingMessage:
    """A message on its way, and whoever waits for it (None: nobody, it was asynchronous)."""

    __slots__ = ("arrived", "headers", "key", "owner", "reply", "size", "timestamp", "value")

    def __init__(self, message: Single, size: int, reply: Future[Any] | None, owner: Owner) -> None:
        self.arrived = owner.journal.now()
        self.timestamp = 0
        self.key = message.key
        self.value = message.value
        self.headers = message.headers
        self.size = size
        self.reply = reply
        self.owner = owner

    def fail(self, error: PixyError) -> None:
        self.owner.journal.failed(self, error)
        if self.reply is None or not self.reply.try_fail(error):
            logger.error("%s: an asynchronous message is lost: %s", self.owner.path, error)


class PendingBatch(Bulk):
    """The records of one request, and who waits for them.

    Attributes:
        wanted: the partition that each record asks for, or None.

    Args:
        fits: the size of the largest record that may be sent; a larger one fails alone, here.
        tell: see :class:`pixy.kafka.producer.Bulk`.
    """

    __slots__ = ("_places", "_written", "arrived", "reply", "wanted")

    def __init__(
        self,
        records: Sequence[Record],
        fits: int,
        reply: Future[Any],
        owner: Owner,
        tell: Callable[[Bulk], None],
    ) -> None:
        sizes = [len(record.value or b"") + len(record.key or b"") for record in records]
        plain = not any([record.headers or record.timestamp for record in records])  # noqa: C419
        if not plain:
            sizes = [
                size + (headers_size(record.headers) if record.headers else 0)
                for size, record in zip(sizes, records, strict=True)
            ]
        self.reply = reply
        self.arrived = owner.journal.now()
        self._written: list[Written | None] = []
        self._places: list[int] = []
        if max(sizes) > fits:
            self._places = [at for at, size in enumerate(sizes) if size <= fits]
            self._written = [None if size <= fits else message_too_large() for size in sizes]
            records = [records[at] for at in self._places]
            sizes = [size for size in sizes if size <= fits]
        self.wanted = [record.partition for record in records]
        super().__init__(records, sum(sizes), plain, owner, tell, stamp=owner.journal.on)

    def fail(self, error: PixyError) -> None:
        """None of them is sent."""
        self.owner.journal.many(self, [error] * len(self.records))
        self.reply.try_fail(error)

    def settle(self) -> None:
        """All of them have their results."""
        written = self.results
        if any(type(result) is not tuple for result in written):
            written = [
                result if type(result) is tuple else self._error(result, partition)
                for result, partition in zip(written, self.wanted, strict=True)
            ]
        stamps = self.stamps
        if self._written:
            for at, result in zip(self._places, written, strict=True):
                self._written[at] = result
            written = self._written
            if stamps is not None:
                known = dict(zip(self._places, stamps, strict=True))
                stamps = [known.get(at, -1) for at in range(len(written))]
        self.owner.journal.many(self, written, stamps)
        self.reply.try_set(written)

    @staticmethod
    def _error(result: Any, partition: int | None) -> PixyError:
        error = translate(result)
        if isinstance(error, UnknownTopic) and partition is not None:
            # The topic was found before anything was sent.
            return UnknownPartition(str(error), error.code, error.name)
        return error


def headers_size(headers: RecordHeaders) -> int:
    return sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers)
