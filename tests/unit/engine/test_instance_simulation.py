"""A consumer instance in simulated time, against a model of Kafka: what it promises to its reader.

Each test is named after the promise; several are defects of other servers that must not be here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from actors import ActorDeadError, Backoff, Intensity, Supervision
from actors.testing import Crash, Sim, simulate
from pixy.config.model import Proxy
from pixy.engine.instance import CloseInstance, Instance
from pixy.engine.instance_messages import (
    AssignPartitions,
    Batch,
    CommitOffsets,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetSubscription,
    InstanceSpec,
    InstanceState,
    ReadRecords,
    SeekTo,
    SubscribeTo,
    Unsubscribe,
)
from pixy.engine.instance_parts import END, Memory
from pixy.errors import (
    FormatMismatch,
    IllegalState,
    KafkaError,
    OtherSubscription,
    TooManyRequests,
    UnknownInstance,
    UnknownTopic,
)
from pixy.kafka.consumer import Commit, Committed, Partition
from pixy.kafka.errors import unknown_topic
from pixy.membership.instance import Done, Gone, InstanceEvent, Joined, Leaving, Ready

TOPIC = "t"
READ = ReadRecords(max_bytes=1000, most=100)


class Record:
    def __init__(self, partition: int, offset: int, size: int = 10) -> None:
        self._partition, self._offset, self._size = partition, offset, size

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def __len__(self) -> int:
        return self._size

    @property
    def at(self) -> tuple[int, int]:
        return self._partition, self._offset


class Kafka:
    """A topic's log and a group's offsets: they outlive sessions."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.ends = [0] * partitions
        self.sizes: dict[tuple[int, int], int] = {}
        self.committed: dict[Partition, int] = {}
        self.history: list[tuple[Commit, ...]] = []
        self.join_takes = 0.05
        self.commit_takes = 0.01
        self.commit_fails: list[KafkaError] = []
        self.sessions: list[Session] = []

    def produce(self, partition: int, count: int = 1, size: int = 10) -> None:
        for _ in range(count):
            self.sizes[partition, self.ends[partition]] = size
            self.ends[partition] += 1
        for session in self.sessions:
            session.look()

    def commit(self, commits: Iterable[Commit]) -> None:
        batch = tuple(commits)
        if batch:
            self.history.append(batch)
        for each in batch:
            self.committed[each.topic, each.partition] = each.offset


class Session:
    """See InstanceSession."""

    def __init__(
        self, kafka: Kafka, rng: random.Random, resume: Mapping[Partition, int], post: Callable[[InstanceEvent], None]
    ) -> None:
        self.kafka, self.rng, self.post = kafka, rng, post
        self.resume = dict(resume)
        self.next: dict[Partition, int] = {}
        self.wanted, self.waits = (0, 0), True
        self.closed = False
        self.released = asyncio.Event()
        self.releasing: tuple[Partition, ...] = ()
        self._last = 0.0
        kafka.sessions.append(self)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        # In order, as on the one thread of a real session.
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + seconds)

        def run() -> None:
            if not self.closed:
                act()

        loop.call_at(self._last, run)

    def subscribe(self, token: int, topics: tuple[str, ...]) -> None:
        self._later(0.001, lambda: self.post(Done(token, None, None)))
        if not self.next:
            self._later(self.kafka.join_takes, lambda: self.join(range(self.kafka.partitions)))

    def join(self, numbers: Iterable[int]) -> None:
        starts = {}
        for number in numbers:
            partition = (TOPIC, number)
            starts[partition] = self.resume.pop(partition, self.kafka.committed.get(partition, 0))
        self.next.update(starts)
        self.post(Joined(starts))
        self.look()

    def assign(self, token: int, partitions: tuple[Partition, ...], keep: Mapping[Partition, int]) -> None:
        def act() -> None:
            self.next = {each: keep.get(each, self.kafka.committed.get(each, 0)) for each in partitions}
            self.post(Done(token, dict(self.next), None))
            self.look()

        self._later(0.005, act)

    def seek(self, token: int, offsets: Mapping[Partition, int]) -> None:
        def act() -> None:
            self.next.update(offsets)
            self.post(Done(token, None, None))
            self.look()

        self._later(0.005, act)

    def committed(self, token: int, partitions: tuple[Partition, ...]) -> None:
        found = {each: Committed(self.kafka.committed.get(each), "") for each in partitions}
        self._later(0.005, lambda: self.post(Done(token, found, None)))

    def commit(self, token: int, commits: tuple[Commit, ...]) -> None:
        def act() -> None:
            error = self.kafka.commit_fails.pop(0) if self.kafka.commit_fails else None
            if error is None:
                self.kafka.commit(commits)
            self.post(Done(token, None, error))

        self._later(self.kafka.commit_takes, act)

    def want(self, most: int, max_bytes: int, *, wait: bool = True) -> None:
        self.wanted = (most, max_bytes)
        self.waits = wait
        self.look()

    def look(self) -> None:
        if self.wanted[0] and not self.closed:
            asyncio.get_running_loop().call_later(self.rng.random() * 0.003, self._fetch)

    def _fetch(self) -> None:
        most, max_bytes = self.wanted
        found: list[Record] = []
        size = 0
        for partition, at in list(self.next.items()):
            while most and at < self.kafka.ends[partition[1]] and len(found) < most + 2 and size < max_bytes + 20:
                found.append(Record(partition[1], at, self.kafka.sizes[partition[1], at]))
                size += len(found[-1])
                at += 1
            self.next[partition] = at
        if (found or (most and not self.waits)) and not self.closed:
            self.wanted = (0, 0)
            self.post(Ready(found, size))

    def release(self, commits: Iterable[Commit]) -> None:
        self.kafka.commit(commits)
        for partition in self.releasing:
            self.next.pop(partition, None)
        self.released.set()

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        if not self.closed:
            await asyncio.sleep(0.02)
            self.kafka.commit(commits)
        self.closed = True

    async def rebalance(self, numbers: Iterable[int]) -> None:
        self.releasing = tuple((TOPIC, number) for number in numbers if (TOPIC, number) in self.next)
        if not self.releasing:
            return
        self.released.clear()
        self.post(Leaving(self.releasing))
        await asyncio.wait_for(self.released.wait(), 10)
        await asyncio.sleep(self.rng.random())
        self.join(sorted(number for _, number in self.releasing))


class Catalogue:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    async def check(self, topic: str) -> None:
        await asyncio.sleep(0.01)
        if topic != TOPIC:
            raise unknown_topic()

    async def find(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        await asyncio.sleep(0.01)
        return {each: self._kafka.ends[each[1]] if at == END else 0 for each, at in times.items()}


class Case:
    """One instance on one Kafka."""

    def __init__(self, sim: Sim, *, partitions: int = 2, **spec: Any) -> None:
        self.sim = sim
        self.kafka = Kafka(partitions)
        self.proxy = Proxy()
        self.conf = self.proxy.instances
        self.spec = InstanceSpec(**{"reset": "earliest", **spec})
        self.registry = sim.probe()
        self.ref: Any = None

    def start(self) -> Case:
        rng = random.Random(self.sim.rng.random())
        self.ref = self.sim.system.spawn(
            Instance, "g", "i", self.spec, self.proxy, self.registry.ref,
            lambda resume, post: Session(self.kafka, rng, resume, post), Catalogue(self.kafka), Memory(),
            name="i", supervision=Supervision(backoff=Backoff(first=0.01), intensity=Intensity(1000, 3600)),
        )
        return self

    def ask(self, message: Any) -> Any:
        return self.ref.ask(message, block=False)

    async def subscribe(self) -> None:
        await self.ask(SubscribeTo((TOPIC,)))

    async def read(self, request: ReadRecords = READ, sent: bool = True) -> list[tuple[int, int]]:
        batch: Batch = await self.ask(request)
        (batch.sent if sent else batch.give_back)()
        return [record.at for record in batch.records]  # type: ignore[attr-defined]


def now() -> float:
    return asyncio.get_running_loop().time()


SCENARIOS: list[Any] = []


def scenario(function: Any) -> Any:
    """Run an async function over seeds and schedules."""

    @pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
    def test(mode: str) -> None:
        for seed in range(4):
            simulate(function, seed=seed, mode=mode)

    test.__doc__, test.__name__ = function.__doc__, function.__name__
    return test


# -- reads ----------------------------------------------------------------------------------------


@scenario
async def test_a_read_returns_as_soon_as_there_is_a_record(sim: Sim) -> None:
    case = Case(sim, wait=60.0).start()
    await case.subscribe()
    read = asyncio.ensure_future(case.read())
    await asyncio.sleep(5)
    case.kafka.produce(0)
    begun = now()
    assert await read == [(0, 0)]
    assert now() - begun < 0.05


@scenario
async def test_nothing_is_answered_only_after_the_wait(sim: Sim) -> None:
    case = Case(sim, wait=3.0).start()
    await case.subscribe()
    assert await case.read() == []
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(3.0, abs=0.05)
    begun = now()
    assert await case.read(ReadRecords(1000, 100, wait=0.5)) == []
    assert now() - begun == pytest.approx(0.5, abs=0.05)


@scenario
async def test_a_read_without_a_wait_gets_what_is_there(sim: Sim) -> None:
    case = Case(sim, wait=0.0).start()
    case.kafka.produce(0, 3)
    await case.subscribe()
    assert len(await case.read()) == 3


@scenario
async def test_the_first_read_waits_for_the_assignment_before_its_clock_starts(sim: Sim) -> None:
    case = Case(sim, wait=1.0).start()
    case.kafka.join_takes = 6.0
    case.kafka.produce(0, 3)
    await case.subscribe()
    assert len(await case.read()) == 3


@scenario
async def test_the_clock_of_the_first_read_starts_with_the_assignment(sim: Sim) -> None:
    case = Case(sim, wait=1.0).start()
    case.kafka.join_takes = 3.0
    await case.subscribe()
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(4.0, abs=0.1)


@scenario
async def test_the_wait_for_the_assignment_is_bounded(sim: Sim) -> None:
    case = Case(sim, wait=1.0).start()
    case.kafka.join_takes = 500.0
    await case.subscribe()
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(case.conf.join_timeout + 1.0, abs=0.1)


@scenario
async def test_a_read_ends_on_time_during_a_rebalance(sim: Sim) -> None:
    """The wait is a timer of the actor, not the Kafka call."""
    case = Case(sim, wait=1.0).start()
    await case.subscribe()
    await case.read()
    session = case.kafka.sessions[0]
    session.post(Gone(((TOPIC, 0), (TOPIC, 1))))
    session.closed = True  # Kafka says nothing any more
    begun = now()
    assert await case.read() == []
    assert now() - begun == pytest.approx(1.0, abs=0.05)
    session.closed = False


@scenario
async def test_one_record_always_fits(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0, 1, size=5000)
    case.kafka.produce(0, 2, size=10)
    await case.subscribe()
    small = ReadRecords(max_bytes=15, most=100)
    assert [await case.read(small) for _ in range(3)] == [[(0, 0)], [(0, 1)], [(0, 2)]]


@scenario
async def test_no_record_is_lost_at_the_end_of_a_read_bounded_by_max_bytes(sim: Sim) -> None:
    case = Case(sim, partitions=3, wait=0.5).start()
    for at in range(300):
        case.kafka.produce(at % 3, 1, size=1 + at * 7 % 60)
    await case.subscribe()
    found: list[tuple[int, int]] = []
    while batch := await case.read(ReadRecords(max_bytes=100, most=100)):
        found += batch
    assert sorted(found) == [(p, o) for p in range(3) for o in range(100)]
    assert all(found.index((p, o)) < found.index((p, o + 1)) for p in range(3) for o in range(99))


@scenario
async def test_records_whose_reader_is_gone_are_the_next_ones_read(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    assert len(await case.read(ReadRecords(30, 100), sent=False)) == 3
    assert await case.ask(CommitPositions()) == [] and case.kafka.committed == {}
    assert await case.read() == [(0, at) for at in range(5)]


@scenario
async def test_a_reader_that_is_gone_before_the_answer_loses_nothing(sim: Sim) -> None:
    case = Case(sim, wait=60.0).start()
    await case.subscribe()
    reply = case.ask(READ)
    reading = asyncio.ensure_future(reply.__await__() and _await(reply))
    await asyncio.sleep(1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    case.kafka.produce(0, 2)
    assert await case.read() == [(0, 0), (0, 1)]


async def _await(reply: Any) -> Any:
    return await reply


@scenario
async def test_concurrent_reads_are_served_one_after_another(sim: Sim) -> None:
    case = Case(sim, wait=5.0, partitions=1).start()
    await case.subscribe()
    reads = [asyncio.ensure_future(case.read(ReadRecords(20, 100))) for _ in range(4)]
    await asyncio.sleep(0.5)
    case.kafka.produce(0, 8)
    assert sorted(record for read in await asyncio.gather(*reads) for record in read) == [(0, at) for at in range(8)]


@scenario
async def test_reads_beyond_the_bound_are_refused_with_its_name(sim: Sim) -> None:
    case = Case(sim, wait=5.0)
    case.conf.max_waiting_requests = 3
    case.start()
    await case.subscribe()
    reads = [case.ask(READ) for _ in range(3)]
    with pytest.raises(TooManyRequests, match=r"instances\.max_waiting_requests"):
        await case.ask(READ)
    for read in reads:
        (await read).sent()


@scenario
async def test_fetch_min_bytes_waits_for_more_but_not_beyond_the_wait(sim: Sim) -> None:
    case = Case(sim, wait=2.0, min_bytes=50).start()
    await case.subscribe()
    await case.read()
    case.kafka.produce(0, 2)
    read = asyncio.ensure_future(case.read())
    await asyncio.sleep(1)
    assert not read.done()
    case.kafka.produce(0, 3)
    assert len(await read) == 5
    case.kafka.produce(1, 1)
    begun = now()
    assert await case.read() == [(1, 0)]
    assert now() - begun == pytest.approx(2.0, abs=0.05)


@scenario
async def test_max_poll_records_bounds_a_read(sim: Sim) -> None:
    case = Case(sim, max_records=4).start()
    case.kafka.produce(0, 9)
    await case.subscribe()
    assert [len(await case.read()) for _ in range(3)] == [4, 4, 1]


@scenario
async def test_another_format_is_refused_and_consumes_nothing(sim: Sim) -> None:
    case = Case(sim, format="json").start()
    case.kafka.produce(0)
    await case.subscribe()
    with pytest.raises(FormatMismatch):
        await case.ask(ReadRecords(1000, 100, format="binary"))
    assert await case.read(ReadRecords(1000, 100, format="json")) == [(0, 0)]


# -- commits, deletes and seeks while a read waits --------------------------------------------------


@scenario
async def test_a_commit_during_a_read_is_answered_at_once(sim: Sim) -> None:
    case = Case(sim, wait=60.0, partitions=1).start()
    case.kafka.produce(0, 3)
    await case.subscribe()
    await case.read()
    read = asyncio.ensure_future(case.read())
    await asyncio.sleep(1)
    begun = now()
    assert await case.ask(CommitPositions()) == [((TOPIC, 0), 2, 2)]
    assert now() - begun < 0.1 and not read.done()
    case.kafka.produce(0)
    assert await read == [(0, 3)]


@scenario
async def test_a_delete_wakes_the_read_with_404(sim: Sim) -> None:
    case = Case(sim, wait=60.0).start()
    await case.subscribe()
    reads = [asyncio.ensure_future(case.read()) for _ in range(3)]
    await asyncio.sleep(1)
    begun = now()
    await case.ask(DeleteInstance())
    assert now() - begun < 0.1
    for read in reads:
        with pytest.raises(UnknownInstance):
            await read
    assert case.kafka.sessions[0].closed
    with pytest.raises((UnknownInstance, ActorDeadError)):
        await case.read()


@scenario
async def test_a_seek_during_a_read_is_answered_at_once_and_the_read_gets_what_is_there(sim: Sim) -> None:
    case = Case(sim, wait=60.0, partitions=1).start()
    case.kafka.produce(0, 4)
    await case.subscribe()
    await case.read()
    read = asyncio.ensure_future(case.read())
    await asyncio.sleep(1)
    begun = now()
    await case.ask(SeekTo({(TOPIC, 0): 2}, {}))
    assert await read == [(0, 2), (0, 3)]
    assert now() - begun < 0.1


@scenario
async def test_a_seek_throws_away_what_was_fetched_before(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 10)
    await case.subscribe()
    await case.read(ReadRecords(10, 1))
    await case.ask(SeekTo({}, {(TOPIC, 0): END}))
    case.kafka.produce(0)
    assert await case.read() == [(0, 10)]
    assert await case.ask(CommitPositions()) == [((TOPIC, 0), 10, 10)]


@scenario
async def test_a_seek_right_after_the_subscription_waits_for_the_assignment(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.join_takes = 3.0
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.ask(SeekTo({(TOPIC, 0): 4}, {}))
    assert await case.read() == [(0, 4)]


@scenario
async def test_a_seek_in_a_partition_that_is_not_assigned_is_an_illegal_state(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    with pytest.raises(IllegalState, match="No current assignment for partition t-0"):
        await case.ask(SeekTo({(TOPIC, 0): 4}, {}))
    await case.subscribe()
    with pytest.raises(IllegalState, match="No current assignment for partition t-7"):
        await case.ask(SeekTo({(TOPIC, 7): 4}, {}))


# -- commits --------------------------------------------------------------------------------------


@scenario
async def test_a_commit_before_any_read_is_an_empty_list(sim: Sim) -> None:
    case = Case(sim).start()
    assert await case.ask(CommitPositions()) == []
    await case.subscribe()
    assert await case.ask(CommitPositions()) == []
    assert case.kafka.history == []


@scenario
async def test_a_bare_commit_does_not_commit_what_was_only_fetched(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 50)
    await case.subscribe()
    assert len(await case.read(ReadRecords(1000, 3))) == 3
    await case.ask(CommitPositions())
    assert case.kafka.committed == {(TOPIC, 0): 3}


@scenario
async def test_automatic_commit_and_close_commit_only_what_was_handed_out(sim: Sim) -> None:
    case = Case(sim, partitions=1, auto_commit=True).start()
    case.kafka.produce(0, 50)
    await case.subscribe()
    await case.read(ReadRecords(1000, 3))
    await asyncio.sleep(case.conf.auto_commit_interval + 0.5)
    assert case.kafka.committed == {(TOPIC, 0): 3}
    await case.read(ReadRecords(1000, 4))
    await case.ask(DeleteInstance())
    assert case.kafka.committed == {(TOPIC, 0): 7}


@scenario
async def test_without_automatic_commit_a_delete_commits_nothing(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.read()
    await case.ask(DeleteInstance())
    assert case.kafka.history == []


@scenario
async def test_a_commit_is_answered_when_kafka_has_answered_and_says_if_it_failed(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.commit_takes = 2.0
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.read()
    case.kafka.commit_fails = [KafkaError("no", 22, "ILLEGAL_GENERATION")]
    begun = now()
    with pytest.raises(KafkaError, match="no"):
        await case.ask(CommitPositions())
    assert now() - begun >= 1.999
    assert await case.ask(CommitPositions()) == [((TOPIC, 0), 4, 4)], "and can be tried again"


@scenario
async def test_a_commit_that_meets_a_rebalance_is_tried_again(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.read()
    case.kafka.commit_fails = [KafkaError("later", 27, "REBALANCE_IN_PROGRESS")] * 3
    assert await case.ask(CommitPositions()) == [((TOPIC, 0), 4, 4)]


@scenario
async def test_an_operation_that_kafka_does_not_answer_ends_in_an_error(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.commit_takes = 100.0
    begun = now()
    with pytest.raises(KafkaError, match="no answer in time to commit"):
        await case.ask(CommitOffsets((Commit(TOPIC, 0, 3, ""),)))
    assert now() - begun == pytest.approx(case.conf.operation_timeout, abs=0.1)


@scenario
async def test_what_a_revoked_partition_handed_out_is_committed_before_it_goes(sim: Sim) -> None:
    case = Case(sim, partitions=2, auto_commit=True).start()
    case.kafka.produce(0, 5)
    case.kafka.produce(1, 5)
    await case.subscribe()
    assert len(await case.read(ReadRecords(1000, 7))) == 7  # and two more wait on the shelf
    await case.kafka.sessions[0].rebalance([1])
    assert case.kafka.committed == {(TOPIC, 1): 2}
    found: list[tuple[int, int]] = []
    while len(found) < 3:
        found += await case.read()
    assert found == [(1, 2), (1, 3), (1, 4)], "each once: what waited on the shelf went with the partition"


# -- what is consumed -----------------------------------------------------------------------------


@scenario
async def test_v1_the_first_read_subscribes_and_another_topic_is_refused(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0)
    assert await case.read(ReadRecords(1000, 100, topic=TOPIC)) == [(0, 0)]
    with pytest.raises(OtherSubscription):
        await case.ask(ReadRecords(1000, 100, topic="u"))
    assert await case.ask(GetSubscription()) == [TOPIC]


@scenario
async def test_v1_an_unknown_topic_is_said_and_leaves_the_instance_free(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0)
    with pytest.raises(UnknownTopic):
        await case.ask(ReadRecords(1000, 100, topic="nope"))
    assert case.kafka.sessions == [], "and no Kafka client was made"
    assert await case.read(ReadRecords(1000, 100, topic=TOPIC)) == [(0, 0)]


@scenario
async def test_subscribing_and_assigning_exclude_each_other(sim: Sim) -> None:
    case = Case(sim).start()
    with pytest.raises(IllegalState, match="not subscribed to any topics or assigned any partitions"):
        await case.ask(READ)
    await case.subscribe()
    with pytest.raises(IllegalState, match="mutually exclusive"):
        await case.ask(AssignPartitions(((TOPIC, 0),)))
    with pytest.raises(IllegalState, match="mutually exclusive"):
        await case.ask(SubscribeTo(pattern="t.*"))
    await case.ask(Unsubscribe())
    await case.ask(AssignPartitions(((TOPIC, 1),)))
    with pytest.raises(IllegalState, match="mutually exclusive"):
        await case.subscribe()
    assert await case.ask(GetAssignment()) == [(TOPIC, 1)]


@scenario
async def test_partitions_that_stay_assigned_go_on_where_the_reader_is(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0, 9)
    case.kafka.produce(1, 2)
    await case.ask(AssignPartitions(((TOPIC, 0),)))
    assert await case.read(ReadRecords(1000, 4)) == [(0, at) for at in range(4)]
    await case.ask(AssignPartitions(((TOPIC, 0), (TOPIC, 1))))
    found: list[tuple[int, int]] = []
    while len(found) < 7:
        found += await case.read()
    assert sorted(found) == [*((0, at) for at in range(4, 9)), (1, 0), (1, 1)]


@scenario
async def test_committed_offsets_count_for_partitions_that_were_not_read_yet(sim: Sim) -> None:
    case = Case(sim, partitions=8, wait=0.2).start()
    for number in range(8):
        case.kafka.produce(number, 5)
        case.kafka.committed[TOPIC, number] = 4
    await case.subscribe()
    found: list[tuple[int, int]] = []
    while batch := await case.read(ReadRecords(1000, 3)):
        found += batch
    assert sorted(found) == [(number, 4) for number in range(8)]


# -- life -----------------------------------------------------------------------------------------


@scenario
async def test_an_instance_that_does_not_consume_has_no_kafka_client(sim: Sim) -> None:
    case = Case(sim).start()
    assert await case.ask(InstanceState()) == "unused"
    assert await case.ask(CommitPositions()) == [] and await case.ask(GetAssignment()) == []
    await case.ask(DeleteInstance())
    assert case.kafka.sessions == []


@scenario
async def test_an_idle_instance_ends_and_commits_what_it_handed_out(sim: Sim) -> None:
    case = Case(sim, partitions=1, auto_commit=True)
    case.conf.idle_timeout = 60.0
    case.conf.auto_commit_interval = 3600.0
    case.start()
    case.kafka.produce(0, 3)
    await case.subscribe()
    for _ in range(5):
        await asyncio.sleep(50)
        await case.read(ReadRecords(1000, 1, wait=0.0))
    assert case.ref.is_alive(), "it is used often enough"
    await asyncio.sleep(70)
    assert not case.ref.is_alive() and case.kafka.committed == {(TOPIC, 0): 3}


@scenario
async def test_an_instance_with_a_long_read_is_not_idle(sim: Sim) -> None:
    case = Case(sim, partitions=1)
    case.conf.idle_timeout = 10.0
    case.conf.max_read_timeout = 600.0
    case.start()
    await case.subscribe()
    read = asyncio.ensure_future(case.read(ReadRecords(1000, 10, wait=300.0)))
    await asyncio.sleep(200)
    case.kafka.produce(0)
    assert await read == [(0, 0)]


@scenario
async def test_a_stop_of_the_service_answers_reads_and_leaves_the_group(sim: Sim) -> None:
    case = Case(sim, wait=60.0, auto_commit=True, partitions=1).start()
    case.kafka.produce(0)
    await case.subscribe()
    await case.read()
    reading = case.ask(READ)
    await case.ask(CloseInstance())
    with pytest.raises(Exception, match="shutting down"):
        await reading
    assert case.kafka.committed == {(TOPIC, 0): 1} and case.kafka.sessions[0].closed


@pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
def test_a_restart_goes_on_where_the_reader_was(mode: str) -> None:
    """Crashes at random: nothing is lost. Records come again only if the crash was just when their
    answer was settled.
    """

    async def run(sim: Sim) -> None:
        case = Case(sim, wait=1.0, partitions=2).start()
        for number in range(2):
            case.kafka.produce(number, 100)
        found: list[tuple[int, int]] = []
        while len(set(found)) < 200:
            try:
                await case.subscribe()
                found += await case.read(ReadRecords(200, 7))
            except (ActorDeadError, IllegalState):
                await asyncio.sleep(0.05)
            except Exception as error:
                if "Injected" not in type(error).__name__:
                    raise
        assert set(found) == {(number, at) for number in range(2) for at in range(100)}
        assert len(found) <= 200 + 7 * len(case.kafka.sessions)

    for seed in range(8):
        simulate(run, seed=seed, mode=mode, faults=(Crash(path="/i", probability=0.01),), may_escalate=True)


@pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
def test_hours_of_reads_commits_seeks_and_rebalances(mode: str) -> None:
    """What is committed never exceeds what was handed out, whatever happens in between."""

    async def run(sim: Sim) -> None:
        case = Case(sim, wait=0.5, partitions=3, auto_commit=sim.rng.random() < 0.5).start()
        rng = random.Random(sim.rng.random())
        handed: dict[int, int] = {}
        await case.subscribe()

        async def rebalances() -> None:
            while True:
                await asyncio.sleep(rng.random() * 30)
                numbers = [number for number in range(3) if rng.random() < 0.5]
                await case.kafka.sessions[-1].rebalance(numbers)

        async def produce() -> None:
            while True:
                await asyncio.sleep(rng.random())
                case.kafka.produce(rng.randrange(3), rng.randrange(5), size=rng.randrange(1, 60))

        beside = [asyncio.create_task(rebalances()), asyncio.create_task(produce())]
        until = now() + 1200
        while now() < until:
            sent = rng.random() < 0.9
            for partition, offset in await case.read(ReadRecords(rng.randrange(1, 300), rng.randrange(1, 20)), sent):
                if sent:
                    handed[partition] = max(handed.get(partition, 0), offset + 1)
            if rng.random() < 0.2:
                await case.ask(CommitPositions())
            for (_, partition), offset in case.kafka.committed.items():
                assert offset <= handed.get(partition, 0)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await case.ask(DeleteInstance())
        assert min(handed.values()) > 50

    for seed in range(3):
        simulate(run, seed=seed, mode=mode)
