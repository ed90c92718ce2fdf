"""Puts the messages that a replaced producer gives back into the order in which they were sent. Pure.

A producer is replaced because it sends to the wrong brokers, or because Kafka accepts no more of its sequence numbers, its
fatal error. Then the first requests come back with that error, those behind them are queued again, and the queue comes
back at once. So what fails goes first, and then what came back last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pixy.kafka.producer_messages import Landed, Message


class History(NamedTuple):
    """What a message has been through.

    Attributes:
        returns: how often it has landed without an offset, made a producer fail, or had to go to another partition.
        deadline: when it is not sent once more (``time.monotonic``).
    """

    returns: int
    deadline: float

    def again(self) -> History:
        """The message returns once more."""
        return self._replace(returns=self.returns + 1)


class Returned(NamedTuple):
    """A message that is sent again.

    Attributes:
        item: what was sent.
        message: what confluent-kafka's delivery callback got.
        landed: that callback; it hears of the final result.
        history: of the message.
    """

    item: Message
    message: Any
    landed: Landed
    history: History


class TakenBack:
    """Messages of one producer, until :meth:`take`."""

    def __init__(self) -> None:
        self._failed: list[Returned] = []
        # Since next_round(), whether a request was under way; and the rounds.
        self._back: list[tuple[bool, Returned]] = []
        self._rounds: list[list[Returned]] = []

    def __len__(self) -> int:
        return len(self._failed) + len(self._back) + sum(map(len, self._rounds))

    def add_failed(self, returned: Returned) -> None:
        """Add a message whose request has failed: those behind it come back, or have their result."""
        self._failed.append(returned)

    def add(self, returned: Returned, *, under_way: bool) -> None:
        """Add a message that came back.

        Args:
            returned: the message.
            under_way: whether it was in a request.
        """
        self._back.append((under_way, returned))

    def next_round(self) -> None:
        """What has come back so far was behind what will: that is in requests which have not ended."""
        if self._back:
            # Of what came at once, requests are before the queue.
            self._back.sort(key=lambda entry: not entry[0])
            self._rounds.append([returned for _, returned in self._back])
            self._back = []

    def take(self) -> list[Returned]:
        """Take all messages, in order."""
        self.next_round()
        taken, self._failed = self._failed, []
        while self._rounds:
            taken.extend(self._rounds.pop())
        return taken


__all__ = ["History", "Returned", "TakenBack"]
