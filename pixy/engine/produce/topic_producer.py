"""The producer of one topic: checks sizes, chooses partitions, and batches.

A lone message goes out at once; while messages are in flight, new ones are gathered until those land or
``flush_frequency`` has passed, and then sent together (as TCP's Nagle algorithm does). A fixed linger would
delay a lone message by its whole length; without batching, many callers would get half the throughput.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from actors import Actor, ActorDeadError, Future, handles
from pixy.config.model import Producer
from pixy.engine.journal.buffer import Journal
from pixy.engine.produce.journaling import ProduceJournal
from pixy.engine.produce.messages import DeliveryReports, DrainProducer, Produce, ProduceMany
from pixy.engine.produce.partitioner import RoundRobinPartitioner
from pixy.engine.produce.pending_records import (
    BUDGET,
    PendingBatch,
    PendingMessage,
    ProducerLife,
    headers_size,
)
from pixy.engine.produce.settling import Settler
from pixy.engine.produce.topic_lookup import Resolved, Writable, look_up
from pixy.errors import PixyError, ShuttingDown, TooManyRequests, Unavailable
from pixy.kafka.errors import message_too_large, unknown_topic
from pixy.kafka.producer import ProducerClient
from pixy.kafka.settings import message_timeout

logger = logging.getLogger("pixy.engine")

_RECORD_OVERHEAD = 36  # bytes besides key, value and headers, as the Go original counts them
_LEGACY_OVERHEAD = 26
_FULL_PAUSE = 0.25  # this and the next three are seconds
_LOOKUP_AGAIN = 1.0
_IDLE = 300.0
_ROUND_ROBIN_REFRESH = 10.0
_QUIET_PASSES = 4
_HEADERS = 10  # of single messages; so many take as much of the budget as a record


@dataclass(frozen=True, slots=True)
class _Flush:
    pass


class _Pass:
    """The loop has made another pass."""


_PASS = _Pass()


@dataclass(frozen=True, slots=True)
class _Expire:
    """The oldest message has waited for its topic as long as it may."""


@dataclass(frozen=True, slots=True)
class _DrainTimeout:
    """The drain has taken long enough: give up the messages that are still gathered."""


@dataclass(frozen=True, slots=True)
class _IdleCheck:
    pass


@dataclass(frozen=True, slots=True)
class _Refresh:
    pass


class TopicProducer(Actor):
    """Child of the cluster; it stops by itself when it is idle or its topic does not exist.

    Args:
        topic: what it writes to.
        conf: the configuration's ``producer``.
        client: of the cluster; its delivery reports come back as :class:`DeliveryReports`.
        writable: looks the topic up.
        legacy: Kafka is older than 0.11, so a record takes fewer bytes besides its contents.
        journal: hears of every settled message; None if there is no journal.
    """

    def __init__(
        self,
        topic: str,
        conf: Producer,
        client: ProducerClient,
        writable: Writable,
        *,
        legacy: bool,
        journal: Journal | None = None,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._life = ProducerLife(self.actor_ref)
        self._settler = Settler(self.path, None if journal is None else ProduceJournal(topic, journal))
        self._journalled = journal is not None
        self._conf = conf
        self._client = client
        self._writable = writable
        self._overhead = _LEGACY_OVERHEAD if legacy else _RECORD_OVERHEAD
        self._round_robin = RoundRobinPartitioner() if conf.partitioner == "roundrobin" else None
        self._partitions: tuple[int, ...] | None = None
        self._resolving = False
        self._lookup_error: PixyError = unknown_topic()
        self._seen = self._quiet = 0
        self._gathered: list[PendingMessage | PendingBatch] = []
        self._gathered_bytes = 0
        self._goes_on = False
        """Whether the next turn of the loop sends more of what is gathered."""
        self._in_flight = 0
        self._busy = True
        self._draining = False
        self._drain_replies: list[Future[int]] = []

    def on_start(self) -> None:
        """Begin to check for idleness."""
        self.set_timer("idle", _IDLE, _IdleCheck(), every=_IDLE)

    def on_stop(self) -> None:
        """Let go of what has not been sent."""
        self._client.ungate(self._topic)
        self._let_go(ShuttingDown())

    def before_restart(self, error: BaseException) -> None:
        """Let go of what has not been sent. What has been is reported to the next life."""
        self._let_go(Unavailable(f"the topic's producer has failed: {error}"))

    def _let_go(self, error: PixyError) -> None:
        """Tell the callers of messages that were never sent, so that they send them again; log those without a caller.

        Callers of what was sent in part, or is on its way, get ``NoAnswer`` from the runtime: sent again, it would be
        written twice.
        """
        gathered, self._gathered = self._gathered, []
        for pending in gathered:
            if pending.reply is None:
                self._settler.fail(pending, error)
            elif isinstance(pending, PendingBatch) and pending.sent:
                self._client.give_up(pending)
            else:
                pending.reply.try_fail(ActorDeadError(f"{self.path} ended before it sent the message"))

    # -- in -------------------------------------------------------------------------------------

    @handles(Produce)
    def _produce(self, message: Produce) -> None:
        reply = self.take_reply() if self.is_asked else None
        arrived = self._settler.now()
        size = len(message.key or b"") + len(message.value or b"")
        if message.headers:
            size += headers_size(message.headers)
        pending = PendingMessage(message, size, reply, self._life, arrived)
        if self._draining:
            error: PixyError = ShuttingDown()
        elif size + self._overhead > self._conf.max_message_bytes:
            error = message_too_large()
        elif len(self._gathered) >= self._conf.channel_buffer_size:
            error = TooManyRequests("producer.channel_buffer_size")
        elif self._gathered_bytes >= self._conf.buffer_max_bytes:
            error = TooManyRequests("producer.buffer_max_bytes")
        else:
            self._gather(pending, size)
            return
        self._settler.fail(pending, error)

    @handles(ProduceMany)
    def _produce_many(self, message: ProduceMany) -> None:
        """Check the bound before a batch comes, not with it: the bound never splits a batch."""
        reply = self.take_reply()
        if not message.records:
            reply.try_set([])
        elif self._draining:
            reply.try_fail(ShuttingDown())
        elif len(self._gathered) >= self._conf.channel_buffer_size:
            reply.try_fail(TooManyRequests("producer.channel_buffer_size"))
        elif self._gathered_bytes >= self._conf.buffer_max_bytes:
            reply.try_fail(TooManyRequests("producer.buffer_max_bytes"))
        else:
            batch = PendingBatch(
                message.records,
                self._conf.max_message_bytes - self._overhead,
                reply,
                self._life,
                self._client.bulk_landed,
                self._client.send_again,
                sizes=message.sizes,
                arrived=self._settler.now(),
                stamp=self._journalled,
            )
            if batch.records:
                self._gather(batch, batch.size)
            else:
                self._settler.batch(batch)

    def _gather(self, pending: PendingMessage | PendingBatch, size: int) -> None:
        self._busy = True
        self._gathered.append(pending)
        self._gathered_bytes += size
        if self._partitions is None:
            pending.arrived = pending.arrived or self.system.loop.time()
            if not self._resolving:
                self._resolve()
        elif self._gathered_bytes >= self._conf.flush_bytes:
            self._flush()
        elif len(self._gathered) == 1:
            self.set_timer("flush", self._conf.flush_frequency, _Flush())
            if self._in_flight == 0:
                self._flush_when_quiet()

    @property
    def _roomy(self) -> bool:
        """Whether what comes in the next turns of the loop is far from being refused."""
        return (
            len(self._gathered) < self._conf.channel_buffer_size // 2
            and self._gathered_bytes < self._conf.buffer_max_bytes // 2
        )

    def _flush_when_quiet(self) -> None:
        """Send once a few passes of the loop bring no more messages.

        On an idle loop that takes some 50 microseconds. On a busy one each pass brings more callers'
        messages, and they go together: 64 callers make batches of 14 instead of 2.5, which takes the
        daemon's processor time from 371 to 308 microseconds a message.
        """
        self._seen = len(self._gathered)
        self._quiet = 0
        self.set_timer("pass", 0.0, _PASS)

    @handles(_Pass)
    def _pass(self, _message: _Pass) -> None:
        gathered = len(self._gathered)
        if gathered == self._seen:
            self._quiet += 1
            if self._quiet >= _QUIET_PASSES:
                self._flush()
                return
        else:
            self._seen, self._quiet = gathered, 0
        self.set_timer("pass", 0.0, _PASS)

    # -- out ------------------------------------------------------------------------------------

    @handles(_Flush)
    def _flush(self, _message: _Flush | None = None) -> None:
        if self._goes_on and _message is None and self._roomy:
            return  # others have their turn first
        self._goes_on = False
        if self._partitions is None or not self._gathered:
            return
        self.cancel_timer("flush")
        self.cancel_timer("pass")
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        budget, full = BUDGET, False
        while gathered and budget > 0 and not full:
            first = gathered[0]
            if isinstance(first, PendingBatch):
                stop, cost = first.next_step(budget)
                handled = self._send_batch(first, stop)
                full = first.sent < stop
            else:
                messages, cost = self._messages_in(gathered, budget)
                handled = self._send_messages(messages)
                full = handled < len(messages)
            del gathered[:handled]
            budget -= cost
        if gathered:
            # If the client is full, the next delivery report continues; what comes meanwhile queues behind.
            self._gathered = gathered
            self._gathered_bytes = sum(pending.size for pending in self._gathered)
            self._goes_on = not full
            self.set_timer("flush", _FULL_PAUSE if full else 0.0, _Flush())
        elif self._draining:
            self._finish_drain(0)

    @staticmethod
    def _messages_in(
        gathered: Sequence[PendingMessage | PendingBatch], budget: int
    ) -> tuple[list[PendingMessage], int]:
        """Return the single messages at the front for which the budget is enough, at least one, and what they cost."""
        messages: list[PendingMessage] = []
        cost = 0
        for pending in gathered:
            if cost >= budget or not isinstance(pending, PendingMessage):
                break
            messages.append(pending)
            cost += -(-len(pending.headers or ()) // _HEADERS)
        return messages, cost

    def _send_messages(self, messages: Sequence[PendingMessage]) -> int:
        """Send single messages. Return how many were handled."""
        sent, refused = self._client.send(self._topic, messages, self._choose([None] * len(messages)))
        self._in_flight += sent - len(refused)
        for message, error in refused:
            self._settler.fail(message, error)  # type: ignore[arg-type]
        return sent

    def _send_batch(self, batch: PendingBatch, stop: int) -> int:
        """Send the records of a batch before ``stop`` that were not sent yet. Return 1 if all of it was handled, else 0."""
        before = batch.sent
        partitions = self._choose(batch.wanted[before:stop])
        all_sent = self._client.send_bulk(self._topic, batch, partitions)
        if before == 0 and batch.sent:
            self._in_flight += 1
        return int(all_sent)

    def _choose(self, wanted: Sequence[int | None]) -> list[int]:
        """Choose a partition for each record that asks for none; -1 leaves the choice to librdkafka."""
        if self._round_robin is None:
            return [-1 if partition is None else partition for partition in wanted]
        choose, writable = self._round_robin.choose, self._partitions or ()
        return [choose(writable) if partition is None else partition for partition in wanted]

    @handles(DeliveryReports)
    def _delivered(self, message: DeliveryReports) -> None:
        """Settle what was sent, by an earlier life too: its callers have their answer already, but a message without a
        caller may be lost, and each report means that the client has room again.
        """
        if message.life is self._life:
            self._in_flight -= len(message.reports)
        self._settler.settle(message.reports)
        if self._in_flight == 0 and self._gathered:
            self._flush_when_quiet()

    # -- the topic ------------------------------------------------------------------------------

    @handles(_Refresh)
    def _resolve(self, _message: _Refresh | None = None) -> None:
        self._resolving = True
        self.pipe_to_self(look_up(self._writable, self._topic), on_value=lambda found: found)

    @handles(Resolved)
    def _resolved(self, found: Resolved) -> None:
        if found.partitions is None and found.error is not None:
            if self._partitions is None:
                self._unreachable(found.error)
            else:
                self._resolving = False  # a refresh failed: keep the partitions that are known
            return
        self._resolving = False
        if found.partitions is None and self._in_flight:
            # A refresh, and one broker may not know the topic yet: the client says what becomes of the messages.
            self.set_timer("refresh", _ROUND_ROBIN_REFRESH, _Refresh())
            return
        if found.partitions is None:
            # The topic may be created later: the next message looks it up again, with a new actor.
            self._end(unknown_topic())
            return
        if self._partitions is None:
            self._client.gate(self._topic, found.partitions)
        self._partitions = found.partitions
        self.cancel_timer("expire")
        if self._round_robin is not None:
            self.set_timer("refresh", _ROUND_ROBIN_REFRESH, _Refresh())
        self._flush()

    def _unreachable(self, error: PixyError) -> None:
        """Tell the callers that Kafka does not answer; keep asynchronous messages and look the topic up again.

        They have been accepted, so they wait as long as those of a known topic wait in the Kafka client.
        """
        gathered, self._gathered = self._gathered, []
        for pending in gathered:
            if pending.reply is None:
                self._gathered.append(pending)
            else:
                self._settler.fail(pending, error)
        self._gathered_bytes = sum(pending.size for pending in self._gathered)
        self._lookup_error = error
        if self._expire():
            self.set_timer("look-up", _LOOKUP_AGAIN, _Refresh())

    @handles(_Expire)
    def _expire(self, _message: _Expire | None = None) -> bool:
        """Give up the messages that have waited too long for their topic. Return whether some are left."""
        now, limit = self.system.loop.time(), message_timeout(self._conf)
        while self._gathered and self._gathered[0].arrived + limit <= now:
            expired = self._gathered.pop(0)
            self._gathered_bytes -= expired.size
            self._settler.fail(expired, self._lookup_error)
        if self._gathered:
            self.set_timer("expire", self._gathered[0].arrived + limit - now, _Expire())
        else:
            self._end(self._lookup_error)
        return bool(self._gathered)

    def _end(self, error: PixyError) -> None:
        self._give_up(error)
        self._finish_drain(0)
        if not self.stop_if_idle():
            # The next message, which is here already, looks the topic up again.
            self.cancel_timer("refresh")
            self._client.ungate(self._topic)
            self._partitions = None

    @handles(_IdleCheck)
    def _idle_check(self, _message: _IdleCheck) -> None:
        if self._busy or self._gathered or self._in_flight or not self.stop_if_idle():
            self._busy = False

    # -- the end --------------------------------------------------------------------------------

    @handles(DrainProducer)
    def _drain(self, _message: DrainProducer) -> None:
        self._drain_replies.append(self.take_reply())
        self._draining = True
        self.set_timer("drain", self._conf.shutdown_timeout, _DrainTimeout())
        self._flush()
        if not self._gathered:
            self._finish_drain(0)

    @handles(_DrainTimeout)
    def _drain_timeout(self, _message: _DrainTimeout) -> None:
        self._finish_drain(self._give_up(ShuttingDown()))

    def _give_up(self, error: PixyError) -> int:
        """Fail everything that is gathered. Return the number of messages that were not sent.

        Of a batch that was sent in part, each record has its own result, later.
        """
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        self._goes_on = False
        count = sum(
            len(each.records) - each.sent if isinstance(each, PendingBatch) else 1 for each in gathered
        )
        for pending in gathered:
            if isinstance(pending, PendingBatch) and pending.sent:
                self._client.give_up(pending)
            else:
                self._settler.fail(pending, error)
        return count

    def _finish_drain(self, given_up: int) -> None:
        if not self._drain_replies:
            return
        self.cancel_timer("drain")
        first, *others = self._drain_replies
        self._drain_replies = []
        first.try_set(given_up)
        for reply in others:  # so that the sum over all replies is right
            reply.try_set(0)
