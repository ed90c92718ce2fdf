"""Settles the messages of one topic: tells their callers, the log and the journal what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from pixy.engine.counters import ProduceCounters
from pixy.engine.produce.loss_log import LossLog
from pixy.engine.produce.pending_records import PendingBatch, PendingMessage, SettledListener
from pixy.errors import PixyError, UnknownTopic
from pixy.kafka.errors import translate, unknown_topic
from pixy.kafka.producer_messages import Report


class Settler:
    """Settles each message once.

    Args:
        path: of the producer, for the log.
        listener: hears of every settled message; None if there is none.
        counters: of the topic.
    """

    def __init__(
        self, path: str, listener: SettledListener | None, counters: ProduceCounters | None = None
    ) -> None:
        self._counters = counters or ProduceCounters()
        self._path = path
        self._listener = listener
        self._losses = LossLog(path)

    def now(self) -> float:
        """Return event-loop time, in seconds, as the listener has it; 0 without one."""
        return 0.0 if self._listener is None else self._listener.now()

    def settle(self, reports: tuple[Report, ...]) -> list[PendingMessage | PendingBatch]:
        """Settle what has a delivery report.

        Returns:
            What is not settled yet, because the client refuses it for knowing no such topic: it may be sent again, or else
            goes to :meth:`refuse`.
        """
        others = 0  # of the reports: those that are not of one message that Kafka has
        refused: list[PendingMessage | PendingBatch] = []
        for pending, error, partition, offset in reports:
            if type(pending) is PendingBatch:
                if pending.refused():
                    refused.append(pending)
                else:
                    self.batch(pending)
                others += 1
            elif error is not None:
                reason = translate(error)
                if isinstance(reason, UnknownTopic):
                    refused.append(pending)
                else:
                    self.fail(pending, reason)
                others += 1
            elif pending.reply is not None:
                pending.reply.try_set((partition, offset))
        self._counters.delivered += len(reports) - others
        if self._listener is None:
            return refused
        if others:
            reports = tuple(
                [report for report in reports if report[1] is None and type(report[0]) is PendingMessage]
            )
        if reports:
            self._listener.delivered(reports)
        return refused

    def unknown(self, refused: Sequence[tuple[PendingMessage, PixyError]]) -> list[PendingMessage]:
        """Settle single messages that the client refuses at once. Return those that :meth:`settle` would return."""
        unknown: list[PendingMessage] = []
        for message, error in refused:
            if isinstance(error, UnknownTopic):
                unknown.append(message)
            else:
                self.fail(message, error)
        return unknown

    def refuse(self, pending: PendingMessage | PendingBatch) -> None:
        """Settle what the client refuses because it knows no such topic, and what is not sent again."""
        if isinstance(pending, PendingBatch):
            self.batch(pending)
        else:
            self.fail(pending, unknown_topic())

    def batch(self, batch: PendingBatch) -> None:
        """Settle a batch whose every record has its result."""
        batch.settle()
        failed = 0
        if batch.written is not batch.results:  # or Kafka has all of them
            failed = sum([type(each) is not tuple for each in batch.written])
        self._counters.failed += failed
        self._counters.delivered += len(batch.written) - failed
        if self._listener is not None:
            self._listener.batch_settled(batch)

    def end(self) -> None:
        """Tell what the log has not been told yet."""
        self._losses.tell()

    def fail(self, pending: PendingMessage | PendingBatch, error: PixyError) -> None:
        """Settle a message, or all records of a batch, with an error."""
        if isinstance(pending, PendingBatch):
            pending.fail(error)
            self._counters.failed += len(pending.written)
            if self._listener is not None:
                self._listener.batch_settled(pending)
            return
        self._counters.failed += 1
        if not pending.fail(error):
            self._losses.lost(self._path, error)
        if self._listener is not None:
            self._listener.failed(pending, error)
