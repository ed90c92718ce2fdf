"""The simulations' model of a session keeps the rules that Kafka's sessions keep."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from actors.testing import Sim, simulate
from pixy.membership import Assigned, AssignedPartition, Revoked
from tests.unit.engine.consume.group_model import Log, ModelSession
from tests.unit.engine.records import TOPIC
from tests.unit.membership.conformance import CHECKS, Member, Stage


class ModelStage(Stage):
    topic = TOPIC

    def __init__(self, rng: random.Random) -> None:
        self.log = Log()
        self.rng = rng

    def open(self) -> Member:
        member = Member(TOPIC)
        member.session = ModelSession(self.log, member.post, self.rng, partitions=2)
        return member

    async def revoke(self, member: Member) -> tuple[Revoked, Callable[[], Awaitable[AssignedPartition]]]:
        session = member.session
        assert isinstance(session, ModelSession)
        rebalance = asyncio.create_task(session.rebalance((1,)))
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
