"""A member of a group in a model of ZooKeeper, in virtual time: shares, hand-over, loss, leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from actors.testing import Sim, simulate
from pixy.membership.zookeeper.keeper import KeeperError
from tests import effort
from tests.unit.membership.zookeeper.world import TIMEOUT, GoInstance, World

Scenario = Callable[[World], Awaitable[None]]


def play(scenario: Scenario, seeds: int = 20, **topics: int) -> None:
    """Run a scenario with several schedules."""

    async def run(sim: Sim) -> None:
        world = World(sim.rng, **(topics or {"t": 4}))
        await scenario(world)
        for instance in world.members.values():
            assert instance.error is None, instance.error
            await instance.member.stop()

    for seed in range(seeds):
        simulate(run, seed=seed)


def test_the_first_member_registers_and_claims_everything() -> None:
    async def scenario(world: World) -> None:
        one = world.start("one")
        await world.settled()
        nodes = world.server.nodes
        assert nodes["/kafka/consumers/g/ids/one"].data.startswith(
            b'{"subscription":{"t":1},"pattern":"static",'
        )
        assert nodes["/kafka/consumers/g/owners/t/3"].data == b"one"
        assert one.log == [("acquire", [0, 1, 2, 3])]

    play(scenario)


def test_partitions_are_shared_by_ranges_as_members_come_and_go() -> None:
    async def scenario(world: World) -> None:
        world.start("b")
        await world.settled()
        world.start("a")
        await world.until(lambda: world.shares() == {"a": [0, 1, 2, 3], "b": [4, 5, 6]})
        world.start("c")
        await world.until(lambda: world.shares() == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]})
        await world.members.pop("a").leave()
        await world.until(lambda: world.shares() == {"b": [0, 1, 2, 3], "c": [4, 5, 6]})
        await world.settled()

    play(scenario, t=7)


def test_a_member_without_partitions_has_joined_all_the_same() -> None:
    async def scenario(world: World) -> None:
        world.start("a")
        await world.settled()
        surplus = world.start("b")
        await world.until(lambda: surplus.log == [("joined", [])])

    play(scenario, t=1)


def test_members_that_come_to_a_new_group_together_know_that_it_is_new() -> None:
    async def scenario(world: World) -> None:
        for name in "abc":
            world.start(name)
        await world.until(lambda: len(world.begun) == 4)
        for partition, name in world.begun.items():
            assert partition not in world.members[name].established, f"{name} takes it for an old group"
        together.append(len(set(world.begun.values())))
        later = world.start("d")
        await world.until(lambda: "d" in world.shares())
        assert later.established

    together: list[int] = []
    play(scenario, seeds=60)
    assert 1 in together and max(together) > 1, together


@pytest.mark.slow
def test_a_claim_waits_until_the_owner_has_drained() -> None:
    async def scenario(world: World) -> None:
        world.start("a", drain=100.0)
        await world.settled()
        b = world.start("b")
        await world.until(lambda: world.shares() == {"a": [0, 1], "b": [2, 3]})
        assert ("joined", []) not in b.log, "it joined with what it waited for"

    play(scenario)


def test_a_killed_member_is_replaced_when_its_session_expires() -> None:
    async def scenario(world: World) -> None:
        world.start("a")
        world.start("b")
        await world.until(lambda: world.shares() == {"a": [0, 1], "b": [2, 3]})
        dead = world.members.pop("a")
        await dead.kill()
        await asyncio.sleep(TIMEOUT)
        assert world.shares() == {"b": [2, 3]}
        dead.keeper.expire()
        await world.until(lambda: world.shares() == {"b": [0, 1, 2, 3]})

    play(scenario)


def test_a_restarted_member_waits_for_the_claims_of_its_earlier_life() -> None:
    """The original takes them as its own, and consumes on when they expire and go to another member."""

    async def scenario(world: World) -> None:
        dead = world.start("a")
        await world.settled()
        await dead.kill()
        again = world.start("a")
        await asyncio.sleep(TIMEOUT)
        assert again.log == []
        dead.keeper.expire()
        await world.settled()
        await world.until(lambda: "/kafka/consumers/g/ids/a" in world.server.nodes)
        assert world.server.nodes["/kafka/consumers/g/ids/a"].session == again.keeper.session

    play(scenario)


def test_an_expired_session_loses_everything_and_joins_again() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        a.keeper.expire()
        a.keeper.drop()
        a.keeper.reconnect()
        assert a.log[-1] == ("lose", [0, 1, 2, 3]), "at once"
        await world.settled()
        assert world.server.nodes["/kafka/consumers/g/ids/a"].session == a.keeper.session

    play(scenario)


def test_a_hand_over_that_was_overtaken_by_a_loss_releases_nothing_new() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a", drain=1000.0)
        await world.settled()
        b = world.start("b")
        await world.until(lambda: ("hand back", [2, 3]) in a.log)
        a.keeper.drop()
        await asyncio.sleep(TIMEOUT / 3 + 0.01)
        a.keeper.expire()
        await world.settled()
        assert world.shares() == {"b": [0, 1, 2, 3]}
        await world.members.pop("b").leave()
        assert b.error is None
        a.keeper.reconnect()
        await world.settled()
        before = list(a.log)
        await asyncio.sleep(1000.0)
        assert a.log == before and set(world.owners().values()) == {"a"}

    play(scenario, seeds=3)


def test_a_partition_that_is_wanted_again_while_it_is_released_is_claimed_after_that() -> None:
    """Else the member takes the claim that it is about to delete for a good one."""

    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        delete = a.keeper.delete

        async def delete_later(path: str) -> None:
            await asyncio.sleep(1.0)
            await delete(path)

        a.keeper.delete = delete_later  # type: ignore[method-assign]
        releasing = asyncio.create_task(a.member._claims.release({("t", 3)}))
        a.member.subscribe(frozenset({"t"}))  # begins a round
        await releasing
        await asyncio.sleep(5)
        assert world.owners()["t", 3] == "a"
        assert not any(what == "lose" for what, _ in a.log)

    play(scenario, seeds=3)


def test_a_short_disconnection_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        before = list(a.log)
        a.keeper.drop()
        await asyncio.sleep(TIMEOUT / 3 - 0.1)
        a.keeper.reconnect()
        await asyncio.sleep(30)
        assert a.log == before
        world.start("b")  # the watches are set again
        await world.until(lambda: world.shares() == {"a": [0, 1], "b": [2, 3]})

    play(scenario)


def test_a_long_disconnection_stops_consuming_before_the_session_can_expire() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        a.keeper.drop()
        await asyncio.sleep(TIMEOUT / 3 + 0.01)
        assert a.log[-1] == ("lose", [0, 1, 2, 3])
        a.keeper.reconnect()  # the session has survived, and with it the claims
        await world.settled()

    play(scenario)


def test_a_claim_that_vanishes_is_lost_at_once_and_claimed_again() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        world.server.delete("/kafka/consumers/g/owners/t/2")
        await world.until(lambda: ("lose", [2]) in a.log, within=0.1)
        await world.settled()
        assert a.log[-1] == ("acquire", [2])

    play(scenario)


def test_a_claim_that_vanishes_while_disconnected_is_lost_on_reconnection() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        a.keeper.drop()
        world.server.delete("/kafka/consumers/g/owners/t/2")
        world.server.create("/kafka/consumers/g/owners/t/2", b"other", world.server.open_session())
        a.keeper.reconnect()
        await world.until(lambda: ("lose", [2]) in a.log, within=1.0)

    play(scenario)


def test_a_registration_that_vanishes_is_made_again() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        world.start("b")
        await world.settled()
        world.server.delete("/kafka/consumers/g/ids/a")
        await world.until(lambda: "/kafka/consumers/g/ids/a" in world.server.nodes)
        await world.settled()
        assert not any(what == "lose" for what, _ in a.log)

    play(scenario)


def test_a_changed_subscription_is_registered_and_shared_again() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a", "t")
        world.start("b", "t", "u")
        wanted = {("t", 0): "a", ("t", 1): "b", ("u", 0): "b", ("u", 1): "b"}
        await world.until(lambda: world.consumers == wanted)
        a.member.subscribe(frozenset({"t", "u"}))
        await world.until(lambda: world.consumers == {**wanted, ("u", 0): "a"})
        a.member.subscribe(frozenset({"u"}))
        await world.until(
            lambda: world.consumers == {("t", 0): "b", ("t", 1): "b", ("u", 0): "a", ("u", 1): "b"}
        )
        a.member.subscribe(frozenset())
        await world.until(lambda: set(world.consumers.values()) == {"b"})
        assert "/kafka/consumers/g/ids/a" not in world.server.nodes

    play(scenario, t=2, u=2)


def test_added_partitions_are_noticed() -> None:
    async def scenario(world: World) -> None:
        world.start("a")
        await world.settled()
        world.topics["t"] = 6
        await world.settled()

    play(scenario)


def test_a_member_of_whose_only_topic_nothing_is_known_has_not_joined() -> None:
    async def scenario(world: World) -> None:
        world.refused.add("t")
        a = world.start("a")
        await asyncio.sleep(5)
        assert not a.log and "/kafka/consumers/g/ids/a" not in world.server.nodes
        world.refused.clear()
        await world.settled()

    play(scenario, seeds=5)


@pytest.mark.parametrize("known", [False, True])
def test_a_topic_that_may_not_be_read_holds_up_no_other(
    known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        a = world.start("a", *(["secret", "t"] if known else ["t"]))
        await world.until(lambda: len(world.consumers) == (6 if known else 4))
        world.refused.add("secret")
        a.member.subscribe(frozenset(["secret", "t"]))
        world.start("b", "t")
        mine = {"a": [0, 1, 0, 1] if known else [0, 1], "b": [2, 3]}
        await world.until(lambda: world.shares() == mine, within=60)
        world.server.delete(world.layout.claim(("t", 0)))
        await world.until(lambda: ("lose", [0]) in a.log, within=60)
        await world.until(lambda: world.consumers.get(("t", 0)) == "a", within=60)
        world.refused.clear()
        await world.until(lambda: len(world.consumers) == 6, within=60)
        await world.settled()

    caplog.set_level("WARNING")
    play(scenario, seeds=5, t=4, secret=2)
    assert caplog.text.count("topic secret: not authorized") == 5, "once for each member that is refused"


def test_the_last_member_removes_the_group() -> None:
    async def scenario(world: World) -> None:
        world.start("a")
        world.start("b")
        await world.settled()
        await world.members.pop("a").leave()
        assert "/kafka/consumers/g" in world.server.nodes
        await world.until(lambda: world.shares() == {"b": [0, 1, 2, 3]})
        await world.members.pop("b").leave()
        assert list(world.server.nodes) == ["", "/kafka", "/kafka/consumers"]

    play(scenario)


def test_a_member_that_left_without_a_connection_deletes_its_znodes_later() -> None:
    """Its session lives on: the daemon's other groups share it."""

    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        a.keeper.drop()
        await world.members.pop("a").leave()
        assert len(world.owners()) == 4
        a.keeper.reconnect()
        await world.until(lambda: not world.owners() and "/kafka/consumers/g/ids/a" not in world.server.nodes)

    play(scenario)


def _gone(world: World, name: str) -> Callable[[], bool]:
    return lambda: not world.owners() and world.layout.member(name) not in world.server.nodes


def test_a_member_that_had_no_time_to_leave_deletes_its_znodes_all_the_same() -> None:
    """Its connection lasts, so nothing but the end of its time makes it."""

    async def scenario(world: World) -> None:
        world.start("a")
        await world.settled()
        await world.members.pop("a").leave(0.0001)
        assert len(world.owners()) == 4
        await world.until(_gone(world, "a"), within=1.0)

    play(scenario)


def test_znodes_that_zookeeper_did_not_delete_are_deleted_later() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        refuse, delete = True, a.keeper.delete

        async def refusing(path: str) -> None:
            if refuse:
                refused.append(asyncio.get_running_loop().time())
                raise KeeperError("zk: refused")
            await delete(path)

        refused: list[float] = []
        a.keeper.delete = refusing
        await world.members.pop("a").leave()
        refused.clear()
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(600)
        assert 5 * 20 < len(refused) < 5 * 30, (
            "every 30 s in the end, for each of four claims and the registration"
        )
        assert refused[0] - begun < 1
        refuse = False
        await world.until(_gone(world, "a"), within=31.0)

    play(scenario, seeds=3)


def test_a_member_that_joins_again_keeps_what_its_earlier_life_did_not_delete() -> None:
    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        await world.members.pop("a").leave(0.0001)
        await asyncio.sleep(world.rng.random() * 0.03)
        again = world.start("a", after=a)
        await world.settled()
        await asyncio.sleep(60)
        assert {kind for kind, _ in again.log} == {"acquire"}

    play(scenario, seeds=60)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"subscription": 7}', b'"text"', b"\xff"])
def test_a_registration_that_is_not_valid_stops_nobody(data: bytes) -> None:
    """In the original it stops the whole group."""

    async def scenario(world: World) -> None:
        a = world.start("a")
        await world.settled()
        world.server.create("/kafka/consumers/g/ids/0", data, world.server.open_session())
        world.start("b")
        await world.until(lambda: world.shares() == {"a": [0, 1], "b": [2, 3]})
        assert not any(what == "lose" for what, _ in a.log)

    play(scenario, seeds=3)


def test_a_member_yields_while_the_group_has_members_in_kafka() -> None:
    async def scenario(world: World) -> None:
        world.kafka_members = True
        a = world.start("a")
        await asyncio.sleep(20)
        assert a.log == [] and not world.owners()
        world.kafka_members = False
        await world.settled()
        world.kafka_members = True
        a.member.yield_to_kafka()  # after a refused commit
        assert a.log[-1] == ("lose", [0, 1, 2, 3])
        await world.until(lambda: not world.owners())
        await asyncio.sleep(20)
        assert not world.consumers
        world.kafka_members = False
        await world.settled()

    play(scenario, seeds=5)


def test_members_of_ours_and_of_the_original_share_a_group() -> None:
    async def scenario(world: World) -> None:
        world.start("b")
        await world.settled()
        gos = {name: asyncio.create_task(GoInstance(world, name).run("t")) for name in ("a", "c")}
        await world.until(lambda: world.shares() == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]})
        await world.members.pop("b").leave()
        await world.until(lambda: world.shares() == {"a": [0, 1, 2, 3], "c": [4, 5, 6]})
        world.start("d")
        await world.until(lambda: world.shares() == {"a": [0, 1, 2], "c": [3, 4], "d": [5, 6]})
        for task in gos.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    play(scenario, t=7)


def test_nothing_that_happens_gives_a_partition_two_consumers() -> None:
    """Members of both kinds come, go, are killed, lose connections and sessions, for a quarter of an hour."""

    async def scenario(world: World) -> None:
        rng = world.rng
        go = asyncio.create_task(GoInstance(world, "m5").run("t"))
        dead = []
        for _ in range(60):
            await asyncio.sleep(rng.random() * 30)
            name = f"m{rng.randrange(4)}"
            member = world.members.get(name)
            if member is None:
                if not any(each.name == name for each in dead):
                    world.start(name, drain=rng.choice((0.1, 5.0)))
                continue
            match rng.randrange(4):
                case 0:
                    await world.members.pop(name).leave()
                case 1:
                    dead.append(world.members.pop(name))
                    await dead[-1].kill()
                    await asyncio.sleep(rng.random() * 5)
                    dead.pop().keeper.expire()
                case 2:
                    member.keeper.drop()
                    await asyncio.sleep(rng.random() * TIMEOUT / 3)
                    member.keeper.reconnect()
                case 3:
                    member.keeper.drop()
                    await asyncio.sleep(TIMEOUT / 3 + 0.001 + rng.random() * 5)
                    member.keeper.expire()
                    await asyncio.sleep(rng.random() * 5)
                    member.keeper.reconnect()
        assert not go.done(), go.exception()
        await world.settled()
        go.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await go

    play(scenario, seeds=len(effort.seeds(4)), t=8)
