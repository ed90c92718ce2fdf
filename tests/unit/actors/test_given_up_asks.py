"""Asks that were given up make room in mailbox and stash before their turn."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from actors import Actor, ActorRef, ActorSystem, Dropped, MailboxFull, ThreadedActor, Timeout, Wait
from actors._core import room
from actors._core.pykka_names import ActorStop
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Busy(Actor):
    mailbox_capacity = 4
    stash_capacity = 3

    def __init__(self) -> None:
        super().__init__()
        self.handled: list[Any] = []
        self.go_on = asyncio.Event()

    async def on_receive(self, message: Any) -> Any:
        self.handled.append(message)
        if message == "block":
            await self.go_on.wait()
        if message == "put aside":
            self.stash()
        if message == "handled":
            return self.handled
        return message


def release(ref: ActorRef[Any]) -> None:
    actor: Any = ref._cell.actor
    actor.go_on.set()


@virtual_time
async def test_asks_that_time_out_make_room_in_a_full_mailbox() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        lost = [ref.ask(number, block=False, timeout=1.0) for number in range(4)]
        with pytest.raises(MailboxFull):
            ref.tell("one more")
        await asyncio.sleep(2.0)
        assert all(isinstance(each.exception(), Timeout) for each in lost)
        for number in range(4):
            ref.tell(number + 10)
        with pytest.raises(MailboxFull):
            ref.tell("one more")
        release(ref)
        await asyncio.sleep(0.1)
        assert await ref.ask("handled", block=False) == ["block", 10, 11, 12, 13, "handled"]
        assert ref.statistics().abandoned == 4


@virtual_time
async def test_a_sender_that_waits_gets_the_room_of_a_cancelled_ask() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        asks = [ref.ask(number, block=False) for number in range(4)]
        waiting = asyncio.ensure_future(ref.send("waited"))
        await asyncio.sleep(0)
        assert not waiting.done()
        asks[1].cancel()
        await asyncio.wait_for(waiting, 1.0)
        release(ref)
        assert await asks[3] == 3
        assert await ref.ask("handled", block=False) == ["block", 0, 2, 3, "waited", "handled"]


@virtual_time
async def test_urgent_asks_that_are_given_up_make_room() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        asks = [ref.ask(number, block=False, urgent=True) for number in range(64)]
        with pytest.raises(MailboxFull):
            ref.tell("one more", urgent=True)
        asks[0].cancel()
        ref.tell("fits", urgent=True)
        release(ref)


@virtual_time
async def test_asks_that_are_given_up_make_room_in_a_full_stash() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        asks = [ref.ask("put aside", block=False, timeout=1.0) for _ in range(3)]
        await asyncio.sleep(2.0)
        assert all(isinstance(each.exception(), Timeout) for each in asks)
        ref.tell("put aside")  # its failure would end the actor
        await asyncio.sleep(0.1)
        assert ref.is_alive() and len(ref._cell.stashed or ()) == 1


async def test_a_thread_that_gives_up_makes_room() -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)

        def ask() -> None:
            ref.ask("lost", timeout=0.01)

        for _ in range(4):
            with pytest.raises(Timeout):
                await asyncio.to_thread(ask)
        await asyncio.sleep(0)
        for number in range(4):
            ref.tell(number)
        release(ref)


@virtual_time
async def test_what_is_no_ask_that_was_given_up_stays() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        ref.tell("first")
        lost = ref.ask("lost", block=False)
        answered = ref.ask("second", block=False)
        ref.ask(ActorStop(), block=False).cancel()  # who asks for a stop may go, the stop stays
        lost.cancel()
        release(ref)
        assert await answered == "second"
        actor: Any = ref._cell.actor
        await asyncio.sleep(1.0)
        assert not ref.is_alive() and actor.handled == ["block", "first", "second"]


@virtual_time
async def test_a_router_s_asks_that_are_given_up_make_room() -> None:
    async with virtual_system() as system:
        pool = await system.spawn_pool(Busy, size=1)
        (worker,) = pool.refs
        worker.tell("block")
        await asyncio.sleep(0)
        asks = [pool.ask(number, block=False) for number in range(4)]
        with pytest.raises(MailboxFull):
            worker.tell("one more")
        asks[2].cancel()
        worker.tell("fits")
        release(worker)
        assert await asks[3] == 3


@virtual_time
async def test_nobody_hears_of_a_dropped_message() -> None:
    async with virtual_system() as system:
        dropped: list[Dropped] = []
        system.events.subscribe(dropped.append, Dropped)
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        ref.ask("lost", block=False).cancel()
        statistics = ref.statistics()
        assert (statistics.mailbox.normal, statistics.mailbox.dropped, statistics.abandoned) == (0, 0, 1)
        assert not dropped
        release(ref)


class BlockedThread(ThreadedActor):
    mailbox_capacity = 4
    overflow = Wait()

    def __init__(self) -> None:
        super().__init__()
        self.handled: list[Any] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def on_receive(self, message: Any) -> Any:
        self.handled.append(message)
        if message == "block":
            self.begun.set()
            self.go_on.wait(10)
        return list(self.handled)


async def test_a_blocked_thread_s_mailbox_lets_in_who_waits() -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(BlockedThread)
        ref.tell("block")
        actor: Any = ref._cell.actor
        await asyncio.to_thread(actor.begun.wait, 10)
        lost = [ref.ask(number, block=False) for number in range(4)]
        waiting = asyncio.ensure_future(asyncio.to_thread(ref.tell, "waited"))
        sent = asyncio.ensure_future(ref.send("sent"))
        while len(ref._cell.mailbox.waiting or ()) < 2:
            await asyncio.sleep(0.001)
        lost[0].cancel()
        lost[3].cancel()
        await asyncio.wait_for(asyncio.gather(waiting, sent), 10)
        actor.go_on.set()
        handled = await ref.ask("last", block=False)
        assert handled[:3] == ["block", 1, 2] and set(handled[3:5]) == {"waited", "sent"}


@virtual_time
async def test_a_message_that_comes_during_the_look_is_neither_lost_nor_overtaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = room._is_given_up
    sent: list[int] = []

    def sends(envelope: Any) -> bool:  # as a signal handler may, in any place
        if not sent:
            sent.append(1)
            ref.tell("sent meanwhile")
        return original(envelope)

    monkeypatch.setattr(room, "_is_given_up", sends)
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        ref.tell("first")
        lost = ref.ask("lost", block=False)
        ref.tell("last")
        lost.cancel()
        assert [each[0] for each in ref._cell.mailbox] == ["first", "last", "sent meanwhile"]
        release(ref)


@virtual_time
async def test_one_given_up_in_the_middle_of_a_put_makes_room_soon() -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Busy)
        ref.tell("block")
        await asyncio.sleep(0)
        lost = ref.ask("lost", block=False)
        with ref._cell.mailbox.lock:  # as a signal handler finds it
            lost.cancel()
            assert len(ref._cell.mailbox) == 1
        await asyncio.sleep(0)
        assert len(ref._cell.mailbox) == 0
        release(ref)


@virtual_time
async def test_each_that_is_given_up_costs_a_bounded_number_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    original = room._is_given_up

    def counted(envelope: Any) -> bool:
        nonlocal looks
        looks += 1
        return original(envelope)

    class Big(Busy):
        mailbox_capacity = stash_capacity = 10_000

    async with virtual_system() as system:
        ref = await system.spawn(Big)
        ref.tell("block")
        await asyncio.sleep(0)
        asks = [ref.ask(number, block=False) for number in range(6_400)]
        monkeypatch.setattr(room, "_is_given_up", counted)
        for each in asks[:3_200]:
            each.cancel()
        assert looks <= 3_200 * room.SHARE
        assert len(ref._cell.mailbox) <= 3_200 + 10_000 // room.SHARE
        release(ref)
        assert await asks[-1] == 6_399
        assert ref.statistics().abandoned == 3_200
