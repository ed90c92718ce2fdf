"""The writer of a cluster's journal: batches of events to a Kafka topic, with a client of its own.

It takes what :class:`pixy.engine.journal.buffer.Journal` has gathered whenever a batch is full or ``linger``
has passed. A topic that is missing, refused or slow fills the journal's bound and no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from actors import Actor, Backoff, Intensity, Supervision
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
"""A journal that fails is started again for ever: it must never take its cluster with it."""


class Client(Protocol):
    """What writes (:class:`pixy.kafka.producer.ProducerClient` fits)."""

    def send(self, topic: str, batch: Any, partitions: Any) -> tuple[int, list[tuple[Any, KafkaError]]]: ...
    async def close(self, timeout: float) -> int: ...


ClientFactory = Callable[[Callable[[list[Report]], None], Callable[[Exception], None]], Client]
"""From what takes delivery reports and what takes a fatal error, both called on the loop."""


@dataclass(frozen=True, slots=True)
class DrainJournal:
    """Write what there is, then a last batch; the reply comes when Kafka has it, or in time."""


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
    """A batch on its way to Kafka."""

    __slots__ = ("key", "life", "lost", "own", "value")
    headers = ()
    timestamp = -1

    def __init__(self, key: bytes, value: bytes, own: Lost, lost: Lost, life: object) -> None:
        self.key, self.value, self.life = key, value, life
        self.own = own
        """What is lost if this is: how many events, from when to when."""
        self.lost = lost

    @property
    def size(self) -> int:
        return len(self.value)


class JournalWriter(Actor):
    """Child of the cluster. A new life is a new epoch, with a new client."""

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
        """Say that the epoch begins, then write every ``linger``."""
        self._client = self._make_client(self._landed, self._fatal)
        self._journal.wake = self._wake
        self.set_timer("linger", self._conf.linger, _Flush(True), every=self._conf.linger)
        self._send([], Lost(), final=False)

    async def on_stop(self) -> None:  # type: ignore[override]
        """A drain has written everything before; what has not landed by now is given up."""
        await self._end()

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """What is in flight counts as lost: nobody will hear what became of it."""
        await self._end()

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        kind = type(message)
        if kind is _Flush:
            self._woken = False
            self._flush(partly=message.partly)
        elif kind is _Delivered:
            self._delivered(message.reports)
        elif kind is DrainJournal:
            self._drain()
        elif kind is _DrainOver:
            self._drained()
        elif kind is _ClientFailed:
            raise message.error
        else:
            return super().on_receive(message)
        return None

    # -- out ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self.actor_ref.notify(_Flush(False), urgent=True)

    def _flush(self, *, partly: bool) -> None:
        for events, lost in self._journal.take(partly=partly):
            self._send(events, lost, final=False)
        if partly and self._journal.clock() - self._wrote_at >= HEARTBEAT:
            self._send([], Lost(), final=False)

    def _send(self, events: list[RawEvent], lost: Lost, *, final: bool) -> None:
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
        if len(value) > _MAX_RECORD and len(events) > 1:  # names can be long
            half = len(events) // 2
            self._send(events[:half], lost, final=False)
            self._send(events[half:], Lost(), final=final)
            return
        batch = _Outgoing(self._client_id.encode(), value, own, lost, self)
        assert self._client is not None
        self._wrote_at = self._journal.clock()
        sent, refused = self._client.send(self._conf.topic, [batch], [-1])
        if sent and not refused:
            self._sequence += 1
            self._in_flight[batch] = None
            return
        self._journal.not_written(own, lost)
        self._complain(refused[0][1] if refused else None)

    def _landed(self, reports: list[Report]) -> None:
        self.actor_ref.notify(_Delivered(tuple(reports)), urgent=True)

    def _fatal(self, error: Exception) -> None:
        self.actor_ref.notify(_ClientFailed(error), urgent=True)

    def _delivered(self, reports: tuple[Report, ...]) -> None:
        for batch, error, _partition, _offset in reports:
            if batch.life is not self or batch not in self._in_flight:
                continue  # of an earlier life, which has counted it as lost
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

    def _complain(self, error: Exception | None) -> None:
        """Once for a series of failures with the same reason."""
        problem = str(error or "the client's queue is full")
        if problem != self._problem:
            self._problem = problem
            logger.error(
                "%s: events are lost, writing to %s fails: %s",
                self.path,
                self._conf.topic,
                problem,
            )

    # -- the end --------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._replies.append(self.take_reply())
        self.set_timer("drain", self._conf.shutdown_timeout, _DrainOver())
        self._finish()

    def _finish(self) -> None:
        """Batch after batch until nothing is left, then the last one, then the reply."""
        if not self._problem:
            self._flush(partly=True)
        if self._in_flight:
            return
        if not self._final_sent and not self._problem:
            self._final_sent = True
            self._send([], Lost(), final=True)
            if self._in_flight:
                return
        self._drained()

    def _drained(self) -> None:
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
