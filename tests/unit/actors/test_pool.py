"""Pools: supervision of workers, resize, stop, and threads that race with all of it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Backoff,
    Directive,
    Escalated,
    Intensity,
    OnError,
    Router,
    Routing,
    Supervision,
    WouldDeadlock,
)
from actors.testing import simulate
from tests.unit.actors.pools import QUICK, Held, Worker, names, until
from tests.unit.actors.virtual_time import virtual_time

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
    policy = Supervision(decide=OnError(otherwise=Directive.STOP), backoff=Backoff(first=0.001, most=0.001))
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
        error = await asyncio.wait_for(system.failure, 30)
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
            made.append(
                self.spawn_pool(
                    Worker, size=2, supervision=Supervision(intensity=Intensity(restarts=0)), name="pool"
                )
            )

    async with ActorSystem() as system:
        made: list[Router[Any]] = []
        system.spawn(Owner, made, name="owner", supervision=QUICK)
        assert made[0].pool is not None and made[0].pool.path == "/owner/pool"
        made[0].tell(ValueError())
        await until(lambda: len(made) == 2)
        await until(lambda: len(system.paths()) == 4)
        assert not made[0].refs and len(made[1]) == 2


@virtual_time
async def test_the_failure_of_a_constructor_goes_to_the_caller() -> None:
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


@virtual_time
async def test_a_leaving_worker_handles_its_messages_and_those_of_waiting_senders() -> None:
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


@virtual_time
async def test_a_leaving_worker_has_no_time_limit() -> None:
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


async def test_resize_refuses_what_it_cannot_do() -> None:
    async with ActorSystem() as system:
        router = system.spawn_pool(Worker, size=2)
        with pytest.raises(ValueError, match="one worker"):
            router.resize(0)
        with pytest.raises(TypeError, match="no pool"):
            Router.of(router.refs).resize(2)


# -- stop ---------------------------------------------------------------------------------------


async def test_stop_handles_the_remaining_messages_and_replaces_nobody() -> None:
    async with ActorSystem() as system:
        gate, seen = asyncio.Event(), list[tuple[str, Any]]()
        router = system.spawn_pool(Held, gate, seen, size=3)
        await router
        for number in range(6):
            router.tell(number)
        stopped = router.stop(block=False)
        with pytest.raises(TimeoutError):  # giving up the wait does not end the stop
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


def test_a_stop_goes_on_when_nobody_waits_for_it() -> None:
    policy = Supervision(decide=OnError(otherwise=Directive.STOP), backoff=Backoff(first=0.02, jitter=0))

    async def scenario(system: ActorSystem) -> None:
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

    simulate(scenario, mode="loop")  # in virtual time: a busy machine replaces the worker before the stop


@virtual_time
async def test_stop_ends_when_the_system_stops_the_pool() -> None:
    async with ActorSystem(stop_grace=0.01) as system:
        router = system.spawn_pool(Held, asyncio.Event(), [], size=2)
        await router
        router.broadcast("never done")
        await asyncio.sleep(0.01)
        stopped = router.stop(block=False)
    assert await asyncio.wait_for(_wait(stopped), 30) is True


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
    """The worker is chosen before it leaves, the message put just as it is found idle."""

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


async def test_no_message_enters_between_a_workers_last_check_and_its_end() -> None:
    async with ActorSystem() as system:
        seen: list[tuple[str, Any]] = []
        router = system.spawn_pool(Worker, seen, size=2)
        await router
        kept, leaving = router.refs
        chosen = _Paused(leaving, kept)
        chosen.go.set()
        late = Router.of([kept, leaving], chosen)
        mailbox = leaving._cell.mailbox
        mailbox.lock = _Then(mailbox.lock, lambda: late.tell("late"))
        assert await router.resize(1) == 1
        await until(lambda: seen)
        assert seen == [("Worker-0", "late")] and system.dead_letters == 0


async def test_an_ask_that_meets_a_stopping_worker_goes_to_another() -> None:
    async with ActorSystem() as system:
        first, second = (system.spawn(Worker, name=name) for name in ("first", "second"))
        await first.stop(block=False)
        chosen = _Paused(first, second)
        router = Router.of([first, second], chosen)
        chosen.alive = True
        assert await router.ask("late", block=False, timeout=5) == "second"


class _Then:
    """A lock that calls a function after its first release."""

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


# -- replacements that fail -----------------------------------------------------------------------


class Fragile(Worker):
    """Its constructor raises as often as the list has entries."""

    def __init__(self, failures: list[BaseException]) -> None:
        super().__init__()
        if failures:
            raise failures.pop()


@virtual_time
@pytest.mark.parametrize("error", [OSError("no such host"), SystemExit(3), asyncio.CancelledError()])
async def test_a_replacement_whose_constructor_fails_is_tried_again(error: BaseException) -> None:
    failures: list[BaseException] = []
    async with ActorSystem() as system:
        router = system.spawn_pool(Fragile, failures, size=2, supervision=QUICK, name="p")
        failures += [error] * 3
        router.tell("stop yourself")
        await until(lambda: len(router) == 2 and not failures)
        assert router.statistics().replaced == 1
        assert len(set(await names(router, range(4)))) == 2, "the pool is what it was"


@virtual_time
async def test_replacements_whose_constructors_fail_count_against_the_intensity() -> None:
    failures: list[BaseException] = []
    policy = Supervision(intensity=Intensity(restarts=3, window=60), backoff=QUICK.backoff)
    async with ActorSystem() as system:
        router = system.spawn_pool(Fragile, failures, size=2, supervision=policy, name="p")
        failures += [OSError("no such host")] * 10
        router.tell("stop yourself")
        escalated = await system.failure
        assert isinstance(escalated.__cause__, Escalated)
        assert str(escalated.__cause__.__cause__) == "no such host"
        assert len(failures) == 7, "one stop and three constructors"
