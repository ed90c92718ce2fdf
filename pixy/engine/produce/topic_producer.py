"""The producer of one topic: checks sizes, chooses partitions, and batches.

A lone message goes out at once; while messages are in flight, new ones are gathered until those land or
``flush_frequency`` has passed, and then sent together (as TCP's Nagle algorithm does). A fixed linger would
delay a lone message by its whole length; without batching, many callers would get half the throughput.

A Kafka client that has heard that a topic is gone refuses messages for it, also if the topic was made again meanwhile. So what it refuses
is gathered again, in its order, and the topic is looked up, which also tells the client. Only if that finds no topic, the messages fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors import ActorDeadError, handles
from pixy.config.model import Producer
from pixy.engine.counters import ProduceCounters
from pixy.engine.journal.buffer import Journal
from pixy.engine.produce.drain import Drain
from pixy.engine.produce.gathered import Gathered, Pending
from pixy.engine.produce.journaling import ProduceJournal
from pixy.engine.produce.messages import DeliveryReports, DrainProducer, Produce, ProduceMany
from pixy.engine.produce.pending_records import PendingBatch, PendingMessage, ProducerLife, headers_size
from pixy.engine.produce.sender import Clients, Sender
from pixy.engine.produce.settling import Settler
from pixy.engine.produce.timers import PASS, DrainTimeout, Expire, Flush, IdleCheck, LookUp, Pass
from pixy.engine.produce.topic_lookup import (
    LOOKUP_AGAIN,
    Answer,
    KnownTopic,
    Resolved,
    Search,
    Writable,
    look_up,
)
from pixy.engine.restarting import Restartable
from pixy.errors import PixyError, ShuttingDown, Unavailable
from pixy.kafka.errors import message_too_large, unknown_topic

_RECORD_OVERHEAD = 36  # bytes besides key, value and headers, as the Go original counts them
_LEGACY_OVERHEAD = 26
_FULL_PAUSE = 0.25  # this and the next two are seconds
_IDLE = 300.0
_ROUND_ROBIN_REFRESH = 10.0
_QUIET_PASSES = 4


class TopicProducer(Restartable):
    """Child of the cluster; it stops by itself when it is idle or its topic does not exist.

    Args:
        topic: what it writes to.
        conf: the configuration's ``producer``.
        clients: of the cluster; their delivery reports come back as :class:`DeliveryReports`.
        writable: looks the topic up.
        legacy: Kafka is older than 0.11, so a record takes fewer bytes besides its contents.
        journal: hears of every settled message; None if there is no journal.
        counters: of the topic; they outlive this actor.
    """

    def __init__(
        self,
        topic: str,
        conf: Producer,
        clients: Clients,
        writable: Writable,
        *,
        legacy: bool,
        journal: Journal | None = None,
        counters: ProduceCounters | None = None,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._life = ProducerLife(self.actor_ref)
        listener = None if journal is None else ProduceJournal(topic, journal)
        self._settler = Settler(self.path, listener, counters)
        self._journalled = journal is not None
        self._conf = conf
        self._writable = writable
        self._most_bytes = conf.max_message_bytes - (_LEGACY_OVERHEAD if legacy else _RECORD_OVERHEAD)
        self._refreshes = conf.partitioner == "roundrobin"
        self._known = KnownTopic()
        self._gathered = Gathered(conf)
        self._sender = Sender(topic, clients, round_robin=self._refreshes, clock=self.system.loop.time)
        self._drain = Drain()
        self._seen = self._quiet = 0
        self._goes_on = False
        """Whether the next turn of the loop sends more of what is gathered."""
        self._busy = True

    def on_start(self) -> None:
        """Begin to check for idleness."""
        self.set_timer("idle", _IDLE, IdleCheck(), every=_IDLE)

    def on_stop(self) -> None:
        """Let go of what has not been sent."""
        self._sender.ungate()
        self._let_go(ShuttingDown())

    def before_restart(self, error: BaseException) -> None:
        """Let go of what has not been sent. What has been is reported to the next life."""
        self._let_go(Unavailable(f"the topic's producer has failed: {error}"))

    def _let_go(self, error: PixyError) -> None:
        """Tell the callers of messages that were never sent, so that they send them again; log those without a caller.

        Callers of what was sent in part, or is on its way, get ``NoAnswer`` from the runtime: sent again, it would be
        written twice.
        """
        for pending in self._gathered.take_all():
            if pending.reply is None or (isinstance(pending, PendingBatch) and pending.sent):
                self._drop(pending, error)
            else:
                pending.reply.try_fail(ActorDeadError(f"{self.path} ended before it sent the message"))
        self._settler.end()

    # -- in -------------------------------------------------------------------------------------

    @handles(Produce)
    def _produce(self, message: Produce) -> None:
        reply = self.take_reply() if self.is_asked else None
        arrived = self._settler.now()
        size = len(message.key or b"") + len(message.value or b"")
        if message.headers:
            size += headers_size(message.headers)
        pending = PendingMessage(message, size, reply, self._life, arrived)
        error: PixyError | None
        if self._drain.begun:
            error = ShuttingDown()
        elif size > self._most_bytes:
            error = message_too_large()
        else:
            error = self._gathered.refusal()
        if error is None:
            self._gather(pending)
        else:
            self._settler.fail(pending, error)

    @handles(ProduceMany)
    def _produce_many(self, message: ProduceMany) -> None:
        reply = self.take_reply()
        if not message.records:
            reply.try_set([])
            return
        error = ShuttingDown() if self._drain.begun else self._gathered.refusal()
        if error is not None:
            reply.try_fail(error)
            return
        batch = PendingBatch(
            message.records,
            self._most_bytes,
            reply,
            self._life,
            sizes=message.sizes,
            arrived=self._settler.now(),
            stamp=self._journalled,
            client=message.client,
        )
        if batch.records:
            self._gather(batch)
        else:
            self._settler.batch(batch)

    def _gather(self, pending: Pending) -> None:
        self._busy = True
        gathered = self._gathered
        count = gathered.add(pending)
        if self._known.partitions is None:
            pending.waits_since = self.system.loop.time()
            if self._known.search is Search.NONE:
                self._look_up()
        elif gathered.bytes >= self._conf.flush_bytes:
            self._flush()
        elif count == 1:
            self.set_timer("flush", self._conf.flush_frequency, Flush())
            if self._sender.in_flight == 0:
                self._flush_when_quiet()

    def _flush_when_quiet(self) -> None:
        """Send once a few passes of the loop bring no more messages.

        On an idle loop that takes some 50 microseconds. On a busy one each pass brings more callers'
        messages, and they go together: 64 callers make batches of 14 instead of 2.5, which takes the
        daemon's processor time from 371 to 308 microseconds a message.
        """
        self._seen = len(self._gathered.items)
        self._quiet = 0
        self.set_timer("pass", 0.0, PASS)

    @handles(Pass)
    def _pass(self, _message: Pass) -> None:
        gathered = len(self._gathered.items)
        if gathered == self._seen:
            self._quiet += 1
            if self._quiet >= _QUIET_PASSES:
                self._flush()
                return
        else:
            self._seen, self._quiet = gathered, 0
        self.set_timer("pass", 0.0, PASS)

    # -- out ------------------------------------------------------------------------------------

    @handles(Flush)
    def _flush(self, _message: Flush | None = None) -> None:
        gathered, partitions = self._gathered, self._known.partitions
        if self._goes_on and _message is None and gathered.roomy:
            return  # others have their turn first
        self._goes_on = False
        if partitions is None or not gathered.items:
            return
        self.cancel_timer("flush")
        self.cancel_timer("pass")
        full, refused = self._sender.hand_over(gathered, partitions)
        if refused and self._gather_again(self._settler.unknown(refused)):
            return
        if gathered.items:
            # If the client is full, the next delivery report continues; what comes meanwhile queues behind.
            self._goes_on = not full
            self.set_timer("flush", _FULL_PAUSE if full else 0.0, Flush())
        elif self._drain.begun:
            self._finish_drain(0)

    @handles(DeliveryReports)
    def _delivered(self, message: DeliveryReports) -> None:
        """Settle what was sent, by an earlier life too: its callers have their answer already, but a message without a
        caller may be lost, and each report means that the client has room again.
        """
        sender = self._sender
        if message.life is self._life:
            sender.in_flight -= len(message.reports)
        refused = self._settler.settle(message.reports)
        if refused:
            self._gather_again(refused)
        if self._known.search is Search.BLOCKED and not sender.is_busy(self._gathered):
            self._look_up()
        elif sender.in_flight == 0 and self._gathered.items:
            self._flush_when_quiet()

    # -- the topic ------------------------------------------------------------------------------

    def _gather_again(self, refused: Sequence[Pending]) -> bool:
        """Keep what the client refuses because it knows no such topic, in front of what came later, until the topic has been looked up.

        What has waited too long already, what nobody would send, and what its caller was told may be written, fails. Return
        whether anything is kept.
        """
        now = self.system.loop.time()
        again: list[Pending] = []
        for pending in refused:
            told = pending.reply is not None and pending.life is not self._life
            over = pending.waits_since and self._gathered.has_expired(pending, now)
            if told or over or self._drain.over:
                self._settler.refuse(pending)
            else:
                again.append(pending.sent_again(self._life))
        if again:
            self._gathered.put_back(again)
            search = self._known.refused(now)
            self._forget_topic()
            if search is Search.UNDER_WAY:
                self._look_up()
            elif search is Search.LATER:
                self._look_up_later()
        return bool(again)

    def _forget_topic(self) -> None:
        """Send nothing until the topic is found; it may be another one, with other partitions."""
        self._goes_on = False
        for timer in ("flush", "pass", "refresh"):
            self.cancel_timer(timer)
        self._sender.ungate()
        self._gathered.begin_to_wait(self.system.loop.time())
        self._expire_later()

    @handles(LookUp)
    def _look_up(self, _message: LookUp | None = None) -> None:
        self._known.begin(self._gathered.newest)
        self.pipe_to_self(look_up(self._writable, self._topic), on_value=lambda found: found)

    def _look_up_later(self) -> None:
        self._known.put_off()
        self.set_timer("look-up", LOOKUP_AGAIN, LookUp())

    @handles(Resolved)
    def _resolved(self, found: Resolved) -> None:
        sender = self._sender
        answer = self._known.answered(
            found, in_flight=sender.in_flight > 0, busy=sender.is_busy(self._gathered)
        )
        match answer:
            case Answer.UNREACHABLE:
                self._unreachable()
            case Answer.MISSING:
                self._missing()
            case Answer.BLOCKED:
                self._expire_later()
            case Answer.USELESS:
                self._refresh_later()
            case Answer.FOUND | Answer.REFRESHED:
                if answer is Answer.FOUND and found.partitions is not None:
                    self._sender.gate(found.partitions)
                self.cancel_timer("expire")
                self._refresh_later()
                self._flush()

    def _refresh_later(self) -> None:
        if self._refreshes:
            self.set_timer("refresh", _ROUND_ROBIN_REFRESH, LookUp())

    def _missing(self) -> None:
        """Give up what came before the topic was looked up. It may have been created since, so what came later has it looked up again."""
        for pending in self._gathered.take_until(self._known.sought):
            self._drop(pending, unknown_topic())
        self._known.forget()
        if self._gathered.items:
            self._forget_topic()
            self._look_up()
        else:
            self._end()  # the topic may be created later: the next message looks it up again, with a new actor

    def _unreachable(self) -> None:
        """Tell the callers that Kafka does not answer; keep asynchronous messages and look the topic up again.

        They have been accepted, so they wait as long as those of a known topic wait in the Kafka client.
        """
        for pending in self._gathered.take_awaited():
            self._drop(pending, self._known.error)
        if self._expire():
            self._look_up_later()

    @handles(Expire)
    def _expire(self, _message: Expire | None = None) -> bool:
        """Give up the messages that have waited too long for their topic. Return whether some are left."""
        for pending in self._gathered.take_expired(self.system.loop.time()):
            self._drop(pending, self._known.error)
        if not self._gathered.items:
            self._end()
            return False
        self._expire_later()
        return True

    def _expire_later(self) -> None:
        at = self._gathered.expires_at()
        if at is None:
            self.cancel_timer("expire")
        else:
            self.set_timer("expire", max(0.0, at - self.system.loop.time()), Expire())

    # -- the end --------------------------------------------------------------------------------

    def _end(self) -> None:
        """Stop, because nothing waits for the topic."""
        self._finish_drain(0)
        if self._sender.in_flight or not self.stop_if_idle():
            # The next message, which may be here already, looks the topic up again.
            self.cancel_timer("look-up")
            self._known.forget()
            self._forget_topic()

    @handles(IdleCheck)
    def _idle_check(self, _message: IdleCheck) -> None:
        if self._busy or self._gathered.items or self._sender.in_flight or not self.stop_if_idle():
            self._busy = False

    @handles(DrainProducer)
    def _begin_drain(self, message: DrainProducer) -> None:
        self._drain.ask(self.take_reply())
        self.set_timer("drain", min(message.within, self._conf.shutdown_timeout), DrainTimeout())
        self._flush()
        if not self._gathered.items:
            self._finish_drain(0)

    @handles(DrainTimeout)
    def _drain_timeout(self, _message: DrainTimeout) -> None:
        self._goes_on = False
        self.cancel_timer("expire")
        unsent = self._gathered.unsent()
        for pending in self._gathered.take_all():
            self._drop(pending, ShuttingDown())
        self._finish_drain(unsent)

    def _drop(self, pending: Pending, error: PixyError) -> None:
        """Fail what is gathered no more. Of a batch that was sent in part, each record has its own result, later."""
        if isinstance(pending, PendingBatch) and pending.sent:
            self._sender.give_up(pending)
        else:
            self._settler.fail(pending, error)

    def _finish_drain(self, given_up: int) -> None:
        self.cancel_timer("drain")
        self._drain.finish(given_up)
