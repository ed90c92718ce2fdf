"""What a client and a session see of a broker's death. They need three brokers."""

from __future__ import annotations

from tests.model.world import World


async def a_partition_without_a_leader_delays_no_other_while_the_coordinator_moves(world: World) -> None:
    await world.topic("t")
    await world.produce("t/0", 2)
    await world.topic_on_coordinator("u")
    await world.produce("u/0", 3)
    a, c = world.member("a"), world.client("c")
    await a.joins(t=1, u=1)
    await a.assigned("t/0", "u/0")
    await a.fetched("t/0", 1)
    await a.fetched("u/0", 2)
    await a.commits(t_0=1, u_0=2)
    await c.assign({"t/0": 0, "u/0": 0})
    await c.fetched("u/0", 2)
    await world.coordinator_dies()
    await world.produce("t/0", 2)
    await c.fetched("t/0", 3)
    await a.fetched("t/0", 3)
    await a.commits(t_0=3, u_0=3)
    await a.leaves()
    b = world.member("b")
    await b.joins(t=1, u=1)
    await b.assigned("t/0")
    await b.fetched("t/0", 3)
    await world.broker_returns()
    await world.produce("u/0", 1)
    await b.assigned("u/0")
    await b.fetched("u/0", 3)
    await c.fetched("u/0", 3)


SCENARIOS = (a_partition_without_a_leader_delays_no_other_while_the_coordinator_moves,)
