"""The reads of an instance that wait: parked, each with a deadline, while the mailbox goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import ActorRef, Future
from pixy.config.model import Instances
from pixy.engine.instances.messages import Batch, InstanceSpec, ReadRecords
from pixy.engine.instances.positions import Book, Shelf
from pixy.errors import PixyError, TooManyRequests
from pixy.kafka.instance_consumer import place_of

_LEAST = 0.05
"""A read that does not want to wait gets what is there, and to see what is there takes a moment."""


@dataclass(slots=True)
class _Parked:
    request: ReadRecords
    reply: Future[Any]
    wait: float
    deadline: float
    topped_up: bool = False


class Reads:
    """First come, first served, one at a time: the next read is served when it is known what became
    of the answer to the one before.

    The clock of a read that comes before the group has been joined starts with the assignment, and
    the wait for that is bounded.

    Args:
        want: looks for records, see :class:`pixy.membership.instances.InstanceSession`.
    """

    def __init__(
        self,
        owner: ActorRef[Any],
        spec: InstanceSpec,
        conf: Instances,
        book: Book,
        want: Callable[[int, int, bool], None],
    ) -> None:
        self._owner = owner
        self._spec = spec
        self._conf = conf
        self._book = book
        self._want = want
        self._parked: deque[_Parked] = deque()
        self._wanting = False
        self._out: Batch | None = None
        self.shelf = Shelf()
        self.joined = False
        """Whether the group has answered the subscription with an assignment."""
        self.trouble: PixyError | None = None
        """What Kafka refuses at present: the reason why nothing comes."""

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def busy(self) -> bool:
        """Whether a read waits or is being answered."""
        return bool(self._parked) or self._out is not None

    def park(self, request: ReadRecords, reply: Future[Any], now: float) -> None:
        """One more read. Raises TooManyRequests."""
        if len(self._parked) >= self._conf.max_waiting_requests:
            self._parked = deque(each for each in self._parked if not each.reply.done())
            if len(self._parked) >= self._conf.max_waiting_requests:
                raise TooManyRequests("instances.max_waiting_requests")
        wait = self._spec.wait if request.wait is None else request.wait
        wait = max(_LEAST, min(wait, self._conf.max_read_timeout))
        join = 0.0 if self.joined else self._conf.join_timeout
        self._parked.append(_Parked(request, reply, wait, now + join + wait))

    def start_clocks(self, now: float) -> None:
        """The group has been joined, or will not be soon."""
        self.joined = True
        for parked in self._parked:
            parked.deadline = min(parked.deadline, now + parked.wait)

    def next_deadline(self) -> float | None:
        """When the first of them times out."""
        return min((parked.deadline for parked in self._parked), default=None)

    def serve(self, now: float) -> None:
        """Answer what can be answered now, and look for records if somebody waits for some."""
        while self._parked and self._out is None:
            parked = self._parked[0]
            if parked.reply.done():
                self._parked.popleft()
            elif self._enough(parked, now):
                self._parked.popleft()
                self._answer(parked)
            else:
                break
        self._expire(now)
        self._look()

    def _enough(self, parked: _Parked, now: float) -> bool:
        shelf, request = self.shelf, parked.request
        if not shelf:
            return False
        if now >= parked.deadline or len(shelf) >= request.most or shelf.size >= request.max_bytes:
            return True
        # What an earlier read left is handed out with what is ready by now, not by itself.
        return parked.topped_up and shelf.size >= self._spec.min_bytes

    def _answer(self, parked: _Parked) -> None:
        before = self.shelf.size
        records = self.shelf.take(min(parked.request.most, self._spec.max_records), parked.request.max_bytes)
        batch = Batch(records, before - self.shelf.size, self._book.terms(), self._spec.format, self._owner)
        if parked.reply.try_set(batch):
            self._out = batch
        else:
            self.shelf.put_back(records)

    def _expire(self, now: float) -> None:
        if not any(parked.deadline <= now for parked in self._parked):
            return
        due = [parked for parked in self._parked if parked.deadline <= now]
        self._parked = deque(parked for parked in self._parked if parked.deadline > now)
        for parked in due:
            if self.trouble is not None:
                parked.reply.try_fail(self.trouble)
            else:
                parked.reply.try_set(Batch([], 0, {}, self._spec.format, self._owner))

    def _look(self) -> None:
        if self._parked and self._out is None:
            if not self._wanting:
                self._wanting = True
                request = self._parked[0].request
                most = min(request.most, self._spec.max_records) - len(self.shelf)
                # Whether there is nothing yet, or not enough for fetch.min.bytes.
                wait = not self.shelf or self._parked[0].topped_up
                self._want(max(1, most), max(1, request.max_bytes - self.shelf.size), wait)
        elif self._wanting and not self._parked:
            self._wanting = False
            self._want(0, 0, True)

    # -- what happens -----------------------------------------------------------------------------

    def look_again(self) -> None:
        """The session is new, or consumes something new: what is wanted has to be said again."""
        self._wanting = False

    def fetched(self, records: list[Any], size: int) -> None:
        """What was looked for has come."""
        self._wanting = False
        if records:
            self.trouble = None
            self.shelf.put(records, size)
        if self._parked:
            self._parked[0].topped_up = True

    def settled(self, batch: Batch, sent: bool) -> bool:
        """Whether the answer with a batch reached its reader; tells whether positions have moved."""
        if batch is not self._out:
            return False  # it had nothing in it, or the instance began anew
        self._out = None
        if sent:
            self._book.handed_out(batch.records, batch.terms)
            return True
        terms = self._book.terms()
        self.shelf.put_back(
            [
                record
                for record in batch.records
                if terms.get(place_of(record), 0) == batch.terms.get(place_of(record), -1)
            ]
        )
        return False

    def refuse(self, error: BaseException) -> None:
        """No read is served any more."""
        while self._parked:
            self._parked.popleft().reply.try_fail(error)

    def refuse_first(self, error: BaseException) -> None:
        """Answer the read that is looked for with an error."""
        if self._parked:
            self._parked.popleft().reply.try_fail(error)
