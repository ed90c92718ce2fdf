"""Commits and deletes that meet the restart of an instance, while its new session has no partitions yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import ActorDeadError
from actors.testing import Sim, simulate
from pixy.engine.instances.messages import (
    AssignPartitions,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetSubscription,
    SubscribeTo,
    Unsubscribe,
)
from pixy.errors import IllegalState, KafkaError, TooManyRequests, Unavailable, UnknownInstance
from pixy.membership.instances import Assigned
from tests.unit.engine.instances.instance_model import Case, now, scenario
from tests.unit.engine.instances.test_changes import DOWN, ONE, OTHER
from tests.unit.engine.instances.test_restarts import TWO
from tests.unit.engine.records import TOPIC

CHOSEN, SUBSCRIBED = AssignPartitions((ONE,)), SubscribeTo((TOPIC,))
BOTH = pytest.mark.parametrize("consumes", [CHOSEN, SUBSCRIBED])


def simulated(function: Any, *arguments: Any) -> None:
    """Run an async function with several seeds and schedules."""
    for mode in ("actors", "pct", "harsh"):
        for seed in range(4):
            simulate(lambda sim: function(sim, *arguments), seed=seed, mode=mode)


async def failing(sim: Sim, consumes: Any = CHOSEN, *, takes: float = 3.0, **spec: Any) -> Case:
    """An instance that has read two records and whose session fails now; the next one has partitions in ``takes`` seconds."""
    case = Case(sim, partitions=1, **spec).start()
    case.kafka.produce(0, 3)
    await case.ask(consumes)
    assert await case.read(TWO) == [(0, 0), (0, 1)]
    case.kafka.change_takes = case.kafka.join_takes = takes
    case.fail_session()
    return case


async def restarting(sim: Sim, consumes: Any = CHOSEN, *, takes: float = 3.0, **spec: Any) -> Case:
    """An instance as :func:`failing` makes it, whose new session is there."""
    case = await failing(sim, consumes, takes=takes, **spec)
    while len(case.kafka.sessions) < 2:
        await asyncio.sleep(0.01)
    return case


# -- commits ------------------------------------------------------------------------------------------


async def commits_after_restart(sim: Sim, consumes: Any) -> None:
    case = await restarting(sim, consumes)
    assert await case.ask(CommitPositions()) == [(ONE, 1, 1)]
    assert case.kafka.committed == {ONE: 2}
    assert await case.read() == [(0, 2)]


@BOTH
def test_a_commit_waits_until_there_is_something_to_commit(consumes: Any) -> None:
    simulated(commits_after_restart, consumes)


@scenario
async def test_so_does_a_commit_that_comes_while_the_failed_session_is_closed(sim: Sim) -> None:
    case = Case(sim, partitions=1)
    case.kafka.close_takes = 3.0
    case.start()
    case.kafka.produce(0, 3)
    await case.ask(CHOSEN)
    await case.read(TWO)
    case.fail_session()
    await asyncio.sleep(0.2)
    assert await case.ask(CommitPositions()) == [(ONE, 1, 1)]
    assert case.kafka.committed == {ONE: 2}


@scenario
async def test_a_commit_does_not_wait_for_ever(sim: Sim) -> None:
    case = await restarting(sim, takes=1000.0)
    begun = now()
    with pytest.raises(Unavailable, match="the consumer instance is restarting, try again"):
        await case.ask(CommitPositions())
    assert now() - begun == pytest.approx(case.conf.join_timeout, abs=0.1)
    assert case.kafka.committed == {}


@scenario
async def test_a_group_that_assigns_nothing_first_does_not_end_the_wait(sim: Sim) -> None:
    """Another member has to give the partition back before."""
    case = await restarting(sim, SUBSCRIBED, takes=2.0)
    commit = case.ask(CommitPositions())
    case.kafka.sessions[-1].post(Assigned({}))
    assert await commit == [(ONE, 1, 1)]
    assert case.kafka.committed == {ONE: 2}


@scenario
async def test_a_partition_that_another_member_keeps_fails_one_commit_only(sim: Sim) -> None:
    """Then it is like any other that was revoked."""
    case = await restarting(sim, SUBSCRIBED, takes=1000.0)
    case.kafka.sessions[-1].post(Assigned({}))
    with pytest.raises(Unavailable):
        await case.ask(CommitPositions())
    assert await case.ask(CommitPositions()) == []


@scenario
async def test_commits_that_wait_are_bounded(sim: Sim) -> None:
    case = await restarting(sim)
    case.conf.max_waiting_requests = 2  # the assignment is one of them
    first, second = (case.ask(CommitPositions()) for _ in range(2))
    with pytest.raises(TooManyRequests):
        await second
    await first


@scenario
async def test_a_reader_that_has_read_nothing_has_nothing_to_commit(sim: Sim) -> None:
    case = Case(sim, partitions=1).start()
    await case.ask(CHOSEN)
    case.kafka.change_takes = 1000.0
    case.fail_session()
    assert await case.ask(CommitPositions()) == []


async def fails_with_the_delete(sim: Sim, delete: Any, reason: type[Exception]) -> None:
    case = await restarting(sim)
    commit = case.ask(CommitPositions())
    await case.ask(delete)
    with pytest.raises(reason):
        await commit
    assert case.kafka.committed == {}


@pytest.mark.parametrize(
    ("delete", "reason"), [(Unsubscribe(), IllegalState), (DeleteInstance(), UnknownInstance)]
)
def test_a_commit_that_waits_fails_if_there_is_nothing_to_commit_any_more(
    delete: Any, reason: type[Exception]
) -> None:
    simulated(fails_with_the_delete, delete, reason)


@scenario
async def test_a_commit_that_waits_behind_the_delete_of_the_instance_opens_no_session(sim: Sim) -> None:
    case = await restarting(sim, auto_commit=True)
    delete, commit = case.ask(DeleteInstance()), case.ask(CommitPositions())
    await delete
    with pytest.raises(UnknownInstance):
        await commit
    assert len(case.kafka.sessions) == 2
    assert case.kafka.committed == {ONE: 2}


@scenario
async def test_a_commit_that_waits_behind_the_delete_of_its_subscription_has_no_result_of_its_own(
    sim: Sim,
) -> None:
    """The delete commits for the last time; nobody knows yet whether that succeeds."""
    case = await restarting(sim, auto_commit=True)
    case.kafka.close_takes = 4.0
    delete, commit = case.ask(Unsubscribe()), case.ask(CommitPositions())
    with pytest.raises(IllegalState, match="the subscription was deleted"):
        await commit
    await delete
    assert case.kafka.committed == {ONE: 2}
    assert await case.ask(CommitPositions()) == []


# -- deletes ------------------------------------------------------------------------------------------


async def commits_with_the_delete(sim: Sim, delete: Any, consumes: Any) -> None:
    case = await restarting(sim, consumes, auto_commit=True)
    deletes = [case.ask(delete) for _ in range(2)]
    for each in deletes:
        await each
    assert case.kafka.committed == {ONE: 2}


@BOTH
@pytest.mark.parametrize("delete", [Unsubscribe(), DeleteInstance()])
def test_a_delete_commits_what_was_handed_out_before_the_restart(delete: Any, consumes: Any) -> None:
    simulated(commits_with_the_delete, delete, consumes)


async def waits_no_longer(sim: Sim, delete: Any) -> None:
    case = await restarting(sim, takes=1000.0, auto_commit=True)
    begun = now()
    await case.ask(delete)
    assert now() - begun < case.conf.join_timeout + case.conf.close_timeout + 0.1


@pytest.mark.parametrize("delete", [Unsubscribe(), DeleteInstance()])
def test_a_delete_does_not_wait_for_ever(delete: Any) -> None:
    simulated(waits_no_longer, delete)


async def waits_for_nothing(sim: Sim, delete: Any) -> None:
    case = await restarting(sim, takes=1000.0)
    begun = now()
    await case.ask(delete)
    assert now() - begun < 0.5


@pytest.mark.parametrize("delete", [Unsubscribe(), DeleteInstance()])
def test_without_automatic_commits_a_delete_does_not_wait(delete: Any) -> None:
    simulated(waits_for_nothing, delete)


async def waits_with_a_delete(sim: Sim) -> tuple[Case, Any]:
    """An instance that restarts, and a DELETE of its subscription."""
    case = await restarting(sim, SUBSCRIBED, auto_commit=True)
    delete = case.ask(Unsubscribe())
    await asyncio.sleep(0.5)
    return case, delete


@scenario
async def test_a_delete_whose_client_has_gone_deletes_no_subscription(sim: Sim) -> None:
    case, delete = await waits_with_a_delete(sim)
    delete.cancel()
    await asyncio.sleep(5)
    assert await case.ask(GetSubscription()) == [TOPIC]
    assert await case.read() == [(0, 2)]


@scenario
async def test_a_delete_that_waits_leaves_a_later_subscription(sim: Sim) -> None:
    case, delete = await waits_with_a_delete(sim)
    case.kafka.sessions[-1]._last = 0.0  # it answers a subscription at once, though the group still joins
    await case.ask(SubscribeTo((TOPIC, "other")))
    await delete
    await asyncio.sleep(5)
    assert await case.ask(GetSubscription()) == ["other", TOPIC]
    assert not case.kafka.sessions[-1].closed


@scenario
async def test_a_delete_that_waits_leaves_a_later_subscription_to_the_same_topics(sim: Sim) -> None:
    case, delete = await waits_with_a_delete(sim)
    await case.ask(SUBSCRIBED)
    await delete
    assert await case.ask(GetSubscription()) == [TOPIC]
    assert await case.read() == [(0, 2)]


async def deletes_what_is_in_effect(sim: Sim, consumes: Any, change: Any, later: list[Any]) -> None:
    case = await failing(sim, consumes, takes=1.0, auto_commit=True)
    case.kafka.change_fails = [DOWN] * (2 + len(later))
    while len(case.kafka.sessions) < 2:
        await asyncio.sleep(0.01)
    first = case.ask(change)
    await asyncio.sleep(0.2)
    delete = case.ask(Unsubscribe())
    await asyncio.sleep(0.2)
    for each in (first, *map(case.ask, later)):
        with pytest.raises(KafkaError, match="no coordinator"):
            await each
    await delete
    assert await case.ask(GetAssignment()) == await case.ask(GetSubscription()) == []
    with pytest.raises(IllegalState, match="not subscribed"):
        await case.read()


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize(
    ("consumes", "changes"),
    [
        (CHOSEN, (AssignPartitions((ONE, OTHER)), AssignPartitions((OTHER,)))),
        (SUBSCRIBED, (SubscribeTo((TOPIC, "other")), SubscribeTo(("other",)))),
    ],
)
def test_a_delete_that_waits_is_not_undone_by_changes_that_fail(
    consumes: Any, changes: tuple[Any, Any], later: int
) -> None:
    simulated(deletes_what_is_in_effect, consumes, changes[0], list(changes[1 : 1 + later]))


@scenario
async def test_a_stop_of_the_system_ends_what_waits(sim: Sim) -> None:
    case = await restarting(sim, takes=1000.0, auto_commit=True)
    waiting = [case.ask(each) for each in (CommitPositions(), Unsubscribe(), DeleteInstance())]
    case.ref.stop(block=False)
    for each in waiting:
        with pytest.raises((Unavailable, UnknownInstance, ActorDeadError)):
            await each
