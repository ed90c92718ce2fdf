"""Subscriptions and chosen partitions that are changed while an earlier change is under way, and changes that fail."""

from __future__ import annotations

import pytest

from actors.testing import Sim
from pixy.engine.instances.messages import AssignPartitions, GetAssignment, GetSubscription, SubscribeTo
from pixy.errors import IllegalState, KafkaError
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
