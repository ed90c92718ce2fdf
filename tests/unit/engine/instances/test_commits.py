"""Commits of a consumer instance that meet rebalances, later commits and the end of their session, in simulated time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.testing import Sim, simulate
from pixy.engine.instances.messages import (
    AssignPartitions,
    CommitOffsets,
    CommitPositions,
    GetAssignment,
    ReadRecords,
    Unsubscribe,
)
from pixy.errors import IllegalState, KafkaError
from pixy.kafka.consumer import Commit
from pixy.membership.instances import Assigned, Earlier, Met, MetTopic, SessionFailed
from tests.unit.engine.instances.instance_model import Case, scenario
from tests.unit.engine.records import TOPIC

PARTITION = (TOPIC, 0)


def at(*offsets: int) -> list[tuple[Commit, ...]]:
    """The history of these commits of the partition, one by one."""
    return [(Commit(TOPIC, 0, offset, ""),) for offset in offsets]


async def reading(sim: Sim, *counts: int, auto_commit: bool) -> Case:
    """An instance whose reader has made reads of so many records."""
    case = Case(sim, partitions=1, auto_commit=auto_commit).start()
    case.kafka.produce(0, 50)
    await case.subscribe()
    for count in counts:
        assert len(await case.read(ReadRecords(1000, count))) == count
    return case


async def refused(case: Case) -> None:
    """Wait until a commit has met a rebalance. It is repeated 0.1 s later."""
    while case.kafka.commit_fails:
        await asyncio.sleep(0.005)


def rebalancing() -> list[KafkaError]:
    return [KafkaError("later", 27, "REBALANCE_IN_PROGRESS")]


# -- the order of commits ---------------------------------------------------------------------------


@scenario
async def test_an_automatic_commit_that_is_repeated_leaves_out_what_was_given_back(sim: Sim) -> None:
    """Its offset would be lower than those of the next owners."""
    case = await reading(sim, 10, 2, auto_commit=True)
    case.kafka.commit_fails = rebalancing()
    await refused(case)
    await case.read(ReadRecords(1000, 1))  # confirms twelve
    moving = asyncio.ensure_future(case.kafka.sessions[0].rebalance([0]))
    while not case.kafka.history:
        await asyncio.sleep(0.001)
    case.kafka.commit(*at(20))  # by another member
    await moving
    await asyncio.sleep(3 * case.conf.auto_commit_interval)
    assert case.kafka.history == at(12, 20)


@scenario
async def test_an_automatic_commit_that_is_repeated_does_not_undo_a_later_one(sim: Sim) -> None:
    case = await reading(sim, 10, 2, auto_commit=True)
    case.kafka.commit_fails = rebalancing()
    await refused(case)
    await case.ask(CommitPositions())
    await asyncio.sleep(3 * case.conf.auto_commit_interval)
    assert case.kafka.history == at(12)


@scenario
async def test_a_commit_of_positions_that_is_repeated_does_not_undo_a_later_one(sim: Sim) -> None:
    case = await reading(sim, 10, auto_commit=False)
    case.kafka.commit_fails = rebalancing()
    first = case.ask(CommitPositions())
    await refused(case)
    await case.read(ReadRecords(1000, 2))
    assert await case.ask(CommitPositions()) == [(PARTITION, 11, 11)]
    assert await first == [(PARTITION, 11, 11)]
    assert case.kafka.history == at(12)


@scenario
async def test_a_commit_of_positions_is_made_before_its_partition_goes(sim: Sim) -> None:
    """Without automatic commits, too: the client has asked for it."""
    case = await reading(sim, 10, auto_commit=False)
    case.kafka.commit_fails = rebalancing()
    commit = case.ask(CommitPositions())
    await refused(case)
    await case.kafka.sessions[0].rebalance([0])
    await commit
    assert case.kafka.history == at(10)


@pytest.mark.parametrize("commit", [CommitPositions(), CommitOffsets((Commit(TOPIC, 0, 12, ""),))])
def test_an_automatic_commit_does_not_undo_the_clients_own(commit: Any) -> None:
    """The client has confirmed what it commits, although it has not read on yet."""

    async def run(sim: Sim) -> None:
        case = await reading(sim, 10, 2, auto_commit=True)
        await case.ask(commit)
        await asyncio.sleep(3 * case.conf.auto_commit_interval)
        assert case.kafka.history == at(12)

    simulate(run, seed=0, mode="actors")


@scenario
async def test_a_new_beginning_is_committed_right_after_the_automatic_commit_under_way(sim: Sim) -> None:
    case = Case(sim, auto_commit=True)
    case.conf.auto_commit_interval = 3600.0
    case.kafka.commit_takes = 1.0
    case.start()
    await case.subscribe()
    await asyncio.sleep(1)
    session = case.kafka.sessions[0]
    for number in range(2):
        session.post(Assigned({(TOPIC, number): 7 + number}, frozenset({(TOPIC, number)})))
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    assert case.kafka.history == [(Commit(TOPIC, 0, 7, ""),), (Commit(TOPIC, 1, 8, ""),)]


# -- a session that fails ---------------------------------------------------------------------------


def fail(case: Case) -> None:
    case.kafka.sessions[-1].post(SessionFailed(KafkaError("x", -1, "X")))


@scenario
async def test_a_restarted_session_knows_what_the_one_before_had_learned_until_the_subscription_ends(
    sim: Sim,
) -> None:
    """Else a partition that was added before would begin at its end."""
    case = Case(sim, reset="latest").start()
    await case.subscribe()
    await asyncio.sleep(1)
    for met in (MetTopic(None, 6), MetTopic(None, 0)):
        case.kafka.sessions[-1].post(Met({TOPIC: met}))
        await asyncio.sleep(0.1)
        fail(case)
        await asyncio.sleep(1)
        assert case.kafka.sessions[-1].earlier.topics == {TOPIC: met}
    await case.ask(Unsubscribe())
    await case.subscribe()
    await asyncio.sleep(1)
    assert case.kafka.sessions[-1].earlier == Earlier()
    fail(case)
    await asyncio.sleep(1)
    assert case.kafka.sessions[-1].earlier.topics == {}


@scenario
async def test_a_restart_does_not_go_back_to_a_position_that_others_have_passed(sim: Sim) -> None:
    case = await reading(sim, 10, auto_commit=True)
    fail(case)
    case.kafka.commit(*at(20))  # by another member
    await asyncio.sleep(1)
    assert (await case.read(ReadRecords(1000, 1))) == [(0, 20)]
    await asyncio.sleep(3 * case.conf.auto_commit_interval)
    assert case.kafka.history == at(20)


@scenario
async def test_a_restart_continues_after_the_last_commit_of_its_failed_session(sim: Sim) -> None:
    case = await reading(sim, 10, 2, auto_commit=True)
    fail(case)
    await asyncio.sleep(1)
    assert case.kafka.history == at(10)
    assert (await case.read(ReadRecords(1000, 1))) == [(0, 12)]


@scenario
async def test_two_failures_in_a_row_forget_no_position(sim: Sim) -> None:
    case = await reading(sim, 10, auto_commit=False)
    case.kafka.join_takes = 2.0
    fail(case)
    await asyncio.sleep(1)
    assert len(case.kafka.sessions) == 2 and await case.ask(GetAssignment()) == []
    fail(case)
    await asyncio.sleep(5)
    assert (await case.read(ReadRecords(1000, 1))) == [(0, 10)]


# -- a session that is given up ---------------------------------------------------------------------


async def ends_although(case: Case, commit: Any) -> None:
    await case.ask(Unsubscribe())
    with pytest.raises(IllegalState, match="the subscription was deleted"):
        await commit
    await case.subscribe()
    assert case.ref.is_alive()
    await asyncio.sleep(2 * case.conf.idle_timeout + 1)
    assert not case.ref.is_alive()


@scenario
async def test_a_commit_that_was_to_be_repeated_does_not_keep_an_instance_alive(sim: Sim) -> None:
    case = await reading(sim, 10, auto_commit=False)
    case.kafka.commit_fails = rebalancing()
    commit = case.ask(CommitPositions())
    await refused(case)
    await ends_although(case, commit)


@scenario
async def test_a_command_without_a_result_does_not_keep_an_instance_alive(sim: Sim) -> None:
    """The thread of a session that was given up has failed, say."""
    case = await reading(sim, 10, auto_commit=False)
    case.kafka.commit_takes = 1e9
    await ends_although(case, case.ask(CommitPositions()))


@scenario
async def test_partitions_that_were_chosen_before_the_subscription_was_deleted_are_not_assigned(
    sim: Sim,
) -> None:
    case = Case(sim, partitions=1).start()
    chosen = case.ask(AssignPartitions((PARTITION,)))
    deleted = case.ask(Unsubscribe())
    with pytest.raises(IllegalState, match="the subscription was deleted"):
        await chosen
    await deleted
    assert await case.ask(GetAssignment()) == []
