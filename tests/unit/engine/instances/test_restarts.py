"""What an instance consumes after it has restarted: what was in effect, as soon as Kafka lets it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from actors import ActorDeadError
from actors.testing import Sim, simulate
from pixy.engine.instances.context import END
from pixy.engine.instances.messages import (
    AssignPartitions,
    DeleteInstance,
    GetAssignment,
    GetSubscription,
    ReadRecords,
    SubscribeTo,
    Unsubscribe,
)
from pixy.errors import KafkaError
from pixy.kafka.partition_logs import FirstAttempt
from pixy.membership.instances import Assigned, Met
from tests.unit.engine.instances.instance_model import Case, scenario
from tests.unit.engine.instances.test_changes import DOWN, ONE, OTHER, started
from tests.unit.engine.records import TOPIC

TWO = ReadRecords(max_bytes=1000, most=2)
LONG = 120.0
"""Seconds in which everything that is to be repeated has been."""


async def restarted(sim: Sim, *outcomes: KafkaError | None) -> Case:
    """An instance with a chosen partition, of which two records were read; it restarts, and its next changes end so."""
    case = started(sim, None, *outcomes)
    await case.ask(AssignPartitions((ONE,)))
    assert await case.read(TWO) == [(0, 0), (0, 1)]
    case.fail_session()
    await asyncio.sleep(0.2)
    return case


# -- repeated until it succeeds -----------------------------------------------------------------------


@scenario
async def test_chosen_partitions_are_assigned_again_until_it_succeeds(sim: Sim) -> None:
    """Nobody would ask again: the reader has no reason to."""
    case = await restarted(sim, DOWN, DOWN, DOWN)
    assert await case.ask(GetAssignment()) == []
    assert await case.read() == [(0, 2)], "a read that waits gets what follows"
    assert case.kafka.assigned == [((ONE,), False), *[((ONE,), True)] * 4]
    await asyncio.sleep(LONG)
    assert len(case.kafka.assigned) == 5


@scenario
async def test_the_next_session_knows_which_partitions_wait_for_their_beginning_and_since_when(
    sim: Sim,
) -> None:
    case, first = started(sim), FirstAttempt()
    await case.ask(AssignPartitions((ONE,)))
    case.kafka.change_takes = 1000.0  # the events of the next sessions are those below
    for event in (Met({}, {ONE: first}), Assigned({ONE: END})):
        case.kafka.sessions[-1].post(event)
    for _ in range(2):
        case.fail_session()
        await asyncio.sleep(0.2)
        assert case.kafka.sessions[-1].earlier.late == {ONE: first}
        case.kafka.sessions[-1].post(Assigned({ONE: END}))
    case.kafka.sessions[-1].post(Assigned({ONE: 2}))
    case.fail_session()
    await asyncio.sleep(0.2)
    assert case.kafka.sessions[-1].earlier.late == {}


@scenario
async def test_topics_are_subscribed_to_again_until_it_succeeds(sim: Sim) -> None:
    case = started(sim, None, DOWN, DOWN)
    await case.subscribe()
    await asyncio.sleep(1)
    case.kafka.join_takes = 60.0
    case.fail_session()
    assert await case.read() == [], "the group takes its time, and that is no error"
    await asyncio.sleep(LONG)
    assert len(case.kafka.subscribed) == 4
    assert len(await case.read())


@scenario
async def test_reads_say_why_there_are_no_records_meanwhile(sim: Sim) -> None:
    case = await restarted(sim, *[DOWN] * 8)
    with pytest.raises(KafkaError, match="no coordinator"):
        await case.read()
    await asyncio.sleep(LONG)
    assert await case.read() == [(0, 2)]
    assert await case.read() == [], "the refusal is over"


def test_each_attempt_that_fails_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def run(sim: Sim) -> None:
        case = await restarted(sim, *[DOWN] * 20)
        begun = len(case.kafka.assigned)
        await asyncio.sleep(300)
        assert 8 <= len(case.kafka.assigned) - begun <= 20, "the pauses grow, up to a bound"

    with caplog.at_level(logging.WARNING, "pixy.engine"):
        simulate(run, seed=1, mode="actors")
    lines = [each.getMessage() for each in caplog.records if each.name == "pixy.engine"]
    assert 9 <= len(lines) <= 20
    assert lines[0].startswith("/i: cannot resume, next attempt in 0.") and lines[0].endswith(
        "no coordinator"
    )


# -- what ends the repetition -------------------------------------------------------------------------


@scenario
async def test_a_change_takes_the_place_of_what_is_to_be_repeated(sim: Sim) -> None:
    case = await restarted(sim, DOWN)
    await case.ask(AssignPartitions((OTHER,)))
    assert await case.read() == [(1, 0), (1, 1), (1, 2)]
    await asyncio.sleep(LONG)
    assert await case.ask(GetAssignment()) == [OTHER]
    case.kafka.change_fails = [DOWN]
    case.fail_session()
    await asyncio.sleep(0.2)
    await case.ask(AssignPartitions((ONE,)))
    assert await case.read() == [(0, 0), (0, 1), (0, 2)], (
        "nothing is committed, and the position was given up"
    )


@scenario
async def test_a_change_that_fails_leaves_what_is_to_be_repeated(sim: Sim) -> None:
    """Also if its turn comes while the change is under way."""
    case = await restarted(sim, DOWN, DOWN)
    case.kafka.change_takes = 2.0
    with pytest.raises(KafkaError, match="no coordinator"):
        await case.ask(AssignPartitions((OTHER,)))
    assert await case.read() == [(0, 2)]
    assert await case.ask(GetAssignment()) == [ONE]


@pytest.mark.parametrize("message", [Unsubscribe(), DeleteInstance()])
def test_an_instance_that_consumes_nothing_any_more_repeats_nothing(message: object) -> None:
    async def run(sim: Sim) -> None:
        case = await restarted(sim, *[DOWN] * 9)
        case.kafka.close_takes = 5.0
        repeated, sessions = len(case.kafka.assigned), len(case.kafka.sessions)
        await case.ask(message)
        await asyncio.sleep(LONG)
        assert (len(case.kafka.assigned), len(case.kafka.sessions)) == (repeated, sessions)

    for mode in ("actors", "pct", "harsh"):
        simulate(run, seed=1, mode=mode)


# -- changes that were under way ----------------------------------------------------------------------


@scenario
async def test_an_assignment_under_way_leaves_what_was_in_effect(sim: Sim) -> None:
    """Its client gets an error, so it must not count."""
    case = started(sim)
    await case.ask(AssignPartitions((ONE,)))
    assert await case.read(TWO) == [(0, 0), (0, 1)]
    case.kafka.change_takes = 1.0
    change = case.ask(AssignPartitions((OTHER,)))
    await asyncio.sleep(0.5)
    case.fail_session()
    with pytest.raises(ActorDeadError):
        await change
    assert await case.read() == [(0, 2)]
    assert await case.ask(GetAssignment()) == [ONE]


@scenario
async def test_a_subscription_under_way_leaves_what_was_in_effect(sim: Sim) -> None:
    case = started(sim)
    case.kafka.change_takes = 1.0
    change = case.ask(SubscribeTo((TOPIC,)))
    await asyncio.sleep(0.5)
    case.fail_session()
    with pytest.raises(ActorDeadError):
        await change
    assert await case.ask(GetSubscription()) == []
    await case.ask(AssignPartitions((ONE,)))
    assert await case.read() == [(0, 0), (0, 1), (0, 2)]


async def choose_once_more_while_resuming(case: Case) -> None:
    """Choose partitions in the middle of a restart: what was read does not come again, and nothing is left out."""
    await case.ask(AssignPartitions((ONE,)))
    assert await case.read(TWO) == [(0, 0), (0, 1)]
    case.kafka.change_takes = 1.0
    case.fail_session()
    await asyncio.sleep(0.2)
    await case.ask(AssignPartitions((ONE, OTHER)))
    assert await case.read() == [(0, 2), (1, 0), (1, 1), (1, 2)]


@scenario
async def test_partitions_that_are_chosen_while_the_old_ones_are_resumed_keep_their_positions(
    sim: Sim,
) -> None:
    """The client's read has failed, so it chooses them once more."""
    await choose_once_more_while_resuming(started(sim))


@scenario
async def test_partitions_that_are_chosen_keep_their_positions_also_if_resuming_the_old_ones_fails(
    sim: Sim,
) -> None:
    await choose_once_more_while_resuming(started(sim, None, DOWN))


# -- patterns -----------------------------------------------------------------------------------------


@scenario
async def test_a_restart_looks_the_pattern_up_again(sim: Sim) -> None:
    case = Case(sim).start()
    await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
    case.fail_session()
    await asyncio.sleep(5)
    assert case.kafka.subscribed == [((TOPIC,), ())] * 2
    case.kafka.produce(0, 1)
    assert await case.read() == [(0, 0)]


@scenario
async def test_a_pattern_is_subscribed_to_again_until_it_succeeds(sim: Sim) -> None:
    case = started(sim, None, DOWN, DOWN)
    await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
    case.fail_session()
    await asyncio.sleep(LONG)
    assert case.kafka.subscribed == [((TOPIC,), ())] * 4


def test_a_pattern_that_cannot_be_looked_up_after_a_restart_is_tried_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(sim: Sim) -> None:
        case = started(sim)
        await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
        case.kafka.lookups_fail = [DOWN] * 3
        case.fail_session()
        while case.kafka.lookups_fail:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert case.kafka.subscribed == [((TOPIC,), ())] * 2
        assert len(await case.read()) == 6

    with caplog.at_level(logging.WARNING, "pixy.engine"):
        simulate(run, seed=1, mode="actors")
    lines = [each.getMessage() for each in caplog.records if "cannot resume" in each.getMessage()]
    assert len(lines) == 3


@scenario
async def test_reads_say_why_a_pattern_that_cannot_be_looked_up_returns_nothing(sim: Sim) -> None:
    case = started(sim)
    await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
    case.kafka.lookups_fail = [DOWN] * 9
    case.fail_session()
    with pytest.raises(KafkaError, match="no coordinator"):
        await case.read()
    await asyncio.sleep(2 * LONG)
    assert len(await case.read()) == 6
    assert await case.read() == [], "the refusal is over"


@scenario
async def test_a_periodic_look_that_fails_is_no_reason_to_refuse_reads(sim: Sim) -> None:
    case = started(sim)
    await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
    assert len(await case.read()) == 6
    case.kafka.lookups_fail = [DOWN] * 2
    while case.kafka.lookups_fail:
        assert await case.read() == []
    assert case.kafka.subscribed == [((TOPIC,), ())]


@scenario
async def test_a_topic_that_is_made_during_a_restart_is_one_made_later(sim: Sim) -> None:
    """So with ``latest``, too, its records are read from the first one on. No restart forgets it."""
    case = Case(sim).start()
    await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
    case.fail_session()
    case.kafka.topics.append(f"{TOPIC}-2")
    await asyncio.sleep(5)
    case.fail_session()
    await asyncio.sleep(5)
    both = ((TOPIC, f"{TOPIC}-2"), (f"{TOPIC}-2",))
    assert case.kafka.subscribed == [((TOPIC,), ()), both, both]


@scenario
async def test_a_pattern_is_subscribed_to_again_after_it_was_deleted(sim: Sim) -> None:
    case = Case(sim).start()
    for _ in range(2):
        await case.ask(SubscribeTo(pattern=f"{TOPIC}.*"))
        await case.ask(Unsubscribe())
    assert case.kafka.subscribed == [((TOPIC,), ())] * 2
