"""librdkafka's producer, and the thread that serves its callbacks.

librdkafka's callback appends reports to a list, and the thread hands the list to the loop once per wake-up.
The thread and the loop compete for the GIL, so the thread does as little as possible.

The thread can also replace the producer by a new one: because its metadata is wrong (:mod:`pixy.kafka.remade_topics`), or after a
fatal error, with which Kafka takes nothing more from it. Nothing is lost: what is queued is purged, comes back in the
reports, and is sent again by the new producer, in order. The loop asks for each replacement, also after a fatal error: from then on
it sends nothing, so no message overtakes those that are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError as LibraryError, KafkaException, Producer

from pixy.kafka.errors import INCURABLE_CODES, REFUSAL_CODES, translate
from pixy.kafka.library_calls import send_one
from pixy.kafka.lone_messages import LoneMessages
from pixy.kafka.new_producers import FatalErrors, ReadyProducer
from pixy.kafka.outages import Outages
from pixy.kafka.producer_messages import NO_OFFSET, Bulk, Landed, Message, Report, Returned
from pixy.kafka.retired_producers import RetiredProducers
from pixy.kafka.returned_messages import GateOf, ReturnedMessages
from pixy.kafka.settings import Settings

logger = logging.getLogger("pixy.kafka")

_POLL = 0.1
"""Seconds that the thread waits for a report before it looks whether the client is closing."""
_GATHER = 0.0005
"""Seconds that the thread waits for one more report of a batch that is landing."""
_GATHER_POLLS = 4
_LONE_POLL = 0.002
"""Seconds that the thread waits for each of two producers, while messages are sent alone."""
_PURGE = 1.0
"""Seconds to wait for the reports of messages that are given up."""
_IN_FLIGHT = 5.0
"""Seconds that a producer which is replaced has for requests in flight. What has no answer then is sent again, and may be
in the log twice. As long, at most, it may take until librdkafka has given all of it back."""
_ROUND = 0.5
"""Seconds, at most, until what is queued is purged again, from a producer that is replaced."""
_MAKE_EVERY = 1.0
"""Seconds after which a new producer is tried again, if there is none: its certificate is being changed, for example."""
_SLICE = 0.1
"""Seconds after which a wait looks whether the client is closing."""
_HURRIED_PAUSE = 0.5
"""The most seconds of such a pause once the client is closing, so that a stop does not use up producers, and with them the returns of messages."""
_MOST_REFUSED = 10_000
"""Topics with refused messages that are remembered."""

Probe = tuple[str, int, int | None, object]
"""See :meth:`pixy.kafka.gated_sender.GatedSender.landed`."""
Busy = Sequence[tuple[str, int]]
"""Partitions of topics."""


class DeliveryThread:
    """Runs until :meth:`stop`. Attributes are read on the loop.

    Args:
        settings: of the producer; see :mod:`pixy.kafka.settings`.
        landed: called on the loop with reports, and with the results of probes.
        failed: called on the loop with an error of the thread itself, which has ended.
        fatal: called on the loop with a fatal error of the producer (confluent-kafka's): call :meth:`replace`.
        replaced: called on the loop when :meth:`replace` is done, with the partitions to which one message is on its way, alone.
            Their results come as those of probes.
        gate_of: see :class:`pixy.kafka.returned_messages.ReturnedMessages`; called in the thread.
        refused: called on the loop with a topic, the first time at least that Kafka refuses a message of it.
        stamp: set each message's ``timestamp`` before its report is delivered.
        ready: the first producer; None: it is made here.

    Attributes:
        producer: librdkafka's.
        probes: the results of probes that the thread has not handed over.
        outages: why no broker can be reached.
        given_up: how many messages had no result when the thread ended.
        alone: how many messages are being sent alone; see :mod:`pixy.kafka.lone_messages`.
    """

    def __init__(
        self,
        settings: Settings,
        landed: Callable[[list[Report], Sequence[Probe]], None],
        failed: Callable[[Exception], None],
        fatal: Callable[[LibraryError], None],
        replaced: Callable[[Busy], None],
        gate_of: GateOf,
        refused: Callable[[str], None],
        *,
        stamp: bool,
        ready: ReadyProducer | None = None,
    ) -> None:
        self._settings = settings
        self._on_landed, self._on_failed, self._on_fatal, self._on_replaced = landed, failed, fatal, replaced
        self._on_refused = refused
        self._topics_refused: set[str] = set()
        self._stamp = stamp
        self._idempotent = bool(settings.get("enable.idempotence"))
        self._loop = asyncio.get_running_loop()
        self._reports: list[Report] = []
        self.probes: list[Probe] = []
        self.outages = Outages()
        self._errors = 0
        self.given_up = self.alone = 0
        # Set on the loop for the thread to see; the first two in this order.
        self._give_up_at = math.inf
        self._stopping = self._hurrying = False
        self._refused = False
        self._replacing = False
        self._cause: LibraryError | None = None
        self._fatal_errors = FatalErrors()
        self.producer = self._new() if ready is None else ready.take(self._error)
        patience = settings.get("message.timeout.ms", 300_000) / 1000
        self._lone = LoneMessages(self._new, patience, idempotent=self._idempotent)
        self._returned = ReturnedMessages(
            self._produce, patience, gate_of, self.probes, self._send_alone, idempotent=self._idempotent
        )
        self.adopt = self._returned.adopt
        self._retired = RetiredProducers()
        self._thread = threading.Thread(target=self._run, name="kafka-producer", daemon=True)
        self._thread.start()

    def _new(self, changes: Settings | None = None) -> Producer:
        return Producer({**self._settings, "error_cb": self._error, **(changes or {})})

    # -- on the loop ------------------------------------------------------------------------------

    @property
    def errors(self) -> int:
        """The number of messages that have failed."""
        return self._errors + self._returned.failed + self._lone.failed

    def replace(self, *, fatal: bool) -> None:
        """Continue with a new producer. Hand the old one nothing more.

        Args:
            fatal: it has refused a message because of a fatal error, which the thread may not have heard of.
        """
        self._refused = fatal
        self._replacing = True

    def hurry(self) -> None:
        """Make no long pause before a new producer any more: :meth:`stop` follows."""
        self._hurrying = True

    def stop(self, until: float) -> None:
        """Serve what has been sent, then end.

        Args:
            until: when to give up what has no result (``time.monotonic``).
        """
        self._give_up_at = until
        self._hurrying = self._stopping = True

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, ``timeout`` seconds at most after it has begun to give up. Blocking."""
        self._thread.join(timeout + _PURGE + 2 * _IN_FLIGHT)

    # -- callbacks of librdkafka, in the thread -------------------------------------------------------

    def report(self, token: Any, order: int, error: Any, message: Any, final: bool = False) -> None:
        """Note the result of a single message: a delivery callback, behind two arguments of our own.

        Args:
            token: the message that was sent.
            order: its number; see :class:`pixy.kafka.producer_messages.Returned`.
            error: confluent-kafka's error, or None.
            message: confluent-kafka's message.
            final: whether the message is not sent again, whatever the report says.
        """
        offset = message.offset()
        if (error is not None or offset is None) and not final:
            settle = partial(self.report, token, order, final=True)
            if self.send_again(token, error, message, settle, order):
                return
        if self._stamp:
            token.timestamp = message.timestamp()[1]
        self._reports.append((token, error, message.partition(), NO_OFFSET if offset is None else offset))

    def send_again(self, item: Message, error: Any, message: Any, landed: Landed, order: int) -> bool:
        """Send a message again, if it landed without an offset or was taken back; see :class:`ReturnedMessages`.

        Args:
            item: what was sent.
            error: what the delivery callback got; None if it got no error, and no offset either.
            message: what the delivery callback got.
            landed: hears of the final result, if the message is sent again.
            order: the number of what was sent.

        Returns:
            False if that is the message's final result.
        """
        if error is None:
            if self._idempotent:
                self._returned.add(item, message, landed, order)
            return self._idempotent
        if self._returned.take_back(item, error, message, landed, order):
            return True
        self._errors += 1
        return False

    def _send_alone(self, returned: Returned, error: LibraryError) -> bool:
        """Send a message alone, if its batch was refused; see :meth:`pixy.kafka.lone_messages.LoneMessages.take`."""
        topic, seen = returned.message.topic(), self._topics_refused
        if error.code() in REFUSAL_CODES and topic not in seen:
            if len(seen) >= _MOST_REFUSED:
                seen.clear()
            seen.add(topic)
            self._call(self._on_refused, topic)
        return self._lone.take(returned, error)

    def bulk_landed(self, bulk: Bulk) -> None:
        """Report a bulk whose last record has landed."""
        self._reports.append((bulk, None, -1, -1))

    def _error(self, error: LibraryError) -> None:
        self.outages.note(error)
        if error.fatal():
            # Before the next poll: it reports the messages that fail.
            self._returned.hold(fatal=True)
            self._cause = error
            logger.warning("the producer cannot continue: a new one sends its messages: %s", translate(error))
            self._call(self._on_fatal, error)

    # -- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        # Only this thread serves librdkafka's callbacks, also during `stop`: a bulk's count has one writer.
        failure: Exception | None = None
        try:
            self._serve_until_stopped()
        except Exception as error:
            logger.exception("the producer's thread has failed")
            failure = error
        try:
            self._end()
        finally:
            if failure is not None:
                self._call(self._on_failed, translate(failure))

    def _serve_until_stopped(self) -> None:
        while not self._stopping:
            if self._replacing:
                self._replace()
            self._poll()
        while self._left() and time.monotonic() < self._give_up_at:
            if self._replacing:
                self._replace()
            self._poll()

    def _end(self) -> None:
        """Report an error for all messages that have no result."""
        left = self._left()
        self.given_up = left + self._retired.lost
        if left:
            until = time.monotonic() + _PURGE
            self._returned.give_up()
            self.producer.purge()
            self._serve(self.producer.flush, _PURGE)
            self._retired.give_up(until)
            self._lone.give_up(until)
        self._hand_over()

    def _left(self) -> int:
        return len(self.producer) + len(self._returned) + len(self._retired) + len(self._lone)

    def _serve(self, call: Callable[[float], int], timeout: float) -> int:
        """Serve callbacks.

        Args:
            call: a producer's ``poll`` or ``flush``. It raises a fatal error, which confluent-kafka does not
                give to ``error_cb``.
            timeout: seconds.

        Returns:
            What ``call`` returns; 1 if it raised, because the same call may have served callbacks.
        """
        try:
            return call(timeout)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self._error(error.args[0])
            return 1

    def _poll(self) -> None:
        producer = self.producer
        poll = producer.poll
        if self._serve(poll, _LONE_POLL if len(self._lone) else _POLL):
            # A batch lands partition by partition: gather the reports that are about to come, rather
            # than wake the loop for each. A lone message does not wait.
            for _ in range(_GATHER_POLLS):
                if not len(producer) or not self._serve(poll, _GATHER):
                    break
            self._hand_over()
        if self._returned:
            self._returned.send()
            self._hand_over()
        if self._lone:
            self._lone.serve(_LONE_POLL)
            self._hand_over()
        if self._retired and not self._returned.held:
            self._poll_retired()

    def _poll_retired(self) -> None:
        # What a replaced producer gives back late is sent again, behind the rest.
        self._returned.hold(fatal=True)
        self._retired.poll()
        self._returned.release_late()
        self._hand_over()

    def _replace(self) -> None:
        self._returned.hold(fatal=self._refused)
        old = [self.producer]
        self._take_back(old[0])
        self._pause()
        new = self._make()
        if new is None:
            return  # the client is closing, and what is held is given up
        self.producer = new
        self._cause = None
        self._refused = self._replacing = False
        self._returned.release()
        self._retired.add(old)
        self._call(self._on_replaced, self._returned.busy())
        self._hand_over()

    def _pause(self) -> None:
        """Wait, if fatal errors come in a row. Who waits for a message hears at once of an error that will not pass."""
        cause, now = self._cause, time.monotonic()
        if cause is None:
            return
        pause = self._fatal_errors.pause(cause.code(), now)
        if cause.code() in INCURABLE_CODES:
            self._returned.give_up(cause)
            self._hand_over()
        while time.monotonic() < self._give_up_at:
            if time.monotonic() >= now + (min(pause, _HURRIED_PAUSE) if self._hurrying else pause):
                break
            time.sleep(min(_SLICE, pause))
        self._fatal_errors.paused(time.monotonic())

    def _take_back(self, old: Producer) -> None:
        until = time.monotonic() + _IN_FLIGHT
        while len(old):
            late = time.monotonic() >= until or self._stopping
            # Requests in flight end first, so that nothing is sent twice: a request that fails is queued again.
            old.purge(in_queue=True, in_flight=late)
            if late:
                self._serve(old.flush, _IN_FLIGHT)
                break
            self._drain(old)
            self._hand_over()
        if left := len(old):
            logger.error("%d messages of the producer that is replaced have no result yet", left)
        self._hand_over()

    def _drain(self, old: Producer) -> None:
        """Serve callbacks until no more come for a moment: then most of what was purged has come."""
        until = time.monotonic() + _ROUND
        while len(old) and self._serve(old.poll, _POLL) and time.monotonic() < until:
            pass

    def _make(self) -> Producer | None:
        """Make a producer. Try again if that fails, until what has been sent is to be given up; then return None."""
        logged = False
        while True:
            try:
                return self._new()
            except Exception as error:
                if not logged:
                    logger.error("no new producer, which is tried again every second: %s", translate(error))
                    logged = True
            again = time.monotonic() + (_SLICE if self._hurrying else _MAKE_EVERY)
            while time.monotonic() < again:
                if time.monotonic() >= self._give_up_at:
                    return None
                time.sleep(_SLICE)

    def _produce(self, topic: str, item: Message, partition: int, report: Landed) -> bool:
        return send_one(self.producer, topic, item, partition, report)

    def _hand_over(self) -> None:
        self.alone = len(self._lone)
        self._returned.log()
        self._lone.log()
        reports, self._reports = self._reports, []
        probes: Sequence[Probe] = ()
        if self.probes:
            probes = tuple(self.probes)
            self.probes.clear()
        if reports or probes:
            self._call(self._on_landed, reports, probes)

    def _call(self, what: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it
            self._loop.call_soon_threadsafe(what, *args)


__all__ = ["Busy", "DeliveryThread", "Probe"]
