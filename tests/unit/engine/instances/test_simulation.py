"""Commits, seeks, subscriptions and the life of a consumer instance, in simulated time, on a model of Kafka.

Each test is named after a promise to the reader. Several promise the absence of another server's defect.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from actors import ActorDeadError
from actors.testing import Crash, Sim, simulate
from pixy.engine.instances.context import END
from pixy.engine.instances.messages import (
    AssignPartitions,
    CloseInstance,
    CommitOffsets,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetInstanceState,
    GetSubscription,
    ReadRecords,
    SeekTo,
    SubscribeTo,
    Unsubscribe,
)
from pixy.errors import (
    IllegalState,
    KafkaError,
    OtherSubscription,
    TooManyRequests,
    UnknownInstance,
    UnknownTopic,
)
from pixy.kafka.consumer import Commit
from tests.effort import seeds
from tests.unit.engine.instances.instance_model import READ, Case, now, scenario
from tests.unit.engine.records import TOPIC

# -- refused requests -------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [SubscribeTo(topics=("other",)), AssignPartitions(((TOPIC, 0),))])
def test_a_refused_change_changes_nothing(request_: object) -> None:
    """Otherwise the same request would later be taken for done, and the reader would get nothing."""

    async def run(sim: Sim) -> None:
        case = Case(sim)
        case.conf.max_waiting_requests = 0
        case.start()
        with pytest.raises(TooManyRequests):
            await case.ask(request_)
        assert await case.ask(GetSubscription()) == []
        case.conf.max_waiting_requests = 3
        case.kafka.produce(0)
        await case.ask(AssignPartitions(((TOPIC, 0),)))
        await case.ask(SeekTo({(TOPIC, 0): 0}, {}))
        assert await case.read() == [(0, 0)]

    simulate(run, seed=0, mode="actors")


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
async def test_a_delete_answers_the_waiting_reads_with_404(sim: Sim) -> None:
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
async def test_a_seek_during_a_read_is_answered_at_once_and_so_is_the_read(sim: Sim) -> None:
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
async def test_a_seek_drops_the_records_fetched_before(sim: Sim) -> None:
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
async def test_a_commit_without_a_body_leaves_out_records_that_were_only_fetched(sim: Sim) -> None:
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
    assert case.kafka.committed == {}, "the reader may not have processed them"
    await case.read(ReadRecords(1000, 4))
    await asyncio.sleep(case.conf.auto_commit_interval + 0.5)
    assert case.kafka.committed == {(TOPIC, 0): 3}
    await case.ask(DeleteInstance())
    assert case.kafka.committed == {(TOPIC, 0): 7}


async def read_twice(sim: Sim) -> Case:
    case = Case(sim, partitions=1, auto_commit=True).start()
    case.kafka.produce(0, 50)
    await case.subscribe()
    await case.read(ReadRecords(1000, 3))
    await case.read(ReadRecords(1000, 4))
    return case


@scenario
async def test_a_stop_commits_what_the_reader_confirmed(sim: Sim) -> None:
    case = await read_twice(sim)
    await case.ask(CloseInstance())
    assert case.kafka.committed == {(TOPIC, 0): 3}


@scenario
async def test_an_instance_that_is_no_longer_used_commits_what_the_reader_confirmed(sim: Sim) -> None:
    case = await read_twice(sim)
    await asyncio.sleep(case.conf.idle_timeout + 10)
    assert case.kafka.committed == {(TOPIC, 0): 3} and not case.ref.is_alive()


@scenario
async def test_without_automatic_commit_a_delete_commits_nothing(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.read()
    await case.ask(DeleteInstance())
    assert case.kafka.history == []


@scenario
async def test_the_answer_to_a_commit_waits_for_kafka_and_reports_its_error(sim: Sim) -> None:
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
    assert await case.ask(CommitPositions()) == [((TOPIC, 0), 4, 4)], "a retry succeeds"


@scenario
async def test_a_commit_that_meets_a_rebalance_is_retried(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.read()
    case.kafka.commit_fails = [KafkaError("later", 27, "REBALANCE_IN_PROGRESS")] * 3
    assert await case.ask(CommitPositions()) == [((TOPIC, 0), 4, 4)]


@scenario
async def test_an_operation_without_an_answer_from_kafka_fails_in_time(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.commit_takes = 100.0
    begun = now()
    with pytest.raises(KafkaError, match="no answer in time to commit"):
        await case.ask(CommitOffsets((Commit(TOPIC, 0, 3, ""),)))
    assert now() - begun == pytest.approx(case.conf.operation_timeout, abs=0.1)


@scenario
async def test_a_revoked_partition_is_committed_before_it_goes(sim: Sim) -> None:
    case = Case(sim, partitions=2, auto_commit=True).start()
    case.kafka.produce(0, 5)
    case.kafka.produce(1, 5)
    await case.subscribe()
    assert len(await case.read(ReadRecords(1000, 7))) == 7  # and two more have been fetched
    assert await case.read(ReadRecords(1000, 1)) == [(1, 2)]  # confirms the seven
    await case.kafka.sessions[0].rebalance([1])
    assert case.kafka.committed == {(TOPIC, 1): 2}
    found: list[tuple[int, int]] = []
    while len(found) < 3:
        found += await case.read()
    assert found == [(1, 2), (1, 3), (1, 4)], "each once: the fetched records were dropped with the partition"


# -- subscriptions and assignments ----------------------------------------------------------------


@scenario
async def test_v1_the_first_read_subscribes_and_another_topic_is_refused(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.produce(0)
    assert await case.read(ReadRecords(1000, 100, topic=TOPIC)) == [(0, 0)]
    with pytest.raises(OtherSubscription):
        await case.ask(ReadRecords(1000, 100, topic="u"))
    assert await case.ask(GetSubscription()) == [TOPIC]


@scenario
async def test_v1_an_unknown_topic_is_reported_and_leaves_the_instance_without_a_subscription(
    sim: Sim,
) -> None:
    case = Case(sim).start()
    case.kafka.produce(0)
    with pytest.raises(UnknownTopic):
        await case.ask(ReadRecords(1000, 100, topic="nope"))
    assert case.kafka.sessions == [], "no Kafka client was made"
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
async def test_partitions_that_stay_assigned_continue_at_their_positions(sim: Sim) -> None:
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
async def test_partitions_not_read_yet_begin_at_their_committed_offsets(sim: Sim) -> None:
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
    assert await case.ask(GetInstanceState()) == "unused"
    assert await case.ask(CommitPositions()) == [] and await case.ask(GetAssignment()) == []
    await case.ask(DeleteInstance())
    assert case.kafka.sessions == []


@scenario
async def test_an_idle_instance_commits_its_positions_and_ends(sim: Sim) -> None:
    case = Case(sim, partitions=1, auto_commit=True)
    case.conf.idle_timeout = 60.0
    case.conf.auto_commit_interval = 3600.0
    case.start()
    case.kafka.produce(0, 3)
    await case.subscribe()
    for _ in range(5):
        await asyncio.sleep(50)
        await case.read(ReadRecords(1000, 1, wait=0.0))
    assert case.ref.is_alive(), "it was used often enough"
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
def test_a_restart_continues_at_the_readers_positions(mode: str) -> None:
    """Random crashes lose nothing. Records come twice only if the instance crashed while it settled the
    answer that contained them.
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

    for seed in seeds(8):
        simulate(run, seed=seed, mode=mode, faults=(Crash(path="/i", probability=0.01),), may_escalate=True)


@pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
def test_hours_of_reads_commits_seeks_and_rebalances(mode: str) -> None:
    """Committed offsets never exceed the records handed out."""

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
            for partition, offset in await case.read(
                ReadRecords(rng.randrange(1, 300), rng.randrange(1, 20)), sent
            ):
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

    for seed in seeds(3):
        simulate(run, seed=seed, mode=mode)


@scenario
async def test_a_seek_whose_time_is_found_after_a_delete_opens_no_session(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    case.kafka.produce(0, 5)
    await case.subscribe()
    await case.read()
    seek = case.ask(SeekTo({}, {(TOPIC, 0): END}))
    deleted = case.ask(DeleteInstance())
    with pytest.raises(UnknownInstance):
        await seek
    await deleted
    assert all(session.closed for session in case.kafka.sessions) and len(case.kafka.sessions) == 1


@scenario
async def test_a_pattern_names_the_topics_that_match_and_those_made_later(sim: Sim) -> None:
    case = Case(sim).start()
    await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
    assert case.kafka.subscribed == [((TOPIC,), ())]
    case.kafka.produce(0, 1)
    assert await case.read() == [(0, 0)]
    case.kafka.topics += [f"{TOPIC}-2", "other"]
    case.kafka.lookups_fail = [KafkaError("no answer", -195, "_TRANSPORT")]
    await asyncio.sleep(15)
    assert len(case.kafka.subscribed) == 1, "the look-up failed"
    await asyncio.sleep(10)
    assert case.kafka.subscribed[1:] == [((TOPIC, f"{TOPIC}-2"), (f"{TOPIC}-2",))]
    await asyncio.sleep(60)
    assert len(case.kafka.subscribed) == 2, "nothing has changed"
    await case.ask(Unsubscribe())
    case.kafka.topics.append(f"{TOPIC}-3")
    await asyncio.sleep(60)
    assert len(case.kafka.subscribed) == 2


@scenario
async def test_a_pattern_that_cannot_be_looked_up_changes_nothing(sim: Sim) -> None:
    case = Case(sim).start()
    case.kafka.lookups_fail = [KafkaError("no answer", -195, "_TRANSPORT")]
    with pytest.raises(KafkaError, match="no answer"):
        await case.ask(SubscribeTo(pattern="t.*"))
    await case.subscribe()
    assert case.kafka.subscribed == [((TOPIC,), ())]


@scenario
async def test_reads_of_a_pattern_that_matches_nothing_end_in_time(sim: Sim) -> None:
    case = Case(sim).start()
    await case.ask(SubscribeTo(pattern="nothing"))
    assert case.kafka.subscribed == [((), ())]
    assert await case.read() == []
