"""Kafka clients that keep what a topic's producer hands to them, and the producer on them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError as LibraryError

from actors import ActorRef, ActorSystem, Backoff, Future, Supervision
from pixy.config import Producer
from pixy.config.model import Journal as JournalConf
from pixy.engine.journal.buffer import Journal
from pixy.engine.produce.messages import DeliveryReports, Produce, ProduceMany
from pixy.engine.produce.topic_producer import TopicProducer
from pixy.errors import KafkaError

OUT_OF_BROKERS = KafkaError("out of brokers", -195, "_TRANSPORT", retriable=True)


class Client:
    """Takes at most ``room`` messages in all."""

    def __init__(self, room: int = 10**9) -> None:
        self.batches: list[list[Any]] = []
        self.partitions: list[int] = []
        self.room = room
        self.gated: list[tuple[str, tuple[int, ...]]] = []
        self.full = False
        """Whether it had to refuse messages."""

    @property
    def sent(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> tuple[int, list[Any]]:
        taken = batch[: self.room]
        self.full |= len(taken) < len(batch)
        self.room -= len(taken)
        if taken:
            self.batches.append(taken)
            self.partitions += partitions[: len(taken)]
        return len(taken), []

    def of(self, _topic: str) -> Any:
        """Be the only client."""
        return self

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        if not bulk.sent:
            bulk.begin(0, self.bulk_landed, self.send_again)
        taken = list(bulk.records[bulk.sent :])[: min(self.room, len(partitions))]
        self.room -= len(taken)
        bulk.sent += len(taken)
        if taken:
            self.batches.append(taken)
            self.partitions += partitions[: len(taken)]
        return bulk.sent == len(bulk.records)

    def bulk_landed(self, bulk: Any) -> None:
        """Do nothing: the tests deliver the reports of a bulk themselves."""

    def send_again(self, item: Any, error: Any, message: Any, landed: Any, order: int) -> bool:
        """Send nothing again: what lands here has an offset."""
        return False

    def gate(self, topic: str, partitions: tuple[int, ...]) -> None:
        self.gated.append((topic, partitions))

    def ungate(self, topic: str) -> None:
        self.gated = [each for each in self.gated if each[0] != topic]

    def land(self, ref: ActorRef[Any], items: list[Any]) -> None:
        reports = tuple((item, None, 0, at) for at, item in enumerate(items))
        ref.tell(DeliveryReports(items[0].life, reports), urgent=True)


@dataclass
class Rec:
    value: bytes | None = b"v"
    key: bytes | None = None
    partition: int | None = None
    headers: Any = None
    timestamp: int | None = None


class Landed:
    """A delivery report's message."""

    def __init__(self, partition: int, offset: int) -> None:
        self.partition, self.offset = (lambda: partition), (lambda: offset)
        self.timestamp = lambda: (1, 1_700_000_000_000 + offset)


class BulkClient(Client):
    """Reports batches as librdkafka's thread does."""

    def __init__(self, room: int = 10**9) -> None:
        super().__init__(room)
        self.bulks: list[Any] = []
        self.complete: list[Any] = []

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        if bulk not in self.bulks:
            self.bulks.append(bulk)
        return super().send_bulk(topic, bulk, partitions)

    def bulk_landed(self, bulk: Any) -> None:
        self.complete.append(bulk)

    def give_up(self, bulk: Any) -> None:
        for at in range(bulk.sent, len(bulk.records)):
            bulk.refuse(at, LibraryError(LibraryError._PURGE_QUEUE))
        bulk.sent = len(bulk.records)

    def deliver(self, ref: ActorRef[Any]) -> None:
        complete, self.complete = self.complete, []
        reports = tuple((bulk, None, -1, -1) for bulk in complete)
        ref.tell(DeliveryReports(complete[0].life, reports), urgent=True)


def start(
    system: ActorSystem,
    client: Client,
    partitions: tuple[int, ...] | None = (0, 1),
    journal: Journal | None = None,
    writable: Any = None,
    **conf: Any,
) -> ActorRef[Any]:
    async def known(_topic: str) -> tuple[int, ...] | None:
        # What a test asks at once is there before the answer, also if a slow machine cuts the actor's turn after each message.
        for _ in range(20):
            await asyncio.sleep(0)
        return partitions

    return system.spawn(
        TopicProducer,
        "t",
        Producer(**conf),
        client,
        writable or known,
        legacy=False,
        journal=journal,
        supervision=Supervision(backoff=Backoff(first=0.001)),
    )


async def until(check: Any) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0)


def ask(ref: ActorRef[Any], count: int, size: int = 1) -> list[Future[Any]]:
    return [ref.ask(Produce(None, b"x" * size), block=False) for _ in range(count)]


def crash(ref: ActorRef[Any]) -> None:
    """Make the producer fail and restart, with records that are none and for which nobody waits."""
    ref.tell(ProduceMany([b"not a record"]))  # type: ignore[list-item]


def start_journalled(system: ActorSystem, client: Client, **conf: Any) -> tuple[ActorRef[Any], Journal]:
    journal = Journal(JournalConf(topic="journal"), system.loop.time)
    return start(system, client, journal=journal, **conf), journal


def events(journal: Journal) -> list[tuple[int, int, int, int, int]]:
    """Take the events: kind, partition, offset, Kafka's error code, flags."""
    taken = [event for batch, _ in journal.take(partly=True) for event in batch]
    assert all(event[2].topic == "t" and event[6] >= 0 for event in taken)
    return [(event[0], event[2].partition, event[3], event[7], event[8]) for event in taken]


class Found:
    """A cluster that has one producer after the other."""

    def __init__(self, *producers: Any) -> None:
        self.producers = list(producers)

    def ask(self, _message: Any, *, block: bool) -> Future[Any]:
        reply: Future[Any] = Future()
        reply.try_set(self.producers.pop(0))
        return reply
