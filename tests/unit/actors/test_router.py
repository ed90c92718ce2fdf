"""Routers: policies, full mailboxes, groups of existing actors."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pykka
import pytest

from actors import (
    Actor,
    ActorSystem,
    Broadcast,
    ConsistentHash,
    LeastMailbox,
    MailboxFull,
    Random,
    RoundRobin,
    Router,
    Routing,
)
from actors._core import termination
from actors._core.mailbox import Mailbox
from actors._routing import key_hash
from tests.unit.actors.pools import Held, Worker, names, until
from tests.unit.actors.virtual_time import virtual_system, virtual_time

# -- policies -----------------------------------------------------------------------------------


async def test_round_robin_takes_turns_and_needs_no_hop() -> None:
    async with ActorSystem() as system:
        seen: list[tuple[str, Any]] = []
        router = system.spawn_pool(Worker, seen, size=3, name="pool")
        assert isinstance(router.routing, RoundRobin) and len(router) == 3
        assert await router is router
        for number in range(9):
            router.tell(number)
        # The messages are in the workers' mailboxes when tell() returns.
        assert [ref.statistics().mailbox.normal for ref in router.refs] == [3, 3, 3]
        assert router.pool is not None and router.pool.statistics().mailbox.depth == 0
        await until(lambda: len(seen) == 9)
        assert sorted(system.paths()) == ["/pool", *(f"/pool/Worker-{n}" for n in range(3))]
        for n in range(3):
            assert [m for name, m in seen if name == f"Worker-{n}"] == [n, n + 3, n + 6]


@pytest.mark.parametrize(
    "routing",
    [
        RoundRobin(),
        LeastMailbox(),
        Random(random.Random(5)),
        ConsistentHash(str),
    ],
)
async def test_balance_and_order_per_sender_per_worker(routing: Routing) -> None:
    async with ActorSystem() as system:
        seen: list[tuple[str, Any]] = []
        router = system.spawn_pool(Worker, seen, size=4, routing=routing)
        for number in range(4000):
            router.tell(number)
        await router.stop(block=False)
    assert sorted(message for _, message in seen) == list(range(4000))
    by_worker: dict[str, list[int]] = {}
    for name, message in seen:
        by_worker.setdefault(name, []).append(message)
    assert all(got == sorted(got) for got in by_worker.values())
    counts = [len(got) for got in by_worker.values()]
    exact = isinstance(routing, RoundRobin | LeastMailbox)
    assert len(counts) == 4 and (counts == [1000] * 4 if exact else min(counts) > 600)


@virtual_time
async def test_least_mailbox_avoids_the_busy_and_takes_turns_among_equals() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=3, routing=LeastMailbox())
        await router
        router.refs[0].tell("a")
        router.refs[0].tell("b")
        router.refs[1].tell("c")  # handled at once: its mailbox is empty, but it is busy
        await asyncio.sleep(0.01)
        assert [ref.statistics().mailbox.depth for ref in router.refs] == [1, 0, 0]
        router.tell("d")
        assert [ref.statistics().mailbox.depth for ref in router.refs] == [1, 0, 1]
        await asyncio.sleep(0.01)
        router.tell("e")
        router.tell("f")
        assert [ref.statistics().mailbox.depth for ref in router.refs] == [1, 1, 1]
        gate.set()
        await until(lambda: len(seen) == 6)
        assert len(set(await names(router, range(3)))) == 3


def test_the_hash_is_the_same_in_every_process() -> None:
    assert key_hash("") == key_hash(b"") == 0xE4A6A0577479B2B4
    assert key_hash("orders") == PINNED_HASH
    assert key_hash(17) == key_hash("17") and key_hash("ü") == key_hash("ü".encode())
    with pytest.raises(TypeError, match="routing key"):
        key_hash(None)  # type: ignore[arg-type]


PINNED_HASH = 0xD5ACEBE867B47F4D
PINNED = "0323232311203323003223141311113321224440"
SCRIPT = """
import asyncio
from actors import ActorSystem, ConsistentHash
from tests.unit.actors.test_router import Worker, names
async def main():
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=5, routing=ConsistentHash(lambda m: f"key-{m}"))
        print("".join(name[-1] for name in await names(router, range(40))))
asyncio.run(main())
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_keys_go_to_the_same_places_in_every_process(seed: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.strip() == PINNED


async def test_only_a_share_of_the_keys_moves() -> None:
    keys = [f"key-{n}" for n in range(1000)]
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=8, routing=ConsistentHash(str))
        eight = await names(router, keys)
        assert await router.resize(9) == 9
        nine = await names(router, keys)
        moved = [(a, b) for a, b in zip(eight, nine, strict=True) if a != b]
        assert 40 < len(moved) < 200 and {b for _, b in moved} == {"Worker-8"}
        assert await router.resize(8) == 8
        assert await names(router, keys) == eight
        group = Router.of(router.refs, ConsistentHash(str))
        before = await names(group, keys)
        gone = router.refs[3].name
        await router.refs[3].stop(block=False)
        after = await names(group, keys)
        assert {a for a, b in zip(before, after, strict=True) if a != b} == {gone}
        await until(lambda: len(router) == 8)
        assert await names(router, keys) == eight  # the replacement takes its place


async def test_broadcast() -> None:
    async with ActorSystem() as system:
        seen: list[tuple[str, Any]] = []
        router = system.spawn_pool(Worker, seen, size=3, routing=Broadcast())
        router.tell("t")
        await router.send("s")
        assert router.broadcast("b") == 3 and router.notify("n")
        assert await router.ask("a", block=False) == ["Worker-0", "Worker-1", "Worker-2"]
        assert Counter(message for _, message in seen) == dict.fromkeys("tsbna", 3)
        with pytest.raises(ValueError, match="mine"):
            await router.ask(ValueError("mine"), block=False, timeout=5)
        assert await asyncio.to_thread(router.ask, "x", timeout=5) == [f"Worker-{n}" for n in range(3)]


async def test_broadcast_reaches_the_others_when_one_is_full() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=3, routing=Broadcast())
        router.refs[0].tell(1)
        router.refs[0].tell(2)
        assert router.broadcast("b") == 2
        with pytest.raises(MailboxFull):
            router.tell("t")
        assert [ref.statistics().mailbox.normal for ref in router.refs] == [2, 2, 2]
        assert not router.notify("n")
        gate.set()
        await until(lambda: len(seen) == 6)


# -- full mailboxes -----------------------------------------------------------------------------


@virtual_time
async def test_full_mailboxes_refuse_and_send_waits() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=2, routing=LeastMailbox())
        await router
        for number in range(4):
            router.tell(number)
        with pytest.raises(MailboxFull):
            router.tell("no room")
        with pytest.raises(MailboxFull):
            await router.ask("no room", block=False)
        assert not router.notify("no room") and router.statistics().depth == 4
        with pytest.raises(MailboxFull):  # the workers handle two messages: two places are free again
            for number in range(3):
                await router.send(number, timeout=0.01)
        waiting = [asyncio.create_task(router.send(number)) for number in range(6)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        # Senders that wait count: they spread over the workers.
        assert sorted(ref.statistics().mailbox.waiting for ref in router.refs) == [3, 3]
        gate.set()
        await asyncio.gather(*waiting)
        await until(lambda: len(seen) == 12)


@virtual_time
async def test_least_mailbox_counts_senders_that_wait() -> None:
    async with ActorSystem() as system:
        gate = asyncio.Event()
        router = system.spawn_pool(Held, gate, [], size=2, routing=LeastMailbox())
        first, second = await asyncio.gather(*router.refs)
        for ref in (first, second):
            for number in range(3):
                ref.tell(number)
                await asyncio.sleep(0.001)
        sends = [asyncio.create_task(first.send(number)) for number in range(4)]
        await asyncio.sleep(0.001)
        sends += [asyncio.create_task(router.send(number)) for number in range(4)]
        await asyncio.sleep(0.001)
        assert [ref.statistics().mailbox.waiting for ref in (first, second)] == [4, 4]
        gate.set()
        await asyncio.gather(*sends)


@virtual_time
async def test_a_sender_that_waits_for_a_worker_that_stops_gets_another() -> None:
    async with ActorSystem(stop_grace=0.01) as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=2)
        await router
        first, second = router.refs
        for number in range(3):
            first.tell(number)
            await asyncio.sleep(0.001)  # one is being handled, two are in the mailbox
        task = asyncio.create_task(router.send("moved"))
        await asyncio.sleep(0.01)
        assert not task.done()
        task_stop = asyncio.create_task(termination.stop_now(first._cell))
        await task
        gate.set()
        await task_stop
        await until(lambda: seen)
        assert (second.name, "moved") in seen and not first.is_alive()


# -- groups -------------------------------------------------------------------------------------


async def test_a_group_of_existing_actors() -> None:
    async with ActorSystem() as system:
        refs = [system.spawn(Worker, name=f"w{n}") for n in range(3)]
        group = Router.of(refs)
        assert await names(group, range(6)) == ["w0", "w1", "w2"] * 2
        assert group.pool is None and group.statistics().alive == 3
        await refs[1].stop(block=False)
        await group.ask("skips the dead one", block=False)
        await group.ask("and has forgotten it", block=False)
        assert Counter(await names(group, range(6))) == {"w0": 3, "w2": 3}
        assert group.refs == (refs[0], refs[2])
        assert await group.stop(block=False) is True and not system.paths()
        assert await group.stop(block=False) is False
        with pytest.raises(pykka.ActorDeadError, match="no worker"):
            group.tell(1)


class Stuck(Routing):
    """Chooses the same worker for ever, whoever the members are."""

    __slots__ = ("ref",)

    def __init__(self) -> None:
        self.ref: Any = None

    def pick(self, members: Any, message: Any) -> Any:
        self.ref = self.ref or members.refs[0]
        return self.ref


async def test_a_policy_that_insists_on_a_dead_worker_is_an_error_of_its_own() -> None:
    async with ActorSystem() as system:
        router = Router.of([system.spawn(Worker) for _ in range(2)], Stuck())
        assert await router.ask("m", block=False) == "Worker-1"
        await router.refs[0].stop(block=False)
        # The first choice takes the dead worker out of the members, the second one is not among them any more.
        with pytest.raises(ValueError, match="which has stopped and is none of <Router group: 1 workers>"):
            router.tell("m")
        with pytest.raises(ValueError, match="chose Worker"):
            await router.ask("m", block=False)


@virtual_time
async def test_an_ask_keeps_its_timeout_although_a_thread_takes_its_reply_over_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push = Mailbox.push

    def taken(mailbox: Mailbox, envelope: Any) -> None:
        push(mailbox, envelope)
        envelope[1].target = None  # as take_reply() does, in the worker's thread

    gate = asyncio.Event()
    async with virtual_system() as system:
        router = system.spawn_pool(Held, gate, [], size=1)
        monkeypatch.setattr(Mailbox, "push", taken)
        with pytest.raises(pykka.Timeout):
            await asyncio.wait_for(router.ask("message", block=False, timeout=1.0), 60.0)
        gate.set()


async def test_a_broadcast_that_waits_for_room_in_actors_which_die_is_not_taken_for_sent() -> None:
    async with ActorSystem() as system:
        gates = [asyncio.Event(), asyncio.Event()]
        refs = [system.spawn(OneAtATime, gate) for gate in gates]
        for ref in refs:
            ref.tell("wait")
            while ref._cell.envelope is None:
                await asyncio.sleep(0)
            ref.tell("fills the mailbox")
        router = Router.of(refs, Broadcast())
        sending = asyncio.ensure_future(router.send("late"))
        await asyncio.sleep(0)
        for gate in gates:
            gate.set()
        with pytest.raises(pykka.ActorDeadError):
            await sending


class OneAtATime(Actor):
    """Fails when its gate opens."""

    mailbox_capacity = 1

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self.gate = gate

    async def on_receive(self, message: Any) -> Any:
        await self.gate.wait()
        raise ValueError
