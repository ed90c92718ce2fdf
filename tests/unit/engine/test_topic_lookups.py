"""Look-ups of topics: how many requests Kafka gets for how many askers, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as LibraryError

from actors.testing import Sim, simulate
from pixy.engine.produce.topic_lookup import Resolved
from pixy.engine.topic_lookups import TopicLookups
from pixy.errors import KafkaError, ShuttingDown, UnknownTopic

INTERVAL = 0.5
TOPIC = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=1), 1: SimpleNamespace(leader=-1)})
DOWN = KafkaError("kafka: no answer", -185, "_TIMED_OUT", retriable=True)


class Kafka:
    """Answers after 0.1 s, and counts."""

    def __init__(self, sim: Sim, answer: Any = None) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.at_once = self.most_at_once = 0
        self.lookups = TopicLookups(self.metadata, INTERVAL, sim.loop.time)

    async def metadata(self, topic: str, _timeout: float) -> dict[str, Any]:
        self.requests.append(topic)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.1)
        self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return {} if self.answer is None else {topic: self.answer}


@pytest.mark.parametrize("answer", [None, DOWN, UnknownTopic("unknown", 3, "UNKNOWN_TOPIC_OR_PART")])
def test_a_hundred_groups_that_miss_one_topic_make_one_request_per_interval(answer: Any) -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim, answer)

        async def group() -> None:
            await asyncio.sleep(sim.rng.random())
            while sim.loop.time() < 10:
                try:
                    assert await kafka.lookups.partitions("missing") is None
                except KafkaError as error:
                    assert error is DOWN
                await asyncio.sleep(INTERVAL)

        await asyncio.gather(*(group() for _ in range(100)))
        assert 10 < len(kafka.requests) <= 10 / INTERVAL

    simulate(scenario, seed=1)


def test_askers_at_the_same_time_share_a_request_and_one_may_give_up() -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim, TOPIC)
        asking = [asyncio.create_task(kafka.lookups.partitions("t")) for _ in range(10)]
        await asyncio.sleep(0.05)
        asking[0].cancel()
        assert await asyncio.gather(*asking[1:]) == [2] * 9
        assert kafka.requests == ["t"]
        assert await kafka.lookups.writable("t") == (0,)

    simulate(scenario, seed=1)


def test_a_topic_that_was_made_is_found_after_the_interval() -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)
        assert await kafka.lookups.partitions("t") is None
        kafka.answer = TOPIC
        assert await kafka.lookups.partitions("t") is None, "too early to ask again"
        await asyncio.sleep(INTERVAL)
        assert await kafka.lookups.partitions("t") == 2
        assert await kafka.lookups.partitions("t") == 2
        assert len(kafka.requests) == 3, "what was found is not kept"

    simulate(scenario, seed=1)


@pytest.mark.slow
def test_look_ups_at_the_same_time_are_bounded_and_so_is_the_memory_of_failed_ones() -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)
        for first in (0, 1500, 3000):
            await asyncio.gather(*(kafka.lookups.partitions(f"t{n}") for n in range(first, first + 1500)))
            await asyncio.sleep(INTERVAL)
        assert kafka.most_at_once == 9, "eight, and one that asks for all topics"
        assert len(kafka.lookups._failed) < 1500

    simulate(scenario, seed=1)


@pytest.mark.parametrize("code", [LibraryError.LEADER_NOT_AVAILABLE, LibraryError.UNKNOWN_TOPIC_OR_PART])
def test_a_topic_that_is_being_made_is_not_missing(code: int) -> None:
    """A producer keeps its messages for it, as while no broker answers; a group asks again in any case."""

    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim, SimpleNamespace(error=LibraryError(code), partitions={}))
        if code == LibraryError.LEADER_NOT_AVAILABLE:
            with pytest.raises(KafkaError) as caught:
                await kafka.lookups.writable("new")
            assert (caught.value.code, caught.value.retriable) == (code, True)
        else:
            assert await kafka.lookups.writable("missing") is None
        assert await kafka.lookups.partitions("new") is None

    simulate(scenario, seed=1)


def test_a_topic_that_may_not_be_seen_is_not_missing() -> None:
    """A group that took it for missing would begin at the oldest message once it may read."""

    async def scenario(sim: Sim) -> None:
        error = LibraryError(LibraryError.TOPIC_AUTHORIZATION_FAILED)
        kafka = Kafka(sim, SimpleNamespace(error=error, partitions={}))
        for ask in (kafka.lookups.writable, kafka.lookups.partitions):
            with pytest.raises(KafkaError) as caught:
                await ask("secret")  # type: ignore[operator]
            assert caught.value.name == "TOPIC_AUTHORIZATION_FAILED"

    simulate(scenario, seed=1)


@pytest.mark.slow
def test_a_topic_that_exists_does_not_wait_behind_thousands_that_do_not() -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)

        async def metadata(topic: str | None, timeout: float) -> dict[str, Any]:
            if topic is None:
                await asyncio.sleep(0.1)
                kafka.requests.append("all")
                return {"honest": TOPIC}
            return {"honest": TOPIC} if topic == "honest" else await kafka.metadata(topic, timeout)

        lookups = TopicLookups(metadata, INTERVAL, sim.loop.time)
        strangers = [asyncio.create_task(lookups.resolve(f"none{number}")) for number in range(2000)]
        await asyncio.sleep(0.35)
        begun = sim.loop.time()
        assert (await lookups.resolve("honest")).partitions == (0,)
        assert sim.loop.time() - begun < 0.2, "virtual seconds"
        assert not strangers[-1].done() and kafka.most_at_once == 8
        assert all(found.partitions is None for found in await asyncio.gather(*strangers))
        assert kafka.requests.count("all") <= sim.loop.time() + 1

    simulate(scenario, seed=1)


def test_a_topic_that_was_missing_lately_is_sought_once_and_found_as_soon_as_it_exists() -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)
        assert await asyncio.gather(*(kafka.lookups.resolve("t") for _ in range(9))) == [Resolved(None)] * 9
        assert kafka.requests == ["t"] * 3, "for all askers together"
        assert await kafka.lookups.resolve("t") == Resolved(None)
        assert len(kafka.requests) == 4
        kafka.answer = TOPIC
        assert await kafka.lookups.resolve("t") == Resolved((0,))
        assert len(kafka.requests) == 5
        assert await kafka.lookups.writable("t") == (0,)
        assert len(kafka.requests) == 5, "its producer need not ask again"
        assert await kafka.lookups.writable("t") == (0,)
        assert len(kafka.requests) == 6

    simulate(scenario, seed=1)


def test_a_topic_that_a_group_has_just_made_the_broker_create_is_sought_three_times() -> None:
    """A broker that creates topics says "unknown" until it has; a produce while a group asked was answered 404."""

    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)
        assert await kafka.lookups.partitions("new") is None
        producing = asyncio.create_task(kafka.lookups.resolve("new"))
        await asyncio.sleep(0.15)
        assert kafka.requests == ["new"] * 2
        kafka.answer = TOPIC
        assert await producing == Resolved((0,))

    simulate(scenario, seed=1)


def test_look_ups_under_way_end_with_their_cluster() -> None:
    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)
        asking = asyncio.create_task(kafka.lookups.resolve("t"))
        await asyncio.sleep(0.05)
        kafka.lookups.close()
        assert isinstance((await asking).error, ShuttingDown)

    simulate(scenario, seed=1)


def test_a_topic_whose_absence_loses_a_message_is_sought_three_times_and_not_with_those_that_began_before() -> (
    None
):
    """It may be made while an answer that it is missing is on its way; and after that one broker may not know it yet."""

    async def scenario(sim: Sim) -> None:
        kafka = Kafka(sim)
        assert await kafka.lookups.resolve("t", surely=True) == Resolved(None)
        assert kafka.requests == ["t"] * 3
        before = asyncio.create_task(kafka.lookups.resolve("t", surely=True))
        while len(kafka.requests) < 6:
            await asyncio.sleep(0.01)
        late = [asyncio.create_task(kafka.lookups.resolve("t", surely=True)) for _ in range(5)]
        assert await before == Resolved(None)
        while len(kafka.requests) < 8:
            await asyncio.sleep(0.01)
        kafka.answer = TOPIC
        assert await asyncio.gather(*late) == [Resolved((0,))] * 5
        assert len(kafka.requests) in (8, 9), "together"

    simulate(scenario, seed=1)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_that_is_made_when_a_look_up_for_it_ends_is_found_by_who_comes_then(seed: int) -> None:
    """The look-up has ended, and those who wait for it have not heard yet."""

    async def scenario(sim: Sim) -> None:
        kafka, late = Kafka(sim), list[asyncio.Task[Resolved]]()

        async def metadata(topic: str, timeout: float) -> dict[str, Any]:
            found = await kafka.metadata(topic, timeout)
            if len(kafka.requests) == 3:
                kafka.answer = TOPIC
                late.append(asyncio.create_task(lookups.resolve("t", surely=True)))
            return found

        lookups = TopicLookups(metadata, INTERVAL, sim.loop.time)
        assert await lookups.resolve("t", surely=True) == Resolved(None)
        assert await late[0] == Resolved((0,))
        assert lookups.waiting == 0

    simulate(scenario, seed=seed)
