"""The journal's buffer and its writer, with a client that keeps or refuses batches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from actors import ActorSystem, Backoff
from actors.testing import Crash, Sim, simulate
from pixy.config import Proxy
from pixy.config.model import Journal as Conf
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.journal.buffer import Journal, Kind, Stream
from pixy.engine.journal.writer import SUPERVISION, DrainJournal, JournalWriter
from pixy.journal import AUTO, JournalBatch, decode, encode_columns
from tests.effort import seeds
from tests.unit.actors.virtual_time import virtual_system, virtual_time
from tests.unit.engine.consume.group_model import MESSAGES, PARTITIONS, Scenario

STREAM = Stream("t", 0, "g", 1)


class Client:
    """Keeps batches; ``land`` delivers their reports."""

    def __init__(self, deliver: Any) -> None:
        self.deliver = deliver
        self.sent: list[Any] = []
        self.room = 10**9
        self.closed = False
        self.at_once: Any = False
        """True: confirm at once; an error: refuse later with it."""

    def send(self, topic: str, batch: list[Any], partitions: list[int]) -> Any:
        if self.room <= 0:
            return 0, []
        self.room -= 1
        self.sent += batch
        if self.at_once is not False:
            self.land(batch, None if self.at_once is True else self.at_once)
        return 1, []

    def land(self, batch: list[Any], error: Any = None) -> None:
        asyncio.get_running_loop().call_soon(self.deliver, [(item, error, 0, 0) for item in batch])

    async def close(self, timeout: float) -> int:
        self.closed = True
        return 0

    @property
    def batches(self) -> list[JournalBatch]:
        return [decode(item.value) for item in self.sent]


class Bench:
    """A journal with its writer."""

    def __init__(self, system: ActorSystem, **conf: Any) -> None:
        self.conf = Conf(**{"topic": "journal", "batch_events": 10, "linger": 0.02, **conf})
        self.journal = Journal(self.conf, system.loop.time)
        self.clients: list[Client] = []
        self.ref = system.spawn(
            JournalWriter,
            self.journal,
            self.conf,
            "c1",
            self._client,
            supervision=replace(SUPERVISION, backoff=Backoff(first=0.01)),
        )

    def _client(self, deliver: Any, fatal: Any) -> Client:
        self.fatal = fatal
        self.clients.append(Client(deliver))
        self.clients[-1].at_once = True
        return self.clients[-1]

    def add(self, count: int, first: int = 0) -> None:
        for at in range(first, first + count):
            self.journal.add(Kind.ACKED, self.journal.clock(), STREAM, at)


def offsets(batches: list[JournalBatch]) -> list[int]:
    return [event["offset"] for batch in batches for event in batch.events()]


async def until(check: Any) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.001)


@virtual_time
async def test_full_batches_are_written_at_once_and_the_rest_after_linger() -> None:
    async with virtual_system() as system:
        bench = Bench(system, linger=0.2)
        await bench.ref
        client = bench.clients[0]
        assert [len(batch.events()) for batch in client.batches] == [0], "an empty batch begins the epoch"
        bench.add(25)
        for _ in range(20):
            await asyncio.sleep(0)
        assert [batch.count for batch in client.batches] == [0, 10, 10]
        await until(lambda: len(client.sent) == 4)
        assert offsets(client.batches) == list(range(25))
        assert [batch.sequence for batch in client.batches] == [0, 1, 2, 3]
        await until(lambda: bench.journal.held == 0)


async def test_each_full_batch_is_written_at_once() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, linger=3600.0)
        await bench.ref
        for at in range(5):
            bench.add(10, first=10 * at)
            await until(lambda at=at: len(bench.clients[0].sent) == 2 + at)


def many(journal: Journal, count: int, first: int = 0) -> None:
    now = journal.clock()
    journal.put_many(
        [(int(Kind.PRODUCED), now, STREAM, at, 0, -1, 0.0, 0, 0, "") for at in range(first, first + count)]
    )


async def test_put_many_writes_the_same_batches_as_add() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, linger=3600.0)
        await bench.ref
        client = bench.clients[0]
        many(bench.journal, 7)
        bench.add(2, first=7)
        many(bench.journal, 0)
        assert [batch.count for batch in client.batches] == [0]
        many(bench.journal, 26, first=9)  # past three batches' ends at once
        await until(lambda: len(client.sent) == 4)
        many(bench.journal, 4, first=35)
        bench.add(1, first=39)
        await until(lambda: len(client.sent) == 5)
        assert [batch.count for batch in client.batches] == [0, 10, 10, 10, 10]
        assert offsets(client.batches) == list(range(40))
        await until(lambda: bench.journal.held == 0)


async def test_of_events_that_come_together_those_that_fit_are_kept() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, buffer_events=30)
        await bench.ref
        client = bench.clients[0]
        client.at_once = False
        many(bench.journal, 25)
        many(bench.journal, 12, first=25)
        assert bench.journal.held == 30
        await until(lambda: len(client.sent) == 4)
        client.at_once = True
        client.land(client.sent[:])
        await until(lambda: bench.journal.held == 0)
        await until(lambda: sum(batch.lost.events for batch in client.batches) == 7)
        assert offsets(client.batches) == list(range(30))


async def test_what_does_not_fit_is_dropped_and_its_number_is_written() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, buffer_events=30)
        await bench.ref
        client = bench.clients[0]
        client.at_once = False
        bench.add(45)
        await until(lambda: sum(batch.count for batch in client.batches) == 30)
        assert bench.journal.held == 30, "what is on its way still counts"
        bench.add(5)
        client.land(client.sent)
        await until(lambda: bench.journal.held == 0)
        await until(lambda: sum(batch.lost.events for batch in client.batches) == 20)
        lost = next(batch.lost for batch in reversed(client.batches) if batch.lost.events)
        assert 0 < lost.first <= lost.last
        bench.add(1, first=100)
        await until(lambda: offsets(client.batches)[-1] == 100)


@virtual_time
async def test_the_next_batch_that_kafka_takes_counts_the_refused_ones(caplog: Any) -> None:
    async with ActorSystem() as system:
        bench = Bench(system)
        await bench.ref
        client = bench.clients[0]
        client.at_once = LibraryError(LibraryError.UNKNOWN_TOPIC_OR_PART)
        bench.add(7)
        await until(lambda: len(client.sent) > 3)
        assert caplog.text.count("events are lost, writing to journal fails") == 1
        assert bench.journal.held == 0
        client.at_once = True
        done = len(client.sent)
        bench.add(2, first=50)
        await until(lambda: offsets(client.batches[done:]) == [50, 51])
        assert sum(batch.lost.events for batch in client.batches[done:]) == 7
        assert bench.journal.failed.events == 0


@virtual_time
async def test_what_the_client_has_no_room_for_waits_in_the_buffer() -> None:
    """As while the client is being replaced, because a topic was made again."""
    async with ActorSystem() as system:
        bench = Bench(system, buffer_events=30)
        await bench.ref
        client = bench.clients[0]
        client.room = 1
        bench.add(45)
        await until(lambda: client.room == 0)
        await asyncio.sleep(1.0)  # fifty attempts
        assert (len(client.sent), bench.journal.held) == (2, 20)
        bench.add(3, first=45)
        client.room = 10**9
        await until(lambda: bench.journal.held == 0)
        assert offsets(client.batches) == [*range(30), 45, 46, 47]
        assert [batch.sequence for batch in client.batches] == list(range(len(client.batches)))
        assert sum(batch.lost.events for batch in client.batches) == 15, "only those that did not fit"


@virtual_time
async def test_a_batch_that_is_split_and_taken_by_half_waits_with_the_other_half() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, linger=0.5, batch_events=400)
        await bench.ref
        client = bench.clients[0]
        client.room = 0
        for at in range(400):
            stream = Stream(f"{at:04}" * 1000, 0, "g", 1)
            bench.journal.add(Kind.ACKED, bench.journal.clock(), stream, at)
        await asyncio.sleep(1.0)
        assert not offsets(client.batches)
        client.room = 1
        await until(lambda: client.room == 0)
        assert 0 < len(offsets(client.batches)) < 400
        client.room = 10**9
        await until(lambda: bench.journal.held == 0)
        assert offsets(client.batches) == list(range(400))


@virtual_time
async def test_a_drain_waits_for_a_client_that_is_full() -> None:
    async with ActorSystem() as system:
        bench = Bench(system)
        await bench.ref
        client = bench.clients[0]
        client.room = 0
        bench.add(13)
        reply = bench.ref.ask(DrainJournal(), block=False)
        await asyncio.sleep(1.0)
        assert len(client.sent) == 1
        client.room = 2
        await until(lambda: client.room == 0)
        await asyncio.sleep(1.0)
        client.room = 1
        await reply
        assert offsets(client.batches) == list(range(13))
        assert [batch.final for batch in client.batches] == [False, False, False, True]


def test_an_idle_writer_sends_heartbeats() -> None:
    async def scenario(sim: Sim) -> None:
        bench = Bench(sim.system)
        await bench.ref
        await asyncio.sleep(35)
        batches = bench.clients[0].batches
        assert [(batch.sequence, batch.count) for batch in batches] == [(at, 0) for at in range(4)]
        assert all(batch.heartbeat == 10_000_000 for batch in batches)

    simulate(scenario)


async def test_a_drain_writes_all_events_and_a_final_batch() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, linger=3600.0)
        await bench.ref
        bench.add(13)
        await bench.ref.ask(DrainJournal(), block=False)
        batches = bench.clients[0].batches
        assert offsets(batches) == list(range(13))
        assert [batch.final for batch in batches] == [False, False, False, True]


async def test_a_drain_ends_when_kafka_does_not_answer() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, shutdown_timeout=0.05)
        await bench.ref
        bench.clients[0].at_once = False
        bench.add(3)
        async with asyncio.timeout(30):
            await bench.ref.ask(DrainJournal(), block=False)


@virtual_time
async def test_a_restarted_writer_begins_a_new_epoch_and_counts_batches_in_flight_as_lost() -> None:
    async with ActorSystem() as system:
        bench = Bench(system)
        await bench.ref
        first = bench.clients[0]
        first.at_once = False
        bench.add(10)
        await until(lambda: len(first.sent) == 2)
        bench.fatal(RuntimeError("fenced"))
        await until(lambda: len(bench.clients) == 2)
        assert first.closed
        bench.add(4, first=90)
        second = bench.clients[1]
        await until(lambda: offsets(second.batches) == [90, 91, 92, 93])
        assert second.batches[0].epoch > first.batches[0].epoch
        assert sum(batch.lost.events for batch in second.batches) == 10
        first.land(first.sent)  # too late: counted as lost already
        await asyncio.sleep(0.05)
        assert bench.journal.held == 0


async def test_an_event_that_cannot_be_encoded_fails_the_writer_and_is_counted_as_lost() -> None:
    async with ActorSystem() as system:
        bench = Bench(system)
        await bench.ref
        bench.journal.add(Kind.ACKED, bench.journal.clock(), STREAM, 2**70)  # no msgpack integer
        await until(lambda: len(bench.clients) == 2)
        assert bench.journal.held == 0
        await until(lambda: sum(batch.lost.events for batch in bench.clients[1].batches) == 1)


async def test_the_batches_behind_one_that_cannot_be_encoded_are_written_by_the_next_life() -> None:
    async with ActorSystem() as system:
        bench = Bench(system, linger=3600.0)
        await bench.ref
        bench.journal.put_many(
            [
                (int(Kind.ACKED), 0.0, STREAM, 2**70 if at == 3 else at, 0, -1, 0.0, 0, 0, "")
                for at in range(30)
            ]
        )
        await until(lambda: len(bench.clients) == 2)
        bench.add(10, first=30)
        await until(lambda: bench.journal.held == 0)
        assert offsets(bench.clients[1].batches) == list(range(10, 40))
        assert sum(batch.lost.events for batch in bench.clients[1].batches) == 10


class Journalled(Scenario):
    """The group's scenario with a journal that loses nothing."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        loop = sim.system.loop
        self.given_back = 0
        self.journal = Journal(
            Conf(topic="journal", buffer_events=10**7), loop.time, lambda: 1.8e9 + loop.time()
        )

    def start(self) -> Any:
        return self.sim.system.spawn(
            GroupConsumer,
            "g",
            self.proxy,
            self.sim.probe().ref,
            self._session,
            self._partitions,
            self.journal,
            name="g",
            supervision=SUPERVISION,
        )

    async def consume(self, group: Any, impatient: bool) -> Any:
        """Consume, and sometimes give the message back, like a client that is gone."""
        delivery = await super().consume(group, impatient)
        if delivery is None or self.rng.random() > 0.1:
            return delivery
        delivery.give_back()
        self.given_back += 1
        return None

    def told(self) -> list[Any]:
        return [event for batch, _ in self.journal.take(partly=True) for event in batch]


@pytest.mark.slow
def test_the_journal_agrees_with_the_clients() -> None:
    for seed in seeds(6):
        crash = Crash(path="/g/t.*", probability=0.002)

        async def scenario(sim: Sim) -> None:
            made = Journalled(sim)
            await made.run(impatient=True)
            events = made.told()
            kinds = [event[0] for event in events]
            places = {(event[2].partition, event[3]) for event in events if event[0] == Kind.ACKED}
            assert places >= made.acked
            offered = kinds.count(Kind.OFFERED) - kinds.count(Kind.RETURNED)
            seen = sum(made.offered.values())
            # The journal has no event for a message given back to an earlier life of the owner.
            assert seen <= offered <= seen + made.given_back - kinds.count(Kind.RETURNED)
            assert {(p, o) for p in range(PARTITIONS) for o in range(MESSAGES)} == {
                (event[2].partition, event[3]) for event in events if event[0] == Kind.OFFERED
            }
            retried = [event for event in events if event[0] == Kind.OFFERED and event[4] > 0]
            assert retried, "some clients forget to acknowledge"
            assert all(event[6] >= 0 for event in events if event[0] == Kind.ACKED and event[5] >= 0)
            lives = {event[2].generation for event in events if event[0] == Kind.ASSIGNED}
            assert {event[2].generation for event in events} <= lives

        simulate(scenario, seed=seed, faults=(crash,), may_escalate=True)


def test_messages_given_back_have_returned_events() -> None:
    async def scenario(sim: Sim) -> None:
        made = Journalled(sim)
        await made.run(forget=0.0, rebalances=False)
        kinds = [event[0] for event in made.told()]
        assert kinds.count(Kind.RETURNED) == made.given_back > 5
        assert kinds.count(Kind.OFFERED) - made.given_back == sum(made.offered.values())

    for seed in seeds(6):
        simulate(scenario, seed=seed)


def test_each_assignment_has_a_revoked_event() -> None:
    async def scenario(sim: Sim) -> None:
        made = Journalled(sim)
        await made.run(forget=0.0)
        await asyncio.sleep(1)  # the last owners stop behind the group's answer
        events = made.told()
        begun = [event[2] for event in events if event[0] == Kind.ASSIGNED]
        ended = {event[2]: event[3] for event in events if event[0] == Kind.REVOKED}
        assert set(begun) == set(ended) and len(begun) == len(ended) >= PARTITIONS
        assert [ended[stream] for stream in begun][-PARTITIONS:] == [MESSAGES] * PARTITIONS

    for seed in seeds(4):
        simulate(scenario, seed=seed)


async def test_the_journal_is_disabled_by_default() -> None:
    assert Proxy().journal.topic == ""
    assert AUTO == 2, "documented"


@pytest.mark.parametrize("callers", [True, False])
async def test_callers_are_written_unless_they_shall_not_be(callers: bool) -> None:
    journal = Journal(Conf(topic="journal", callers=callers), lambda: 0.0)
    journal.add(int(Kind.OFFERED), 0.0, STREAM, 7, caller="key:shop")
    journal.add(int(Kind.ASSIGNED), 0.0, STREAM, 0)
    [(events, _)] = journal.take(partly=True)
    value = encode_columns("c1", 0, 0, journal.columns(events))
    assert decode(value).callers_of() == (["key:shop", ""] if callers else ["", ""])
    assert (b"key:shop" in value) is callers
