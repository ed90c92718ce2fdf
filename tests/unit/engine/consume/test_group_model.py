"""The simulations' model of a session keeps the rules that Kafka's sessions keep."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from actors.testing import Sim, simulate
from pixy.membership import Assigned, AssignedPartition, Revoked
from tests.model.group import Group
from tests.model.log import Kafka
from tests.model.session import ModelSession
from tests.unit.engine.records import TOPIC
from tests.unit.membership.conformance import CHECKS, MESSAGES, Member, Stage


class ModelStage(Stage):
    topic = TOPIC

    def __init__(self, rng: random.Random) -> None:
        kafka = Kafka()
        kafka.create(TOPIC, 2)
        for number in range(2):
            kafka.produce((TOPIC, number), MESSAGES)
        self.group = Group(kafka, rng)
        self.rng = rng

    def open(self) -> Member:
        member = Member(TOPIC)
        member.session = ModelSession(self.group, member.post, self.rng)
        return member

    async def revoke(self, member: Member) -> tuple[Revoked, Callable[[], Awaitable[AssignedPartition]]]:
        session = member.session
        assert isinstance(session, ModelSession)
        rebalance = asyncio.create_task(session.rebalance([(TOPIC, 1)]))
        revoked = await member.event(Revoked)

        async def next_assignment() -> AssignedPartition:
            await rebalance
            before = member.partitions[TOPIC, 1].epoch
            (start,) = (await member.event(Assigned)).partitions
            assert start.epoch != before
            return start

        return revoked, next_assignment


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_model_conforms(check: Callable[[Stage], Awaitable[None]]) -> None:
    async def scenario(sim: Sim) -> None:
        await check(ModelStage(sim.rng))

    for seed in range(5):
        simulate(scenario, seed=seed)
