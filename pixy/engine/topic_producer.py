"""The producer of one topic: size check, partition, and a clock of its own for batching.

A lone message goes out at once; while messages are in flight, what comes is gathered until they
land or ``flush_frequency`` has passed, and then handed over together (as TCP's Nagle does). A fixed
linger would cost a lone message its whole length, and none halves what many callers get.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from actors import Actor, Future

from pixy.config.model import Producer
from pixy.engine.partitioner import RoundRobinPartitioner
from pixy.errors import PixyError, ShuttingDown, TooManyRequests
from pixy.kafka.errors import message_too_large, translate, unknown_topic
from pixy.kafka.producer import Headers, ProducerClient, QueueFull, Report

logger = logging.getLogger("pixy.engine")

_RECORD_OVERHEAD = 36
_LEGACY_OVERHEAD = 26
_HEADER_OVERHEAD = 10
_LOOKUPS = 3
_LOOKUP_PAUSE = 0.25
_IDLE = 300.0
_ROUND_ROBIN_REFRESH = 10.0

Writable = Callable[[str], Awaitable[tuple[int, ...] | None]]
"""The partitions of a topic that have a leader, sorted; None if there is no such topic."""


@dataclass(frozen=True, slots=True)
class Produce:
    """A message to write. The reply is (partition, offset), or why it could not be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Delivered:
    """Delivery reports of messages of this topic."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Send what is gathered and take nothing more; the reply comes when that is handed over."""


@dataclass(frozen=True, slots=True)
class _Flush:
    pass


@dataclass(frozen=True, slots=True)
class _Resolved:
    partitions: tuple[int, ...] | None
    error: PixyError | None = None


@dataclass(frozen=True, slots=True)
class _IdleCheck:
    pass


@dataclass(frozen=True, slots=True)
class _Refresh:
    pass


class _Item:
    """A message on its way, and whoever waits for it (None: nobody, it was asynchronous)."""

    __slots__ = ("message", "owner", "reply", "size")

    def __init__(
        self, message: Produce, size: int, reply: Future[Any] | None, owner: TopicProducer
    ) -> None:
        self.message = message
        self.size = size
        self.reply = reply
        self.owner = owner

    def fail(self, error: PixyError) -> None:
        if self.reply is None or not self.reply.try_fail(error):
            logger.error("%s: an asynchronous message is lost: %s", self.owner.path, error)


class TopicProducer(Actor):
    """Child of the cluster; it stops by itself when it is idle or its topic does not exist."""

    def __init__(
        self, topic: str, conf: Producer, client: ProducerClient, writable: Writable,
        *, legacy: bool,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._conf = conf
        self._client = client
        self._writable = writable
        self._overhead = _LEGACY_OVERHEAD if legacy else _RECORD_OVERHEAD
        self._round_robin = (
            RoundRobinPartitioner() if conf.partitioner == "roundrobin" else None
        )
        self._partitions: tuple[int, ...] | None = None
        self._resolving = False
        self._flushing = False
        self._gathered: list[_Item] = []
        self._gathered_bytes = 0
        self._in_flight = 0
        self._busy = True
        self._draining = False

    def on_start(self) -> None:
        """Watch for idleness."""
        self.set_timer("idle", _IDLE, _IdleCheck())

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        kind = type(message)
        if kind is Produce:
            self._produce(message)
        elif kind is Delivered:
            self._delivered(message.reports)
        elif kind is _Flush:
            self._flushing = False
            self._flush()
        elif kind is _Resolved:
            self._resolved(message)
        elif kind is Drain:
            self._drain()
        elif kind is _IdleCheck:
            self._idle_check()
        elif kind is _Refresh:
            self._resolve()
        else:
            return super().on_receive(message)
        return None

    # -- in -------------------------------------------------------------------------------------

    def _produce(self, message: Produce) -> None:
        reply = self.take_reply() if self.is_asked else None
        size = self._size(message)
        if self._draining:
            error: PixyError = ShuttingDown()
        elif size + self._overhead > self._conf.max_message_bytes:
            error = message_too_large()
        elif len(self._gathered) >= self._conf.channel_buffer_size:
            error = TooManyRequests("producer.channel_buffer_size", 62)
        else:
            self._gather(_Item(message, size, reply, self))
            return
        _Item(message, size, reply, self).fail(error)

    @staticmethod
    def _size(message: Produce) -> int:
        size = len(message.key or b"") + len(message.value or b"")
        for name, value in message.headers:
            size += len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD
        return size

    def _gather(self, item: _Item) -> None:
        self._busy = True
        self._gathered.append(item)
        self._gathered_bytes += item.size
        if self._partitions is None:
            if not self._resolving:
                self._resolve()
        elif self._gathered_bytes >= self._conf.flush_bytes:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            if self._in_flight == 0:
                # Behind what is in the mailbox already: callers that came together go together.
                self.actor_ref.tell(_Flush())
            else:
                self.set_timer("flush", self._conf.flush_frequency, _Flush())

    # -- out ------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if self._partitions is None or not self._gathered:
            return
        batch, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        send, topic = self._client.send, self._topic
        for at, item in enumerate(batch):
            message = item.message
            partition = self._round_robin.choose(self._partitions) if self._round_robin else -1
            try:
                send(topic, message.value, message.key, message.headers, partition, item)
            except QueueFull:
                # Goes on with the next delivery report; what comes meanwhile queues behind.
                self._gathered = batch[at:]
                self._gathered_bytes = sum(item.size for item in self._gathered)
                if self._in_flight == 0:
                    self._flushing = True
                    self.set_timer("flush", _LOOKUP_PAUSE, _Flush())
                return
            except PixyError as error:
                item.fail(error)
            else:
                self._in_flight += 1

    def _delivered(self, reports: tuple[Report, ...]) -> None:
        for item, error, partition, offset in reports:
            if item.owner is not self:
                continue  # sent by an earlier life, whose askers have their answer
            self._in_flight -= 1
            if error is not None:
                item.fail(translate(error))
            elif item.reply is not None:
                item.reply.try_set((partition, offset))
        if self._in_flight == 0 and self._gathered:
            self.cancel_timer("flush")
            self._flushing = False
            self._flush()

    # -- the topic ------------------------------------------------------------------------------

    def _resolve(self) -> None:
        self._resolving = True
        self.start_task(self._look_up())

    async def _look_up(self) -> None:
        found = _Resolved(None)
        for attempt in range(_LOOKUPS):
            if attempt:
                await asyncio.sleep(_LOOKUP_PAUSE)
            try:
                found = _Resolved(await self._writable(self._topic))
            except PixyError as error:
                found = _Resolved(None, error)
            if found.partitions:
                break
        self.actor_ref.tell(found, urgent=True)

    def _resolved(self, found: _Resolved) -> None:
        self._resolving = False
        if found.partitions is None and self._partitions is not None and found.error is not None:
            return  # a refresh that failed: go on with what is known
        if found.partitions is None:
            error = found.error or unknown_topic()
            batch, self._gathered = self._gathered, []
            for item in batch:
                item.fail(error)
            # Nothing is known about the topic: a later message asks again, with a new actor.
            self.stop()
            return
        self._partitions = found.partitions
        if self._round_robin is not None:
            self.set_timer("refresh", _ROUND_ROBIN_REFRESH, _Refresh())
        self._flush()

    def _idle_check(self) -> None:
        if not self._busy and not self._gathered and not self._in_flight:
            self.stop()
            return
        self._busy = False
        self.set_timer("idle", _IDLE, _IdleCheck())

    def _drain(self) -> None:
        self._draining = True
        self._flush()
