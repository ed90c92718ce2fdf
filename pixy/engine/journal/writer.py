"""Writes a cluster's journal: batches of events to a Kafka topic, through a producer client of its own.

It takes the events that :class:`pixy.engine.journal.buffer.Journal` has gathered when a batch is full and
when ``linger`` has passed. A topic that is missing, refused or slow fills the journal's own buffer and
nothing else. What the client has no room for waits in that buffer, too: a client that is being replaced takes nothing for
seconds.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from actors import Actor, Backoff, Intensity, Request, Supervision, handles
from pixy.config import model
from pixy.engine.journal.buffer import Journal, RawEvent, micros
from pixy.errors import KafkaError
from pixy.journal import HEARTBEAT, Lost, encode_columns
from pixy.kafka.errors import translate
from pixy.kafka.producer_messages import Report

logger = logging.getLogger("pixy.engine")

_MAX_RECORD = 900_000
"""Bytes of a batch; a broker's default limit is 1,048,588."""

SUPERVISION = Supervision(
    intensity=Intensity(restarts=1_000_000, window=1.0), backoff=Backoff(first=1.0, most=30.0)
)
"""Restart a writer that fails for ever: it must never make its cluster fail."""


class Client(Protocol):
    """A producer client, such as :class:`pixy.kafka.producer.ProducerClient`."""

    def send(self, topic: str, batch: Any, partitions: Any) -> tuple[int, list[tuple[Any, KafkaError]]]: ...
    async def close(self, timeout: float) -> int: ...


ClientFactory = Callable[[Callable[[list[Report]], None], Callable[[Exception], None]], Client]
"""Creates a client from callbacks for delivery reports and for a fatal error, both called on the loop."""


@dataclass(frozen=True, slots=True)
class DrainJournal(Request[None]):
    """Write all events and a final batch. The reply comes when Kafka has it or ``shutdown_timeout`` is over."""


@dataclass(frozen=True, slots=True)
class _Flush:
    partly: bool


@dataclass(frozen=True, slots=True)
class _Delivered:
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class _ClientFailed:
    error: Exception


@dataclass(frozen=True, slots=True)
class _DrainOver:
    pass


class _Outgoing:
    """A journal batch that Kafka has not confirmed yet.

    Attributes:
        own: its events, to be counted as lost if it is.
        lost: events lost earlier, which it reports.
    """

    __slots__ = ("key", "lost", "own", "value")
    headers = ()
    partition = None
    timestamp = 0
    """The present. librdkafka writes any other number as it is, -1 too, and no read by time finds such a record."""

    def __init__(self, key: bytes, value: bytes, own: Lost, lost: Lost) -> None:
        self.key, self.value = key, value
        self.own, self.lost = own, lost

    @property
    def size(self) -> int:
        return len(self.value)


class JournalWriter(Actor):
    """Child of the cluster. Each life begins a new epoch, with a new client.

    Args:
        journal: the events to write.
        conf: the configuration's ``journal``.
        client_id: of this daemon; the key of its batches, so that they stay in order.
        make_client: creates the producer client.
    """

    def __init__(
        self, journal: Journal, conf: model.Journal, client_id: str, make_client: ClientFactory
    ) -> None:
        super().__init__()
        self._journal = journal
        self._conf = conf
        self._client_id = client_id
        self._make_client = make_client
        self._client: Client | None = None
        self._epoch = micros(journal.wall())
        self._sequence = 0
        self._in_flight: dict[_Outgoing, None] = {}
        self._problem = ""
        self._replies: list[Any] = []
        self._final_sent = False
        self._woken = False
        self._wrote_at = 0.0

    def on_start(self) -> None:
        """Write an empty batch, which begins the epoch, then one after each ``linger``."""
        self._client = self._make_client(self._landed, self._fatal)
        self._journal.wake = self._wake
        self.set_timer("linger", self._conf.linger, _Flush(True), every=self._conf.linger)
        self._send([], Lost(), final=False)

    async def on_stop(self) -> None:  # type: ignore[override]
        """Give up the batches that have not landed; a drain comes before this."""
        await self._end()

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """Count the batches in flight as lost: the next life does not get their delivery reports."""
        await self._end()

    # -- out ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self.actor_ref.notify(_Flush(False), urgent=True)

    @handles(_Flush)
    def _on_flush(self, message: _Flush) -> None:
        self._woken = False
        self._flush(partly=message.partly)
        if self._replies:
            self._finish()

    def _flush(self, *, partly: bool) -> bool:
        """Return whether the client has taken all batches."""
        waiting = deque(self._journal.take(partly=partly))
        try:
            while waiting:
                left = self._send(*waiting.popleft(), final=False)
                if left is not None:
                    waiting.appendleft(left)
                    return False
        finally:
            self._journal.put_back(waiting)
        if partly and self._journal.clock() - self._wrote_at >= HEARTBEAT:
            return self._send([], Lost(), final=False) is None
        return True

    def _send(self, events: list[RawEvent], lost: Lost, *, final: bool) -> tuple[list[RawEvent], Lost] | None:
        """Send a batch; return what the client has no room for."""
        shift = self._journal.shift
        own = (
            Lost(len(events), micros(events[0][1] + shift), micros(events[-1][1] + shift))
            if events
            else Lost()
        )
        try:
            value = encode_columns(
                self._client_id,
                self._epoch,
                self._sequence,
                self._journal.columns(events),
                lost=lost,
                final=final,
                time=micros(self._journal.wall()),
                heartbeat=micros(HEARTBEAT),
            )
        except Exception:
            self._journal.not_written(own, lost)
            raise
        if len(value) > _MAX_RECORD and len(events) > 1:  # topics and groups can have long names
            half = len(events) // 2
            if (left := self._send(events[:half], lost, final=False)) is not None:
                return left[0] + events[half:], left[1]
            return self._send(events[half:], Lost(), final=final)
        batch = _Outgoing(self._client_id.encode(), value, own, lost)
        assert self._client is not None
        sent, refused = self._client.send(self._conf.topic, [batch], [-1])
        if not sent:
            return events, lost
        self._wrote_at = self._journal.clock()
        if refused:
            self._journal.not_written(own, lost)
            self._complain(refused[0][1])
        else:
            self._sequence += 1
            self._in_flight[batch] = None
        return None

    def _landed(self, reports: list[Report]) -> None:
        self.actor_ref.notify(_Delivered(tuple(reports)), urgent=True)

    def _fatal(self, error: Exception) -> None:
        self.actor_ref.notify(_ClientFailed(error), urgent=True)

    @handles(_ClientFailed)
    def _client_failed(self, message: _ClientFailed) -> None:
        raise message.error

    @handles(_Delivered)
    def _delivered(self, message: _Delivered) -> None:
        for batch, error, _partition, _offset in message.reports:
            if batch not in self._in_flight:
                continue  # an earlier life sent it and counted it as lost
            del self._in_flight[batch]
            if error is not None:
                self._journal.not_written(batch.own, batch.lost)
                self._complain(translate(error))
                continue
            self._journal.written(batch.own.events)
            if self._problem:
                self._problem = ""
                logger.info("%s: %s is written again", self.path, self._conf.topic)
        if self._replies:
            self._finish()

    def _complain(self, error: Exception) -> None:
        """Log one line for a series of failures with the same reason."""
        problem = str(error)
        if problem != self._problem:
            self._problem = problem
            logger.error(
                "%s: events are lost, writing to %s fails: %s",
                self.path,
                self._conf.topic,
                problem,
            )

    # -- the end --------------------------------------------------------------------------------

    @handles(DrainJournal)
    def _drain(self, _message: DrainJournal) -> None:
        self._replies.append(self.take_reply())
        self.set_timer("drain", self._conf.shutdown_timeout, _DrainOver())
        self._finish()

    def _finish(self) -> None:
        """Write batch after batch until no event is left, then the final one, then reply."""
        if not self._problem and not self._flush(partly=True):
            return  # the next flush tries again
        if self._in_flight:
            return
        if not self._final_sent and not self._problem:
            self._final_sent = self._send([], Lost(), final=True) is None
            if self._in_flight or not self._final_sent:
                return
        self._drained()

    @handles(_DrainOver)
    def _drained(self, _message: _DrainOver | None = None) -> None:
        self.cancel_timer("drain")
        for reply in self._replies:
            reply.try_set(None)
        self._replies.clear()

    async def _end(self) -> None:
        self._journal.wake = None
        for batch in self._in_flight:
            self._journal.not_written(batch.own, batch.lost)
        self._in_flight.clear()
        self._drained()
        if self._client is not None:
            await self._client.close(0.0)


__all__ = ["SUPERVISION", "Client", "DrainJournal", "JournalWriter"]
