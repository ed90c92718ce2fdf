"""Long polls: requests that wait for a message, and the message on its way to the client."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from actors import ActorRef, Future
from pixy.engine.consume.dispatch import RoundRobin


class Message(Protocol):
    """A consumed message (confluent-kafka's ``Message`` fits)."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Answered:
    """Tell a partition's owner whether the answer with an offer reached the client's socket.

    Args:
        life: the owner's life that made the offer.
        offset: of the message.
        number: which of its offers it is: 0 for the first.
        sent: whether the answer was written.
    """

    life: int
    offset: int
    number: int
    sent: bool


class Delivery:
    """A message that was offered to one request, on its way to the client.

    The handler of the request calls :meth:`sent` or :meth:`give_back`, once.

    Args:
        message: as it was fetched.
        partition: the message's partition.
        offset: the message's offset.
        owner: the partition's owner.
        life: the owner's life that made the offer.
        number: which offer of this message it is: 0 for the first.
        auto_ack: whether :meth:`sent` acknowledges the message.
    """

    __slots__ = ("_auto_ack", "_life", "_number", "_owner", "message", "offset", "partition")

    def __init__(
        self,
        message: Message,
        partition: int,
        offset: int,
        owner: ActorRef[Any],
        life: int,
        number: int,
        auto_ack: bool,
    ) -> None:
        self.message = message
        self.partition = partition
        self.offset = offset
        self._owner = owner
        self._life = life
        self._number = number
        self._auto_ack = auto_ack

    def sent(self) -> None:
        """Report that the answer was written; with auto-ack the message counts as consumed from here on."""
        if self._auto_ack:
            self._tell(True)

    def give_back(self) -> None:
        """Report that the client is gone: the message is the next one offered."""
        self._tell(False)

    def _tell(self, sent: bool) -> None:
        # A dead owner has lost the partition: the message will be delivered again.
        self._owner.notify(Answered(self._life, self.offset, self._number, sent), urgent=True)


class Poll:
    """One waiting request."""

    __slots__ = ("arrived", "auto_ack", "client", "deadline", "reply")

    def __init__(
        self, reply: Future[Any], auto_ack: bool, arrived: float, deadline: float, client: str = ""
    ) -> None:
        self.reply = reply
        self.client = client
        self.auto_ack = auto_ack
        self.arrived = arrived
        self.deadline = deadline


class TopicPolls:
    """The long polls of one topic in a group: first come, first served, each with a deadline.

    Deadlines never decrease along the queue, so only its head needs watching. No clock and no IO: the
    time, in seconds of one monotonic clock, is an argument.

    Args:
        wait: seconds that a request waits for a message.
        join_wait: seconds that a request may wait for the group to join, before its wait begins.
    """

    __slots__ = ("_join_wait", "_polls", "_wait", "check_at", "joined", "last_request", "missing", "ready")

    def __init__(self, wait: float, join_wait: float) -> None:
        self._wait = wait
        self._join_wait = join_wait
        self._polls: deque[Poll] = deque()
        self.ready = RoundRobin()
        self.last_request = 0.0
        self.check_at = 0.0
        """The loop's time at which to look next whether the topic is idle."""
        self.joined = False
        """True if the group has answered our subscription with an assignment."""
        self.missing = False
        """True if the topic does not exist."""

    def __len__(self) -> int:
        return len(self._polls)

    def add(self, reply: Future[Any], auto_ack: bool, now: float, client: str = "") -> Poll:
        """Queue a request. Its wait begins with the join, which may take up to ``join_wait``.

        Args:
            reply: gets the delivery or the error.
            auto_ack: whether the delivery acknowledges itself once it was sent.
            now: the time.
            client: who asks; empty for the program itself.
        """
        wait = self._wait
        if not self.joined and not self.missing:
            wait += self._join_wait
        poll = Poll(reply, auto_ack, now, now + wait, client)
        self._polls.append(poll)
        self.last_request = now
        return poll

    def put_back(self, polls: tuple[Poll, ...]) -> None:
        """Put requests that could not be served back to the front, in their order."""
        self._polls.extendleft(reversed(polls))

    def found(self) -> None:
        """Let the requests wait for the join again: the topic exists by now."""
        if self.missing:
            self.missing = False
            for poll in self._polls:
                poll.deadline = poll.arrived + self._wait + self._join_wait

    def start_waiting(self, now: float) -> None:
        """Start the wait of requests that came before the join, or before the topic was known missing."""
        for poll in self._polls:
            begin = now if self.joined else poll.arrived
            poll.deadline = min(poll.deadline, begin + self._wait)

    def prune(self) -> None:
        """Drop requests whose clients are gone."""
        self._polls = deque(poll for poll in self._polls if not poll.reply.done())

    def waiting(self) -> tuple[int, float | None]:
        """Count the requests whose clients still wait; also return when the first of them arrived."""
        arrived = [poll.arrived for poll in self._polls if not poll.reply.done()]
        return len(arrived), min(arrived, default=None)

    def next_deadline(self) -> float | None:
        """Return the time at which the first request times out."""
        return self._polls[0].deadline if self._polls else None

    def expire(self, now: float) -> Iterator[Poll]:
        """Take out the requests whose time is up. Up to then their clients have asked for the topic."""
        while self._polls and self._polls[0].deadline <= now:
            poll = self._polls.popleft()
            if not poll.reply.done():
                self.last_request = max(self.last_request, poll.deadline)
            yield poll

    def drain(self) -> Iterator[Poll]:
        """Take out all requests."""
        while self._polls:
            yield self._polls.popleft()

    def assign(self, now: float) -> dict[int, list[Poll]]:
        """Take out the requests that can be served now; return them by the partition that serves them."""
        serve: dict[int, list[Poll]] = {}
        while self._polls and self.ready:
            poll = self._polls.popleft()
            if poll.reply.done():
                continue
            self.last_request = now
            serve.setdefault(self.ready.next(), []).append(poll)
        return serve
