"""Groups by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor, ActorDeadError, ActorSystem
from actors.patterns import GroupFull, Groups
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Ear(Actor):
    mailbox_capacity = 2

    def __init__(self, heard: list[Any]) -> None:
        super().__init__()
        self.heard = heard

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Exception):
            raise message
        self.heard.append((self.actor_ref.name, message))


@virtual_time
async def test_members_join_leave_and_hear_what_is_broadcast() -> None:
    async with virtual_system() as system:
        heard: list[Any] = []
        groups = Groups(system)
        a, b, c = (system.spawn(Ear, heard, name=name) for name in "abc")
        for ref in (b, a, c, b):
            groups.join("all", ref)
        groups.join("some", a)
        assert groups.members("all") == (b, a, c), "in order, and once"
        assert groups.broadcast("all", 1) == 3 and groups.broadcast("nobody", 1) == 0
        await asyncio.sleep(0.01)
        assert sorted(heard) == [("a", 1), ("b", 1), ("c", 1)]
        assert groups.leave("all", a) and not groups.leave("all", a)
        assert groups.members("all") == (b, c) and groups.members("some") == (a,)
        assert groups.names() == ("all", "some")
        groups.leave("some", a)
        assert groups.names() == ("all",), "a group without members is gone"


@virtual_time
async def test_an_actor_that_stops_or_fails_leaves_all_its_groups() -> None:
    async with virtual_system() as system:
        groups = Groups(system)
        a, b, c = (system.spawn(Ear, [], name=name) for name in "abc")
        for name in ("x", "y"):
            for ref in (a, b, c):
                groups.join(name, ref)
        await a.stop(block=False)
        b.tell(ValueError("b"))
        await asyncio.sleep(0.01)
        assert groups.members("x") == groups.members("y") == (c,)
        assert groups.refs() == (c,), "nothing is kept of the dead"
        groups.join("x", a)
        assert groups.members("x") == (c,), "a dead actor is no member"
        await asyncio.sleep(0.01)
        assert groups.refs() == (c,)


@virtual_time
async def test_the_watch_survives_a_failure_of_the_keeper() -> None:
    async with virtual_system() as system:
        groups = Groups(system)
        a = system.spawn(Ear, [])
        groups.join("x", a)
        await asyncio.sleep(0.01)
        groups._keeper._cell.fail(RuntimeError("keeper"), "task")
        await asyncio.sleep(1)
        assert groups._keeper.statistics().restarts == 1
        await a.stop(block=False)
        await asyncio.sleep(0.01)
        assert groups.refs() == ()


@virtual_time
async def test_full_mailboxes_and_the_capacity() -> None:
    async with virtual_system() as system:
        groups = Groups(system, capacity=2)
        a, b, c = (system.spawn(Ear, [], name=name) for name in "abc")
        groups.join("x", a)
        groups.join("x", b)
        with pytest.raises(GroupFull, match="have 2 members"):
            groups.join("x", c)
        assert groups.members("x") == (a, b)
        groups.leave("x", b)
        groups.join("x", c)
        assert [groups.broadcast("x", number) for number in range(3)] == [2, 2, 0]


@virtual_time
async def test_more_actors_join_in_one_turn_than_the_keepers_mailbox_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("actors.patterns.groups.AT_ONCE", 2)
    async with virtual_system(mailbox_capacity=1) as system:
        groups = Groups(system)
        await asyncio.sleep(0.01)  # its keeper watches those who have joined before its start
        refs = [system.spawn(Actor) for _ in range(50)]
        for ref in refs:  # the priority lane takes 16
            groups.join("x", ref)
        for _ in range(20):
            groups.leave("x", refs[0])
            groups.join("x", refs[0])
        await asyncio.sleep(0.01)
        await asyncio.gather(*(ref.stop(block=False) for ref in refs[:-1]))
        await asyncio.sleep(0.01)
        assert groups.refs() == (refs[-1],), "all members are watched"


async def test_a_stopped_system_has_no_groups() -> None:
    async with ActorSystem() as system:
        groups = Groups(system)
        ref = system.spawn(Ear, [])
    with pytest.raises(ActorDeadError):
        groups.join("x", ref)
    assert groups.refs() == ()
