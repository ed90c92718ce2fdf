"""What a topic's producer sends: single messages and the records of batches, and who waits for each."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from actors import Future
from pixy.errors import PixyError, UnknownPartition, UnknownTopic
from pixy.kafka.producer import Headers

logger = logging.getLogger("pixy.engine")

_HEADER_OVERHEAD = 10


class Message(Protocol):
    """A key, a value and headers."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Record(Message, Protocol):
    """A record of a batch. ``partition`` None leaves the choice to the partitioner, ``timestamp``
    (milliseconds since 1970) None to the clock.
    """

    @property
    def partition(self) -> int | None: ...
    @property
    def timestamp(self) -> int | None: ...


Written = tuple[int, int] | PixyError
"""(partition, offset), or why a record could not be written."""


class Owner(Protocol):
    """The actor that sends."""

    @property
    def path(self) -> str: ...
    @property
    def known(self) -> bool:
        """Whether the topic has been found."""


class Item:
    """A message on its way, and whoever waits for it (None: nobody, it was asynchronous)."""

    __slots__ = ("headers", "key", "owner", "reply", "size", "value")
    partition = -1
    timestamp = 0

    def __init__(
        self, message: Message, size: int, reply: Future[Any] | None, owner: Owner
    ) -> None:
        self.key = message.key
        self.value = message.value
        self.headers = message.headers
        self.size = size
        self.reply = reply
        self.owner = owner

    def landed(self, partition: int, offset: int) -> None:
        if self.reply is not None:
            self.reply.try_set((partition, offset))

    def fail(self, error: PixyError) -> None:
        if self.reply is None or not self.reply.try_fail(error):
            logger.error("%s: an asynchronous message is lost: %s", self.owner.path, error)


class Batch:
    """The records of one request, until all of them are settled."""

    __slots__ = ("left", "owner", "reply", "results")

    def __init__(self, count: int, reply: Future[Any] | None, owner: Owner) -> None:
        self.results: list[Any] = [None] * count
        self.left = count
        self.reply = reply
        self.owner = owner

    def settle(self, at: int, result: Written) -> None:
        if self.results[at] is not None:
            return
        self.results[at] = result
        self.left -= 1
        if not self.left and self.reply is not None:
            self.reply.try_set(self.results)


class Part:
    """A record of a batch on its way."""

    __slots__ = ("at", "batch", "headers", "key", "owner", "partition", "size", "timestamp", "value")

    def __init__(self, record: Record, at: int, batch: Batch) -> None:
        self.key = key = record.key
        self.value = value = record.value
        self.headers = record.headers
        partition = record.partition
        self.partition = -1 if partition is None else partition
        self.timestamp = record.timestamp or 0
        self.size = (len(key) if key else 0) + (len(value) if value else 0)
        self.at = at
        self.batch = batch
        self.owner = batch.owner

    def landed(self, partition: int, offset: int) -> None:
        self.batch.settle(self.at, (partition, offset))

    def fail(self, error: PixyError) -> None:
        if self.partition >= 0 and type(error) is UnknownTopic and self.owner.known:
            error = UnknownPartition(str(error), error.code, error.name)
        self.batch.settle(self.at, error)


def headers_size(headers: Headers) -> int:
    return sum(
        len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers
    )
