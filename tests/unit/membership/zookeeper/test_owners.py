"""Who is a member of a group, as ZooKeeper says."""

from __future__ import annotations

from typing import Any

import pytest

from actors.testing import Sim, simulate
from pixy.config.model import Proxy
from pixy.membership.zookeeper import groups as module
from pixy.membership.zookeeper.groups import ZooKeeperGroups
from tests.unit.membership.zookeeper.model import ModelKeeper
from tests.unit.membership.zookeeper.world import World


def test_members_are_those_that_have_registered_or_still_hold_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(sim: Sim) -> None:
        world = World(sim.rng, t=2)
        proxy = Proxy()
        outlook: Any = None
        proxy.zoo_keeper.chroot = "/kafka"
        monkeypatch.setattr(module, "Connection", lambda _conf: ModelKeeper(world.server, sim.rng))
        known = ZooKeeperGroups(proxy, outlook)

        async def members() -> list[str]:
            found = await known.owners("", "g")
            assert set(found) <= {"g"}
            return sorted(found.get("g", ()))

        assert await members() == [], "there is no such group"
        one, two = world.start("one"), world.start("two")
        await world.until(lambda: set(world.owners().values()) == {"one", "two"})
        assert await members() == ["one", "two"]
        await two.leave()
        await world.until(lambda: set(world.owners().values()) == {"one"} and len(world.owners()) == 2)
        await one.member.stop()
        world.server.delete(world.layout.member("one"))
        assert await members() == ["one"], "it may still commit"
        one.keeper.expire()
        assert await members() == []
        assert await known.owners("", "no/znode") == {}, "so a group of Kafka's own can have this name"

    simulate(run)
