"""Pools and routers: who gets a message, what is lost (nothing), what comes back."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pykka
import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Backoff,
    Broadcast,
    ConsistentHash,
    Directive,
    Escalated,
    Intensity,
    LeastMailbox,
    MailboxFull,
    OnError,
    Random,
    RoundRobin,
    Router,
    Routing,
    Supervision,
    WouldDeadlock,
)
from actors._routing import key_hash

QUICK = Supervision(backoff=Backoff(first=0.001, most=0.002))


class Worker(Actor):
    """Notes what it gets; answers with its own name."""

    def __init__(self, seen: list[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self.seen = [] if seen is None else seen

    def on_receive(self, message: Any) -> Any:
        if message == "stop yourself":
            return self.stop()
        if isinstance(message, BaseException):
            raise message
        self.seen.append((self.actor_ref.name, message))
        return self.actor_ref.name


class Held(Worker):
    """Holds each message until it is let go."""

    mailbox_capacity = 2

    def __init__(self, gate: asyncio.Event, seen: list[tuple[str, Any]]) -> None:
        super().__init__(seen)
        self.gate = gate

    async def on_receive(self, message: Any) -> Any:
        if message == "slow":
            await asyncio.sleep(0.02)
        await self.gate.wait()
        return super().on_receive(message)


async def until(condition: Any, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


async def names(router: Router[Any], messages: Any) -> list[str]:
    return [await router.ask(message, block=False) for message in messages]


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


@pytest.mark.parametrize("routing", [
    RoundRobin(), LeastMailbox(), Random(random.Random(5)), ConsistentHash(str),
])
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


async def test_least_mailbox_avoids_the_busy_and_takes_turns_among_equals() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=3, routing=LeastMailbox())
        await router
        router.refs[0].tell("a")
        router.refs[0].tell("b")
        router.refs[1].tell("c")  # in its hands soon: its mailbox is empty, but it is busy
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
        [sys.executable, "-c", SCRIPT], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True, timeout=60,
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
        assert await names(router, keys) == eight  # the replacement has its place


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
        with pytest.raises(MailboxFull):  # two are in the workers' hands, two places are free again
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


async def test_a_sender_that_waits_for_a_worker_that_stops_gets_another() -> None:
    async with ActorSystem(stop_grace=0.01) as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=2)
        await router
        first, second = router.refs
        for number in range(3):
            first.tell(number)
            await asyncio.sleep(0.001)  # one in its hands, two in the mailbox
        task = asyncio.create_task(router.send("moved"))
        await asyncio.sleep(0.01)
        assert not task.done()
        task_stop = asyncio.create_task(first._cell.stop_now())
        await task
        gate.set()
        await task_stop
        await until(lambda: seen)
        assert (second.name, "moved") in seen and not first.is_alive()


# -- supervision --------------------------------------------------------------------------------


async def test_a_restart_keeps_the_ref() -> None:
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=2, supervision=QUICK)
        refs = router.refs
        router.tell(ValueError())
        await until(lambda: refs[0].statistics().restarts == 1)
        assert router.refs == refs and router.statistics().replaced == 0


@pytest.mark.parametrize("last", ["stop yourself", ValueError("boom")])
async def test_a_worker_that_stopped_for_good_is_replaced(last: Any) -> None:
    policy = Supervision(
        decide=OnError(otherwise=Directive.STOP), backoff=Backoff(first=0.001, most=0.001))
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=3, supervision=policy)
        old = router.refs
        old[1].tell(last)
        await until(lambda: not old[1].is_alive())
        assert set(await names(router, range(6))) >= {"Worker-0", "Worker-2"}  # a dead one is skipped
        await until(lambda: len(router) == 3)
        assert router.refs[0] is old[0] and router.refs[2] is old[2]
        assert router.refs[1] is not old[1] and router.refs[1].name == "Worker-1"
        assert router.statistics().replaced == 1
        assert Counter(await names(router, range(6))) == {f"Worker-{n}": 2 for n in range(3)}


async def test_replacing_has_a_bound() -> None:
    policy = Supervision(intensity=Intensity(restarts=3, window=60))
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=2, supervision=policy)
        for count in range(4):
            router.tell("stop yourself")
            await until(lambda count=count: router.statistics().replaced == min(count + 1, 3))
        error = await asyncio.wait_for(system.failure, 5)
        assert isinstance(error, Escalated)
        await until(lambda: not system.paths())
        with pytest.raises(ActorDeadError):
            router.tell(1)
        with pytest.raises(ActorDeadError):
            await router.ask(1, block=False)
        with pytest.raises(ActorDeadError):
            await router.send(1)
        with pytest.raises(ActorDeadError):
            await router.resize(3)
        assert not router.notify(1) and await router.stop(block=False) is False


async def test_a_worker_that_gives_up_takes_pool_and_owner_with_it() -> None:
    class Owner(Actor):
        def __init__(self, made: list[Router[Any]]) -> None:
            super().__init__()
            made.append(self.spawn_pool(Worker, size=2, supervision=Supervision(
                intensity=Intensity(restarts=0)), name="pool"))

    async with ActorSystem() as system:
        made: list[Router[Any]] = []
        system.spawn(Owner, made, name="owner", supervision=QUICK)
        assert made[0].pool is not None and made[0].pool.path == "/owner/pool"
        made[0].tell(ValueError())
        await until(lambda: len(made) == 2)
        await until(lambda: len(system.paths()) == 4)
        assert not made[0].refs and len(made[1]) == 2


async def test_a_constructor_s_failure_goes_to_the_caller() -> None:
    made = []

    class Third(Worker):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            if len(made) == 3:
                raise OSError("the third")

    async with ActorSystem() as system:
        with pytest.raises(OSError, match="third"):
            system.spawn_pool(Third, size=4)
        with pytest.raises(ValueError, match="one worker"):
            system.spawn_pool(Worker, size=0)
        await asyncio.sleep(0.01)
        assert not system.paths() and not made[0].actor_ref.is_alive()
        made.clear()
        router = system.spawn_pool(Third, size=2)
        with pytest.raises(OSError, match="third"):
            await router.resize(4)
        assert len(router) == router.statistics().size == 2
        assert await router.resize(4) == router.statistics().size == 4


# -- resize -------------------------------------------------------------------------------------


async def test_resize_up_and_down_loses_nothing() -> None:
    async with ActorSystem(mailbox_capacity=8) as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        gate.set()
        router = system.spawn_pool(Held, gate, seen, size=2)
        sent = 0

        async def load(sender: int) -> None:
            nonlocal sent
            for number in range(300):
                await router.send((sender, number))
                sent += 1
                if number % 7 == 0:
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(load(sender)) for sender in range(12)]
        for size in (6, 1, 5, 3, 8, 2, 1, 4):
            assert await router.resize(size) == size
            assert len(router) == size
        await asyncio.gather(*tasks)
        await router.stop(block=False)
        assert sent == 3600 == len(seen) == len({message for _, message in seen})
        assert system.dead_letters == 0


async def test_a_leaving_worker_finishes_what_it_has_waiting_senders_included() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=2)
        await router
        sends = [asyncio.create_task(router.send(number)) for number in range(12)]
        await asyncio.sleep(0.01)
        leaving = router.refs[1]
        shrunk = router.resize(1)
        await until(lambda: router.statistics().leaving == 1)
        assert leaving not in router.refs and leaving.is_alive() and not shrunk.done()
        grown = router.resize(3)  # while one leaves: a new worker, its name differs
        assert await grown == 3 and leaving not in router.refs
        assert [ref.name for ref in router.refs] == ["Held-0", "Held-1~2", "Held-2"]
        gate.set()
        assert await shrunk == 1
        await asyncio.gather(*sends)
        await until(lambda: len(seen) == 12)
        assert not leaving.is_alive() and system.dead_letters == 0


async def test_a_leaving_worker_is_given_all_the_time_it_takes() -> None:
    async with ActorSystem(stop_grace=0.01) as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=2)
        await router
        router.refs[1].tell("long")
        await asyncio.sleep(0.001)
        shrunk = router.resize(1)
        await asyncio.sleep(0.05)
        gate.set()
        assert await shrunk == 1 and seen == [("Held-1", "long")]


async def test_resize_says_what_it_does_not_do() -> None:
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=2)
        with pytest.raises(ValueError, match="one worker"):
            router.resize(0)
        with pytest.raises(TypeError, match="no pool"):
            Router.of(router.refs).resize(2)


# -- stop ---------------------------------------------------------------------------------------


async def test_stop_handles_what_the_workers_have_and_replaces_nobody() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=3)
        await router
        for number in range(6):
            router.tell(number)
        stopped = router.stop(block=False)
        with pytest.raises(TimeoutError):  # giving the wait up does not end the stop
            await asyncio.wait_for(_wait(stopped), 0.02)
        with pytest.raises(ActorDeadError):
            router.tell("late")
        with pytest.raises(ActorDeadError):
            await router.resize(5)
        again = router.stop(block=False)
        gate.set()
        assert await again is True
        assert not system.paths() and len(seen) == 6 and router.statistics().replaced == 0
        assert await router.stop(block=False) is False
        with pytest.raises(WouldDeadlock):
            router.stop()
        with pytest.raises(WouldDeadlock):
            router.ask(1)


async def _wait(future: Any) -> Any:
    return await future


async def test_a_stop_that_nobody_waits_for_is_a_stop() -> None:
    policy = Supervision(
        decide=OnError(otherwise=Directive.STOP), backoff=Backoff(first=0.02, jitter=0))
    async with ActorSystem() as system:
        gate = asyncio.Event()
        router = system.spawn_pool(Held, gate, [], size=2, supervision=policy)
        gate.set()
        router.tell(ValueError())
        await until(lambda: len(router) == 1)
        gate.clear()
        router.tell("held")
        await asyncio.sleep(0.001)
        router.stop(block=False).cancel()
        await asyncio.sleep(0.05)  # the dead worker would be replaced by now
        assert router.statistics().replaced == 0 and len(system.paths()) == 2
        gate.set()
        await until(lambda: not system.paths())


async def test_stop_ends_when_the_system_stops_the_pool() -> None:
    async with ActorSystem(stop_grace=0.01) as system:
        router = system.spawn_pool(Held, asyncio.Event(), [], size=2)
        await router
        router.broadcast("never done")
        await asyncio.sleep(0.01)
        stopped = router.stop(block=False)
    assert await asyncio.wait_for(_wait(stopped), 5) is True


# -- threads ------------------------------------------------------------------------------------


def test_threads_tell_and_ask_while_the_pool_is_resized() -> None:
    counted: Counter[Any] = Counter()

    class Count(Actor):
        def on_receive(self, message: Any) -> Any:
            counted[message] += 1
            if message[1] % 10 == 0:
                time.sleep(0)
            return message

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        system = ActorSystem(loop=loop)
        router = system.spawn_pool(Count, size=3)
        errors: list[BaseException] = []

        def load(sender: int) -> None:
            try:
                for number in range(1500):
                    router.tell((sender, number))
                    if number % 50 == 0:
                        assert router.ask((sender, -number - 1), timeout=10) == (sender, -number - 1)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=load, args=(sender,)) for sender in range(3)]
        for each in threads:
            each.start()
        sizes = 0
        while any(each.is_alive() for each in threads):
            sizes += 1
            router.resize(1 + sizes % 4).get(timeout=10)
        assert router.stop(timeout=10) is True and router.stop(timeout=10) is False
        assert not errors and sizes > 4
        assert len(counted) == 3 * 1530 and set(counted.values()) == {1}
        with pytest.raises(ActorDeadError):
            router.tell(1)
        with pytest.raises(ActorDeadError):
            router.ask(1)
    finally:
        sys.setswitchinterval(interval)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_a_message_that_enters_while_a_worker_leaves_is_handled() -> None:
    """The very moment: chosen before the worker left, put when it is found idle."""
    async def main() -> None:
        async with ActorSystem() as system:
            seen: list[tuple[str, Any]] = []
            router = system.spawn_pool(Worker, seen, size=2)
            await router
            kept, leaving = router.refs
            chosen = _Paused(leaving, kept)
            late = Router.of([kept, leaving], chosen)
            sender = threading.Thread(target=late.tell, args=("late",))
            sender.start()
            await asyncio.to_thread(chosen.picked.wait, 5)
            assert await router.resize(1) == 1
            chosen.go.set()
            await asyncio.to_thread(sender.join, 5)
            await until(lambda: seen)
            assert seen == [("Worker-0", "late")]

    asyncio.run(main())


async def test_between_a_worker_s_last_look_and_its_end_nothing_enters() -> None:
    async with ActorSystem() as system:
        seen: list[tuple[str, Any]] = []
        router = system.spawn_pool(Worker, seen, size=2)
        await router
        kept, leaving = router.refs
        chosen = _Paused(leaving, kept)
        chosen.go.set()
        late = Router.of([kept, leaving], chosen)
        mailbox = leaving._cell.mailbox
        mailbox._lock = _Then(mailbox._lock, lambda: late.tell("late"))
        assert await router.resize(1) == 1
        await until(lambda: seen)
        assert seen == [("Worker-0", "late")] and system.dead_letters == 0


async def test_an_ask_that_meets_a_worker_s_end_goes_to_another() -> None:
    async with ActorSystem() as system:
        first, second = (system.spawn(Worker, name=name) for name in ("first", "second"))
        await first.stop(block=False)
        chosen = _Paused(first, second)
        router = Router.of([first, second], chosen)
        chosen.alive = True
        assert await router.ask("late", block=False, timeout=5) == "second"


class _Then:
    """A lock; when it is given back for the first time something happens."""

    def __init__(self, lock: Any, then: Any) -> None:
        self.lock, self.then = lock, then

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.lock.release()
        then, self.then = self.then, lambda: None
        then()


class _Paused(Routing):
    """Stops between the choice and the put, once."""

    def __init__(self, *picks: ActorRef[Any]) -> None:
        self.picks = iter(picks)
        self.picked, self.go = threading.Event(), threading.Event()
        self.alive = False

    def pick(self, members: Any, message: Any) -> Any:
        ref = next(self.picks)
        return _Gate(ref, self) if not self.go.is_set() or self.alive else ref


class _Gate:
    def __init__(self, ref: ActorRef[Any], paused: _Paused) -> None:
        self.ref, self.paused, self._cell = ref, paused, ref._cell

    def is_alive(self) -> bool:
        return True

    def tell(self, message: Any, *, urgent: bool) -> None:
        self.paused.picked.set()
        assert self.paused.go.wait(5)
        self.ref.tell(message, urgent=urgent)


# -- groups -------------------------------------------------------------------------------------


async def test_a_group_of_actors_that_exist() -> None:
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
