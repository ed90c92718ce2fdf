"""Subscriptions and chosen partitions that are changed while an earlier change is under way, and changes that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from actors.testing import Sim, simulate
from pixy.engine.instances.context import END
from pixy.engine.instances.messages import (
    AssignPartitions,
    CommitPositions,
    GetAssignment,
    GetSubscription,
    ReadBatch,
    ReadRecords,
    SeekTo,
    SubscribeTo,
)
from pixy.errors import IllegalState, KafkaError
from pixy.membership.instances import Assigned
from pixy.wire.types import TopicPartition
from tests.unit.engine.instances.instance_model import READ, Case, scenario
from tests.unit.engine.records import TOPIC

ONE, OTHER = (TOPIC, 0), (TOPIC, 1)
DOWN = KafkaError("no coordinator", 15, "COORDINATOR_NOT_AVAILABLE")


def started(sim: Sim, *outcomes: KafkaError | None) -> Case:
    """An instance whose next changes end so; each partition has three records."""
    case = Case(sim).start()
    for number in range(2):
        case.kafka.produce(number, 3)
    case.kafka.change_fails = list(outcomes)
    return case


@scenario
async def test_an_assignment_that_fails_undoes_no_later_one(sim: Sim) -> None:
    """The client's own time was up, and it has asked again, say."""
    case = started(sim, DOWN, None)
    first, again = (case.ask(AssignPartitions((ONE,))) for _ in range(2))
    with pytest.raises(KafkaError, match="no coordinator"):
        await first
    await again
    assert await case.ask(GetAssignment()) == [ONE]
    assert await case.read() == [(0, 0), (0, 1), (0, 2)]


@scenario
async def test_assignments_that_all_fail_leave_what_was_in_effect(sim: Sim) -> None:
    case = started(sim, None, DOWN, DOWN)
    await case.ask(AssignPartitions((ONE,)))
    for change in [case.ask(AssignPartitions((OTHER,))) for _ in range(2)]:
        with pytest.raises(KafkaError, match="no coordinator"):
            await change
    assert await case.ask(GetAssignment()) == [ONE]
    with pytest.raises(IllegalState, match="mutually exclusive"):
        await case.subscribe()
    assert await case.read() == [(0, 0), (0, 1), (0, 2)]


@scenario
async def test_first_assignments_that_all_fail_leave_nothing(sim: Sim) -> None:
    case = started(sim, DOWN, DOWN)
    for change in [case.ask(AssignPartitions((ONE,))) for _ in range(2)]:
        with pytest.raises(KafkaError, match="no coordinator"):
            await change
    with pytest.raises(IllegalState, match="not subscribed to any topics or assigned any partitions"):
        await case.read()
    await case.subscribe()


@scenario
async def test_a_subscription_that_fails_undoes_no_later_one_and_fails_no_read_of_it(sim: Sim) -> None:
    case = started(sim, DOWN, None)
    first, later = case.ask(SubscribeTo(("other",))), case.ask(SubscribeTo((TOPIC,)))
    read = case.ask(READ)
    with pytest.raises(KafkaError, match="no coordinator"):
        await first
    await later
    assert await case.ask(GetSubscription()) == [TOPIC]
    assert len((await read).records)


@scenario
async def test_a_subscription_that_fails_alone_is_undone_and_fails_the_reads_that_wait(sim: Sim) -> None:
    case = started(sim, DOWN)
    subscription, read = case.ask(SubscribeTo((TOPIC,))), case.ask(READ)
    for each in (subscription, read):
        with pytest.raises(KafkaError, match="no coordinator"):
            await each
    assert await case.ask(GetSubscription()) == []


# -- reads while chosen partitions are changed --------------------------------------------------------


async def changing(sim: Sim) -> Case:
    """An instance whose reader had two records of a partition, and begins to choose another one besides it."""
    case = started(sim)
    await case.ask(AssignPartitions((ONE,)))
    await case.read(ReadRecords(1000, 1))
    await case.read(ReadRecords(1000, 1))
    return case


@scenario
async def test_what_is_read_while_chosen_partitions_are_changed_does_not_come_again(sim: Sim) -> None:
    case = await changing(sim)
    case.kafka.change_takes = 1.0
    change = case.ask(AssignPartitions((ONE, OTHER)))
    assert await case.read() == [(0, 2)]
    await change
    assert await case.read() == [(1, 0), (1, 1), (1, 2)]
    case.kafka.produce(0)
    assert await case.read() == [(0, 3)]
    assert await case.ask(CommitPositions()) == [(ONE, 3, 3), (OTHER, 2, 2)]


@pytest.mark.parametrize("sent", [True, False])
def test_neither_does_what_is_on_its_way_to_the_reader_meanwhile(sent: bool) -> None:
    """But it does if it does not arrive."""

    async def run(sim: Sim) -> None:
        case = await changing(sim)
        case.kafka.change_takes = 1.0
        change = case.ask(AssignPartitions((ONE, OTHER)))
        batch: ReadBatch = await case.ask(READ)
        await change
        (batch.sent if sent else batch.give_back)()
        await asyncio.sleep(0.1)
        found = [*await case.read(), *await case.read()]
        assert sorted(found) == [*([] if sent else [(0, 2)]), (1, 0), (1, 1), (1, 2)]

    for mode in ("actors", "pct", "harsh"):
        simulate(run, seed=1, mode=mode)


@scenario
async def test_a_seek_after_the_change_returns_what_was_read_during_it(sim: Sim) -> None:
    case = await changing(sim)
    case.kafka.change_takes = 1.0
    change = case.ask(AssignPartitions((ONE,)))
    await case.read()
    await change
    await case.ask(SeekTo({ONE: 1}, {}))
    assert await case.read() == [(0, 1), (0, 2)]


@scenario
async def test_assignments_one_after_the_other_keep_the_positions_of_those_before(sim: Sim) -> None:
    case = await changing(sim)
    case.kafka.change_takes = 1.0
    changes = [case.ask(AssignPartitions(each)) for each in ((ONE, OTHER), (OTHER,), (ONE, OTHER))]
    assert await case.read() == [(0, 2)]
    for each in changes:
        await each
    assert await case.read() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], "the second has given it up"


@scenario
async def test_a_change_right_after_a_seek_does_not_undo_it(sim: Sim) -> None:
    case = started(sim)
    await case.ask(AssignPartitions((ONE,)))
    assert await case.read() == [(0, 0), (0, 1), (0, 2)]
    seek, change = case.ask(SeekTo({ONE: 0}, {})), case.ask(AssignPartitions((ONE, OTHER)))
    await seek
    await change
    found = [*await case.read(), *await case.read()]
    assert sorted(found) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


async def waiting(sim: Sim) -> tuple[Case, list[dict[TopicPartition, int]]]:
    """An instance that waits for the leader of its partition, and what its session is told to keep from then on."""
    case = started(sim)
    await case.ask(AssignPartitions((ONE,)))
    session = case.kafka.sessions[-1]
    session.post(Assigned({ONE: END}))
    told: list[dict[TopicPartition, int]] = []
    assign = session.assign

    def recorded(token: int, partitions: Any, keep: Mapping[TopicPartition, int], **options: Any) -> None:
        told.append(dict(keep))
        assign(token, partitions, keep, **options)

    session.assign = recorded  # type: ignore[method-assign]
    return case, told


@scenario
async def test_a_change_right_after_seeks_before_the_beginning_is_known_undoes_none(sim: Sim) -> None:
    case, told = await waiting(sim)
    seeks = []
    for each in (1, 2):
        seeks.append(case.ask(SeekTo({ONE: each}, {})))
        await asyncio.sleep(0.001)  # in this order
    await case.ask(AssignPartitions((ONE, OTHER)))
    for seek in seeks:
        await seek
    assert told == [{ONE: 1}], "the later one may fail"
    found = [*await case.read(), *await case.read()]
    assert sorted(found) == [(0, 2), (1, 0), (1, 1), (1, 2)]


@scenario
async def test_a_change_tells_the_session_which_partitions_still_wait(sim: Sim) -> None:
    """It knows since when, and the reader keeps what it reads of one that begins meanwhile."""
    case, told = await waiting(sim)
    await case.ask(AssignPartitions((ONE, OTHER)))
    assert told == [{ONE: END}]
