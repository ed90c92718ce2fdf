"""Any course of events: each message is settled once, and what is written keeps the order in which it came."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError, KafkaException

from actors import ActorSystem
from actors.testing import simulate
from pixy.engine.journal.buffer import Kind
from pixy.engine.produce.messages import DeliveryReports, Produce, ProduceMany
from pixy.errors import KafkaError
from pixy.kafka.errors import unknown_topic
from tests.unit.engine.produce.scripted_client import (
    OUT_OF_BROKERS,
    Client,
    Landed,
    Rec,
    events,
    start_journalled,
)

GONE = LibraryError(LibraryError._UNKNOWN_TOPIC)


class Forgetting(Client):
    """Writes to one partition what it is told to write. While it takes the topic for gone, it refuses messages, and so it does
    with those that are on their way at the beginning of that.

    Attributes:
        written: the values, in the order of the log.
        gone: whether it takes the topic for gone; the answer that the topic exists ends that.
        answer: to look-ups.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(room=4)
        self.rng = rng
        self.written: list[int] = []
        self.flying: list[tuple[Any, int]] = []
        self.gone = False
        self.answer: Any = (0,)
        self.ref: Any = None

    async def find(self, _topic: str) -> tuple[int, ...] | None:
        await asyncio.sleep(0.01)
        if isinstance(self.answer, KafkaError):
            raise self.answer
        self.gone = self.gone and self.answer is None
        found: tuple[int, ...] | None = self.answer
        return found

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> tuple[int, list[Any]]:
        for at, item in enumerate(batch):
            if self.gone:
                return at + 1, [(item, unknown_topic())]
            if len(self.flying) >= self.room:
                return at, []
            self.flying.append((item, -1))
        return len(batch), []

    def of(self, _topic: str) -> Any:
        return self

    def send_bulk(self, topic: str, bulk: Any, partitions: list[int]) -> bool:
        if not bulk.sent:
            bulk.begin(0, self.bulk_landed, self.send_again)
        for at in range(bulk.sent, bulk.sent + len(partitions)):
            if self.gone:
                bulk.refuse(at, KafkaException(GONE))
            elif len(self.flying) >= self.room:
                break
            else:
                self.flying.append((bulk, at))
            bulk.sent = at + 1
        if bulk.complete():
            self.bulk_landed(bulk)
        return bool(bulk.sent == len(bulk.records))

    def give_up(self, bulk: Any) -> None:
        for at in range(bulk.sent, len(bulk.records)):
            bulk.refuse(at, LibraryError(LibraryError._PURGE_QUEUE))
        bulk.sent = len(bulk.records)
        if bulk.complete():
            self.bulk_landed(bulk)

    def bulk_landed(self, bulk: Any) -> None:
        asyncio.get_running_loop().call_soon(self._tell, bulk, None)

    def _tell(self, item: Any, error: Any) -> None:
        if not getattr(item, "done", False):
            if hasattr(item, "done"):
                item.done = True
            self.ref.tell(DeliveryReports(item.life, ((item, error, 0, 0),)), urgent=True)

    def write(self, count: int) -> None:
        landing, self.flying = self.flying[:count], self.flying[count:]
        for item, at in landing:
            if at < 0:
                self.written.append(int(item.value))
                self._tell(item, None)
            else:
                self.written.append(int(item.records[at].value))
                item.landed(at, None, Landed(0, 0))

    def forget(self) -> None:
        self.gone = True
        refused, self.flying = self.flying, []
        self.rng.shuffle(refused)
        for item, at in refused:
            if at < 0:
                self._tell(item, GONE)
            else:
                item.landed(at, GONE, None)


@pytest.mark.parametrize("seed", range(40))
def test_messages_are_settled_once_and_written_in_their_order_whatever_happens_to_their_topic(
    seed: int,
) -> None:
    rng = random.Random(seed)
    steady = seed % 2 == 0  # the topic exists, all the time

    async def play(system: ActorSystem) -> None:
        client, count, replies, singles = Forgetting(rng), 0, list[Any](), set[int]()
        client.ref, journal = start_journalled(system, client, writable=client.find, flush_frequency=0.05)
        ref = client.ref
        for _ in range(80):
            what = rng.random()
            if not ref.is_alive():  # its topic was missing, and nothing waited
                break
            if what < 0.35:
                count += 1
                singles.add(count)
                message = Produce(None, b"%d" % count)
                if rng.random() < 0.5:
                    ref.tell(message)
                else:
                    replies.append(ref.ask(message, block=False))
            elif what < 0.5:
                records = [Rec(b"%d" % (count + at)) for at in range(1, rng.randint(2, 5))]
                count += len(records)
                replies.append(ref.ask(ProduceMany(records), block=False))
            elif what < 0.7:
                client.write(rng.randint(1, 4))
            elif what < 0.78:
                client.forget()
            elif what < 0.85 and not steady:
                client.answer = rng.choice([None, (0,), OUT_OF_BROKERS])
            else:
                await asyncio.sleep(rng.choice([0, 0.001, 0.03, 0.3, 2]))
        client.room, client.answer = 10**9, (0,)
        for _ in range(40):
            await asyncio.sleep(0.5)
            client.write(10**9)
        assert client.written == sorted(set(client.written))
        assert all(reply.done() for reply in replies)
        settled = events(journal)
        assert len(settled) == count
        assert sum(event[0] == Kind.PRODUCED for event in settled) == len(client.written)
        if steady:
            assert singles <= set(client.written)

    simulate(play, seed=seed)
