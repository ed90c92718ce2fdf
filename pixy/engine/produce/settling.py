"""Settles the messages of one topic: tells their callers, the log and the journal what became of them."""

from __future__ import annotations

import logging

from pixy.engine.produce.pending_records import PendingBatch, PendingMessage, SettledListener
from pixy.errors import PixyError
from pixy.kafka.errors import translate
from pixy.kafka.producer_messages import Report

logger = logging.getLogger("pixy.engine")


class Settler:
    """Settles each message once.

    Args:
        path: of the producer, for the log.
        listener: hears of every settled message; None if there is none.
    """

    def __init__(self, path: str, listener: SettledListener | None) -> None:
        self._path = path
        self._listener = listener

    def now(self) -> float:
        """Event-loop time, in seconds, as the listener has it; 0 without one."""
        return 0.0 if self._listener is None else self._listener.now()

    def settle(self, reports: tuple[Report, ...]) -> None:
        """Settle what has a delivery report."""
        only_delivered = True
        for pending, error, partition, offset in reports:
            if type(pending) is PendingBatch:
                self.batch(pending)
                only_delivered = False
            elif error is not None:
                self.fail(pending, translate(error))
                only_delivered = False
            elif pending.reply is not None:
                pending.reply.try_set((partition, offset))
        if self._listener is None:
            return
        if not only_delivered:
            reports = tuple(
                [report for report in reports if report[1] is None and type(report[0]) is PendingMessage]
            )
        if reports:
            self._listener.delivered(reports)

    def batch(self, batch: PendingBatch) -> None:
        """Settle a batch whose every record has its result."""
        batch.settle()
        if self._listener is not None:
            self._listener.batch_settled(batch)

    def fail(self, pending: PendingMessage | PendingBatch, error: PixyError) -> None:
        """Settle a message, or all records of a batch, with an error."""
        if isinstance(pending, PendingBatch):
            pending.fail(error)
            if self._listener is not None:
                self._listener.batch_settled(pending)
            return
        if not pending.fail(error):
            logger.error("%s: an asynchronous message is lost: %s", self._path, error)
        if self._listener is not None:
            self._listener.failed(pending, error)
