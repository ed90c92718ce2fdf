"""Hands the gathered messages of a topic to the Kafka client."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from pixy.engine.produce.gathered import Gathered, Pending
from pixy.engine.produce.partitioner import RoundRobinPartitioner
from pixy.engine.produce.pending_records import BUDGET, PendingBatch, PendingMessage
from pixy.errors import PixyError, UnknownTopic
from pixy.kafka.producer import ProducerClient

_HEADERS = 10  # of single messages; so many take as much of the budget as a record

_MOVE_WITHIN = 5.0
"""Seconds that new messages wait for those that another client has."""
_MOVE_AGAIN = 60.0

Refusal = tuple[PendingMessage, PixyError]
"""A single message that the client has refused, and why."""


class Clients(Protocol):
    """See :class:`pixy.kafka.producer_clients.ProducerClients`."""

    def of(self, topic: str) -> ProducerClient:
        """Return the client that sends a topic's messages from now on."""


class Sender:
    """Hands messages over in their order, within a budget for each turn of the loop.

    Args:
        topic: what it writes to.
        clients: of the cluster.
        round_robin: choose the partitions here, and not in librdkafka.
        clock: event-loop time, in seconds.

    Attributes:
        in_flight: messages and batches that were handed over, also in part, and have no delivery report; whoever gets the
            reports counts them off.
    """

    __slots__ = ("_client", "_clients", "_clock", "_move_by", "_round_robin", "_topic", "in_flight")

    def __init__(
        self, topic: str, clients: Clients, *, round_robin: bool, clock: Callable[[], float]
    ) -> None:
        self._topic = topic
        self._clients = clients
        self._client = clients.of(topic)
        self._clock = clock
        self._move_by = math.inf
        self._round_robin = RoundRobinPartitioner() if round_robin else None
        self.in_flight = 0

    def gate(self, partitions: Sequence[int]) -> None:
        """Have one message go alone to each partition before others; see :meth:`ProducerClient.gate`."""
        self._client.gate(self._topic, partitions)

    def ungate(self) -> None:
        """Forget which partitions have not been written to; see :meth:`ProducerClient.ungate`."""
        self._client.ungate(self._topic)

    def give_up(self, batch: PendingBatch) -> None:
        """Send no more of a batch that was sent in part."""
        self._client.give_up(batch)

    def _held_to_move(self, partitions: tuple[int, ...]) -> bool:
        """Go to another client, if one sends for the topic from now on. Return whether what is new must wait for that.

        It waits until all that was sent has its results, so that nothing is overtaken: for :data:`_MOVE_WITHIN` at most. If the
        time is not enough, because a partition has no leader, for example, the present client goes on, and the next attempt is
        :data:`_MOVE_AGAIN` later.
        """
        client = self._clients.of(self._topic)
        if client is self._client:
            return False
        if self.in_flight == 0:
            self._client.ungate(self._topic)
            client.gate(self._topic, partitions)
            self._client, self._move_by = client, math.inf
            return False
        now = self._clock()
        if self._move_by == math.inf or now >= self._move_by + _MOVE_AGAIN:
            self._move_by = now + _MOVE_WITHIN
        return now < self._move_by

    def hand_over(self, gathered: Gathered, partitions: tuple[int, ...]) -> tuple[bool, list[Refusal]]:
        """Hand over what is gathered, until the budget of this turn is used up, or the client takes no more.

        What is being handed over is not gathered meanwhile: should this fail, nobody knows whether it was sent.

        Args:
            gathered: loses what the client has taken or refused.
            partitions: that have a leader, sorted.

        Returns:
            Whether the client takes no more now: it is full, or knows no such topic; and the single messages that it refuses. A
            batch that it refuses has a delivery report.
        """
        items = gathered.items
        refused: list[Refusal] = []
        budget, full = BUDGET, False
        held = self._held_to_move(partitions)
        while items and budget > 0 and not full:
            first = items[0]
            if held and not (isinstance(first, PendingBatch) and first.sent):
                return True, refused
            if isinstance(first, PendingBatch):
                stop, cost = first.next_step(budget)
                del items[0]
                if not self._send_batch(first, stop, partitions):
                    items.insert(0, first)
                # What is behind a batch that is refused would overtake it, if the client has just learned of the topic.
                full = first.sent < stop or first.refused()
            else:
                messages, cost = _messages_in(items, budget)
                count = len(messages)
                del items[:count]
                wanted = self._choose([None] * count, partitions)
                handled, errors = self._client.send(self._topic, messages, wanted)
                self.in_flight += handled - len(errors)
                if handled < count:
                    items[:0] = messages[handled:]
                    full = True
                for message, error in errors:
                    full = full or isinstance(error, UnknownTopic)
                    refused.append((message, error))  # type: ignore[arg-type]
            budget -= cost
        gathered.recount()
        return full, refused

    def _send_batch(self, batch: PendingBatch, stop: int, partitions: tuple[int, ...]) -> bool:
        """Send the records of a batch before ``stop`` that were not sent yet. Return whether the client has had all of it."""
        before = batch.sent
        all_sent = self._client.send_bulk(
            self._topic, batch, self._choose(batch.wanted[before:stop], partitions)
        )
        if before == 0 and batch.sent:
            self.in_flight += 1
        return all_sent

    def _choose(self, wanted: Sequence[int | None], partitions: tuple[int, ...]) -> list[int]:
        """Choose a partition for each record that asks for none; -1 leaves the choice to librdkafka."""
        if self._round_robin is None:
            return [-1 if partition is None else partition for partition in wanted]
        choose = self._round_robin.choose
        return [choose(partitions) if partition is None else partition for partition in wanted]

    def is_busy(self, gathered: Gathered) -> bool:
        """Return whether messages are in flight, apart from batches that were handed over in part: their rest is gathered."""
        return self.in_flight > 0 and self.in_flight > gathered.parts()


def _messages_in(items: Sequence[Pending], budget: int) -> tuple[list[PendingMessage], int]:
    """Return the single messages at the front for which the budget is enough, at least one, and what they cost."""
    messages: list[PendingMessage] = []
    cost = 0
    for pending in items:
        if cost >= budget or not isinstance(pending, PendingMessage):
            break
        messages.append(pending)
        cost += -(-len(pending.headers or ()) // _HEADERS)
    return messages, cost
