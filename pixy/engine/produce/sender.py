"""Hands the gathered messages of a topic to the Kafka client."""

from __future__ import annotations

from collections.abc import Sequence

from pixy.engine.produce.gathered import Gathered, Pending
from pixy.engine.produce.partitioner import RoundRobinPartitioner
from pixy.engine.produce.pending_records import BUDGET, PendingBatch, PendingMessage
from pixy.errors import PixyError, UnknownTopic
from pixy.kafka.producer import ProducerClient

_HEADERS = 10  # of single messages; so many take as much of the budget as a record

Refusal = tuple[PendingMessage, PixyError]
"""A single message that the client has refused, and why."""


class Sender:
    """Hands messages over in their order, within a budget for each turn of the loop.

    Args:
        topic: what it writes to.
        client: of the cluster.
        round_robin: choose the partitions here, and not in librdkafka.

    Attributes:
        in_flight: messages and batches that were handed over, also in part, and have no delivery report; whoever gets the
            reports counts them off.
    """

    __slots__ = ("_client", "_round_robin", "_topic", "in_flight")

    def __init__(self, topic: str, client: ProducerClient, *, round_robin: bool) -> None:
        self._topic = topic
        self._client = client
        self._round_robin = RoundRobinPartitioner() if round_robin else None
        self.in_flight = 0

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
        while items and budget > 0 and not full:
            first = items[0]
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
