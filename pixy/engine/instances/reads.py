"""The reads that wait for records, each with a deadline, while the instance answers other requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors import Future
from pixy.engine.consume.long_polls import Message
from pixy.engine.instances.context import Context
from pixy.engine.instances.messages import ReadBatch, ReadRecords
from pixy.engine.instances.positions import FetchedRecords
from pixy.errors import PixyError, TooManyRequests
from pixy.kafka.instance_consumer import partition_of
from pixy.wire.types import TopicPartition

_SHORTEST_WAIT = 0.05
"""Seconds. A read that does not want to wait gets the records that are ready; finding them takes a moment."""


class ReadsDue:
    """To the instance, from a timer: a read has reached its deadline."""


@dataclass(slots=True)
class _WaitingRead:
    request: ReadRecords
    reply: Future[Any]
    wait: float
    deadline: float
    topped_up: bool = False
    """True if the session has looked for records since this read became the first."""


class Reads:
    """Serves reads in their order, one at a time: the next one after the answer to the one before has
    been sent or has failed.

    The wait of a read that comes before the group's assignment starts with the assignment; the wait
    for the assignment is bounded (``instances.join_timeout``).
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: deque[_WaitingRead] = deque()
        self._looking = False
        """True if the session was told to look for records."""
        self._out: ReadBatch | None = None
        self.fetched = FetchedRecords()
        self.assigned = False
        """True if the group has answered the subscription with an assignment."""
        self.refusal: PixyError | None = None
        """The reason why Kafka returns no records at present."""

    @property
    def busy(self) -> bool:
        """True if a read waits or is being answered."""
        return bool(self._waiting) or self._out is not None

    # -- requests ---------------------------------------------------------------------------------

    def add(self, request: ReadRecords, reply: Future[Any]) -> None:
        """Add a read to those that wait.

        Args:
            request: the read.
            reply: gets a :class:`ReadBatch`.

        Raises:
            TooManyRequests: ``instances.max_waiting_requests`` reads wait.
        """
        context = self._context
        if len(self._waiting) >= context.conf.max_waiting_requests:
            self._waiting = deque(each for each in self._waiting if not each.reply.done())
            if len(self._waiting) >= context.conf.max_waiting_requests:
                raise TooManyRequests("instances.max_waiting_requests")
        wait = context.spec.wait if request.wait is None else request.wait
        wait = max(_SHORTEST_WAIT, min(wait, context.conf.max_read_timeout))
        join = 0.0 if self.assigned else context.conf.join_timeout
        self._waiting.append(_WaitingRead(request, reply, wait, context.now() + join + wait))

    def serve(self) -> None:
        """Answer the reads that can be answered, look for records for the next one, set the timer."""
        if self._context.closing:
            return
        now = self._context.now()
        self._answer_ready(now)
        self._answer_due(now)
        self._look()
        self._set_timer()

    def _answer_ready(self, now: float) -> None:
        while self._waiting and self._out is None:
            read = self._waiting[0]
            if read.reply.done():
                self._waiting.popleft()
            elif self._has_enough(read, now):
                self._waiting.popleft()
                self._answer(read)
            else:
                break

    def _has_enough(self, read: _WaitingRead, now: float) -> bool:
        fetched, request, spec = self.fetched, read.request, self._context.spec
        if not fetched:
            return False
        most = min(request.most, spec.max_records)
        if now >= read.deadline or len(fetched) >= most or fetched.size >= request.max_bytes:
            return True
        # Records left over from an earlier read are returned together with those that are ready now.
        # One byte stands for a record, which may have none.
        return read.topped_up and (spec.min_bytes <= 1 or fetched.size >= spec.min_bytes)

    def _answer(self, read: _WaitingRead) -> None:
        spec, before = self._context.spec, self.fetched.size
        records = self.fetched.take(min(read.request.most, spec.max_records), read.request.max_bytes)
        batch = self._batch(records, before - self.fetched.size)
        if read.reply.try_set(batch):
            self._out = batch
        else:
            self.fetched.put_back(records)

    def _batch(self, records: list[Any], size: int) -> ReadBatch:
        epochs = self._context.positions.epochs() if records else {}
        return ReadBatch(records, size, epochs, self._context.spec.format, self._context.actor.actor_ref)

    def _answer_due(self, now: float) -> None:
        if not any(read.deadline <= now for read in self._waiting):
            return
        due = [read for read in self._waiting if read.deadline <= now]
        self._waiting = deque(read for read in self._waiting if read.deadline > now)
        for read in due:
            if self.refusal is not None:
                read.reply.try_fail(self.refusal)
            else:
                read.reply.try_set(self._batch([], 0))

    def _look(self) -> None:
        if self._waiting and self._out is None:
            if not self._looking:
                self._looking = True
                first = self._waiting[0]
                most = min(first.request.most, self._context.spec.max_records) - len(self.fetched)
                max_bytes = first.request.max_bytes - self.fetched.size
                # Wait if there is nothing yet, or less than fetch.min.bytes.
                self._want(max(1, most), max(1, max_bytes), wait=not self.fetched or first.topped_up)
        elif self._looking and not self._waiting:
            self._looking = False
            self._want(0, 0, wait=True)

    def _want(self, most: int, max_bytes: int, *, wait: bool) -> None:
        if self._context.session is not None:
            self._context.session.want(most, max_bytes, wait=wait)

    def _set_timer(self) -> None:
        actor = self._context.actor
        deadline = min((read.deadline for read in self._waiting), default=None)
        if deadline is None:
            actor.cancel_timer("reads")
        else:
            actor.set_timer("reads", max(0.0, deadline - self._context.now()), ReadsDue())

    # -- events -----------------------------------------------------------------------------------

    def start_clocks(self) -> None:
        """Start the waits: the group has assigned partitions, or will not do so soon."""
        now = self._context.now()
        self.assigned = True
        for read in self._waiting:
            read.deadline = min(read.deadline, now + read.wait)

    def look_again(self) -> None:
        """Tell the session again what to look for: it, or its partitions, have changed."""
        self._looking = False

    def add_fetched(self, records: list[Any], size: int) -> None:
        """Take the records that the session has found.

        Args:
            records: maybe none.
            size: bytes of their keys and values.
        """
        self._looking = False
        if records:
            self.refusal = None
            self.fetched.put(records, size)
        if self._waiting:
            self._waiting[0].topped_up = True

    def keep(self, starts: Mapping[TopicPartition, int]) -> None:
        """Leave out what was fetched before: the session fetches some partitions from the reader's earlier positions on.

        Args:
            starts: where it begins.
        """
        positions, out = self._context.positions, self._out
        epochs, known = positions.epochs(), list(self.fetched)
        if out is not None:
            known += [each for each in out.records if _epoch(out.epochs, each) == _epoch(epochs, each)]
        behind = {partition: offset for partition, offset in positions.offsets.items() if partition in starts}
        for record in known:
            partition, offset = partition_of(record), record.offset()
            if partition in behind and offset is not None:
                behind[partition] = max(behind[partition], offset + 1)
        self.fetched.leave_out({each: first for each, first in behind.items() if first > starts[each]})

    def settle(self, batch: ReadBatch, sent: bool) -> None:
        """Move the positions past a batch, or take its records back.

        Args:
            batch: one that answered a read.
            sent: whether it has reached the reader.
        """
        if batch is not self._out:
            return  # it was empty, or the instance has restarted since
        self._out = None
        positions = self._context.positions
        if sent:
            positions.handed_out(batch.records, batch.epochs)
            return
        epochs = positions.epochs()
        self.fetched.put_back(
            [
                record
                for record in batch.records
                if epochs.get(partition_of(record), 0) == batch.epochs.get(partition_of(record), -1)
            ]
        )

    def fail_all(self, error: BaseException) -> None:
        """Answer every waiting read with an error."""
        while self._waiting:
            self._waiting.popleft().reply.try_fail(error)

    def fail_first(self, error: BaseException) -> None:
        """Answer the read that records are looked for with an error."""
        if self._waiting:
            self._waiting.popleft().reply.try_fail(error)


def _epoch(epochs: Mapping[TopicPartition, int], record: Message) -> int | None:
    return epochs.get(partition_of(record))
