"""Requests to an instance by its name, which another one may have by now."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pytest

from actors.testing import Sim
from pixy.config.model import Proxy
from pixy.engine.instances.client import InstanceClient
from pixy.engine.instances.messages import DeleteInstance, GetSubscription, InstanceSpec, SubscribeTo
from pixy.engine.instances.registry import Instances
from pixy.errors import IllegalState, UnknownInstance
from pixy.kafka.consumer import Commit
from tests.unit.engine.instances.instance_model import READ, Catalogue, Kafka, Session, scenario
from tests.unit.engine.records import TOPIC


class Slow(Session):
    """A session that leaves its group when ``left`` is set."""

    left: asyncio.Event

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        await self.left.wait()
        self.closed = True


@scenario
async def test_a_name_that_is_taken_again_reaches_the_new_instance(sim: Sim) -> None:
    kafka, rng, left = Kafka(), random.Random(sim.rng.random()), asyncio.Event()

    def open_session(_group: str, _name: str, _spec: Any, resume: Any, post: Any) -> Slow:
        made = Slow(kafka, rng, resume, post)
        made.left = left
        return made

    registry = sim.system.spawn(Instances, Proxy(), "", open_session, Catalogue(kafka))  # type: ignore[arg-type]

    async def found() -> Any:
        return registry

    creator, other, reader = (InstanceClient(found) for _ in range(3))
    await creator.create("g", "One", InstanceSpec())
    for client in (creator, other, reader):
        for name in ("One", "one"):
            await client.ask("g", name, SubscribeTo((TOPIC,)))
    first = await creator.find("g", "One")
    deleting = asyncio.ensure_future(creator.ask("g", "One", DeleteInstance()))
    await asyncio.sleep(1)
    assert (await other.find("g", "One")).is_alive(), "it knows the first one, which closes"
    await creator.create("g", "one", InstanceSpec())
    assert await creator.find("g", "One") is not first
    for name in ("One", "one"):
        with pytest.raises(IllegalState):  # it has no subscription
            await reader.read("g", name, READ)
    for client in (creator, other):
        for name in ("One", "one"):
            assert await client.ask("g", name, GetSubscription()) == []
    assert not deleting.done(), "the first one is still closing"
    again = asyncio.ensure_future(creator.ask("g", "one", DeleteInstance()))
    await asyncio.sleep(1)
    for client in (creator, other):
        with pytest.raises(UnknownInstance):
            await client.ask("g", "one", GetSubscription())
        with pytest.raises(UnknownInstance):
            await client.read("g", "One", READ)
    left.set()
    await asyncio.gather(deleting, again)
