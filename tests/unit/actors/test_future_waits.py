"""Who waits for a reply: its timeout holds wherever he waits, and nothing of him is left when he has gone."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from actors import Actor, ActorRef, ActorSystem, AskCycle, Broadcast, Future, Router, Timeout
from tests.unit.actors.virtual_time import virtual_system, virtual_time

SHORT = 0.02
ENOUGH = 30.0
LONG_CHAIN = 2000


class Slow(Actor):
    """Notes what it handles; takes as many seconds as a number says."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    async def on_receive(self, message: Any) -> Any:
        self.seen.append(message)
        if isinstance(message, float):
            await asyncio.sleep(message)
        return message


# -- timeouts --------------------------------------------------------------------------------------


@pytest.fixture
def idle() -> Iterator[tuple[ActorRef[Slow], Router[Slow]]]:
    """An actor and a pool on a loop that does not run."""
    loop = asyncio.new_event_loop()

    async def start() -> tuple[ActorSystem, ActorRef[Slow], Router[Slow]]:
        system = ActorSystem()
        return system, system.spawn(Slow, []), system.spawn_pool(Slow, [], size=2, routing=Broadcast())

    system, ref, pool = loop.run_until_complete(start())
    yield ref, pool
    loop.run_until_complete(system.stop())
    loop.close()


async def wait_in_asyncio(future: Future[Any]) -> Any:
    await asyncio.wait([future])  # type: ignore[type-var]
    return future.result()


def ask(idle: tuple[ActorRef[Slow], Router[Slow]]) -> Future[Any]:
    return idle[0].ask(1, block=False, timeout=SHORT)


@pytest.mark.parametrize(
    "wait",
    [
        lambda idle: ask(idle).get(),
        lambda idle: ask(idle).map(str).get(),
        lambda idle: ask(idle).join(ask(idle)).get(),
        lambda idle: asyncio.run(ask(idle).as_coroutine()),
        lambda idle: asyncio.run(ask(idle).map(str).as_coroutine()),
        lambda idle: asyncio.run(wait_in_asyncio(ask(idle))),
        lambda idle: idle[1].ask(1, timeout=SHORT),
    ],
    ids=["get", "map", "join", "await", "await map", "asyncio.wait", "broadcast"],
)
def test_a_timeout_holds_although_the_actors_loop_does_not_run(idle: Any, wait: Callable[[Any], Any]) -> None:
    ended: list[BaseException] = []

    def waits() -> None:
        try:
            wait(idle)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    thread.join(ENOUGH)
    assert not thread.is_alive(), "it waits for ever"
    assert isinstance(ended[0], Timeout) and str(SHORT) in str(ended[0])


def test_a_wait_that_is_shorter_than_the_asks_timeout_does_not_give_the_ask_up(idle: Any) -> None:
    future = idle[0].ask(1, block=False, timeout=ENOUGH)
    with pytest.raises(Timeout):
        future.get(timeout=SHORT)
    assert not future.done()


def test_a_reply_in_another_loop_cancels_the_timer_there() -> None:
    async def elsewhere(ref: ActorRef[Any]) -> None:
        loop: Any = asyncio.get_running_loop()
        future = ref.ask(1, block=False, timeout=3600.0)
        assert await future == 1
        other = ref.ask(2, block=False, timeout=3600.0)
        await asyncio.wait([other])  # type: ignore[type-var]
        assert not [timer for timer in loop._scheduled if not timer.cancelled()]

    async def main() -> None:
        async with ActorSystem() as system:
            await asyncio.to_thread(asyncio.run, elsewhere(system.spawn(Slow, [])))

    asyncio.run(main())


# -- those who have gone ------------------------------------------------------------------------------


async def by_wait(waited: Any) -> None:
    await asyncio.wait([waited], timeout=0.1)


async def by_shield(future: Future[Any]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(future.as_asyncio()), 0.1)


async def by_callback(future: Future[Any]) -> None:
    derived = future.map(str)
    derived.add_done_callback(print)
    await asyncio.sleep(0.1)
    assert derived.remove_done_callback(print) == 1


POLLS = pytest.mark.parametrize(
    "poll",
    [
        by_wait,
        lambda future: by_wait(future.map(str)),
        lambda future: by_wait(future.map(str).filter(bool).map(len)),
        lambda future: by_wait(future.join(future)),
        lambda future: by_wait(future.as_asyncio()),
        lambda future: by_wait(future.map(str).as_asyncio()),
        by_shield,
        by_callback,
    ],
    ids=["future", "map", "maps", "join", "as_asyncio", "map.as_asyncio", "shield", "callback"],
)


@POLLS
@virtual_time
async def test_who_has_waited_in_vain_does_not_keep_an_ask(
    poll: Callable[[Future[Any]], Awaitable[None]],
) -> None:
    seen: list[Any] = []
    async with virtual_system() as system:
        ref = system.spawn(Slow, seen)
        ref.tell(1.0)
        future = ref.ask("late", block=False)
        await poll(future)
        assert not future.done(), "who polls does not give it up"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future.as_coroutine(), 0.1)  # the last who awaits it
        assert future.cancelled()
        await asyncio.sleep(2.0)
        assert seen == [1.0]


@POLLS
@virtual_time
async def test_nothing_is_left_of_one_who_polls(poll: Callable[[Future[Any]], Awaitable[None]]) -> None:
    async with virtual_system(stop_grace=0.1) as system:
        future = system.spawn(Slow, []).ask(3600.0, block=False)
        await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        for _ in range(5):
            await poll(future)
        await asyncio.sleep(0.1)
        gc.collect()
        assert len(asyncio.all_tasks()) == tasks
        assert not (future._waiters or future._callbacks or future._observers)
        future.cancel()


@virtual_time
async def test_one_task_computes_a_derived_future_for_all_callbacks() -> None:
    async with virtual_system() as system:
        derived = system.spawn(Slow, []).ask(1.0, block=False).map(str)
        called: list[Any] = []
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            derived.add_done_callback(called.append)
        assert len(asyncio.all_tasks()) == tasks + 1
        await asyncio.sleep(2.0)
        assert called == [derived] * 3 and derived.result() == "1.0"
        assert not derived._tasks


@virtual_time
async def test_an_asyncio_future_that_nobody_but_its_awaiter_keeps_stays() -> None:
    async with virtual_system() as system:
        got: list[Any] = []

        async def awaits() -> None:
            got.append(await system.spawn(Slow, []).ask(1.0, block=False).as_asyncio())

        task = weakref.ref(asyncio.create_task(awaits()))
        await asyncio.sleep(0.1)
        gc.collect()
        assert task() is not None
        await asyncio.sleep(2.0)
        assert got == [1.0]


@virtual_time
async def test_an_asyncio_future_has_the_outcome_although_nobody_listens() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Slow, [])
        one = ref.ask(1.0, block=False)
        mirrors = [one.as_asyncio(), one.map(str).as_asyncio(), one.map(lambda _: {}["gone"]).as_asyncio()]
        await asyncio.sleep(2.0)
        assert [mirrors[0].result(), mirrors[1].result()] == [1.0, "1.0"]
        assert isinstance(mirrors[2].exception(), KeyError)
        assert one.as_asyncio().done()
        stops = one.map(lambda _: next(iter(()))).as_asyncio()
        with pytest.raises(RuntimeError, match="StopIteration"):
            await stops


# -- long chains --------------------------------------------------------------------------------------


def chained(future: Future[Any]) -> Future[Any]:
    for _ in range(LONG_CHAIN):
        future = future.map(lambda value: value)
    return future


@virtual_time
async def test_a_long_chain_of_maps_is_settled_and_cancelled() -> None:
    async with virtual_system(stop_grace=0.1) as system:
        ref = system.spawn(Slow, [])
        assert await chained(ref.ask(1, block=False)) == 1
        source = ref.ask(3600.0, block=False)
        last = chained(source)
        task = asyncio.ensure_future(last.as_coroutine())
        await asyncio.sleep(0)
        assert last.cancel() and source.cancelled()
        await asyncio.wait([task])
        assert task.cancelled()


def test_a_long_chain_of_maps_is_computed_in_a_thread() -> None:
    async def main() -> None:
        async with ActorSystem() as system:
            last = chained(system.spawn(Slow, []).ask(1, block=False))
            assert await asyncio.to_thread(last.get) == 1

    asyncio.run(main())


@virtual_time
async def test_the_first_failure_in_a_chain_is_the_error_of_what_follows() -> None:
    async with virtual_system() as system:
        counts = {"first": 0, "second": 0}

        def count(what: str) -> Callable[[Any], Any]:
            def counted(value: Any) -> Any:
                counts[what] += 1
                return value

            return counted

        first = system.spawn(Slow, []).ask(1.0, block=False).map(count("first"))
        second = first.map(lambda value: {}[value])
        third = second.map(count("second"))
        results = await asyncio.gather(third, second, first, third, return_exceptions=True)
        assert [type(each) for each in results] == [KeyError, KeyError, float, KeyError]
        assert counts == {"first": 1, "second": 0}


async def in_callback(future: Future[Any]) -> Any:
    called = asyncio.Event()
    future.add_done_callback(lambda _: called.set())
    await called.wait()
    return future.result()


async def mirrored(future: Future[Any]) -> Any:
    return await future.as_asyncio()


class Odd(BaseException):
    """What is neither an error nor a cancellation."""


@virtual_time
@pytest.mark.parametrize("wait", [in_callback, mirrored, wait_in_asyncio, Future.as_coroutine])
@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, Odd])
@pytest.mark.parametrize("maps", [1, 2])
async def test_a_map_whose_function_raises_whatever_it_is_settles(
    wait: Callable[[Future[Any]], Awaitable[Any]], error: type[BaseException], maps: int
) -> None:
    def fails(_: Any) -> Any:
        raise error

    async with virtual_system() as system:
        ref = system.spawn(Slow, [])
        failing = ref.ask(1, block=False).map(fails)
        for mapped in (failing if maps == 1 else failing.map(str), failing.map(str)):
            waiting = asyncio.ensure_future(wait(mapped))
            await asyncio.wait([waiting], timeout=5)
            assert mapped.done()
            assert waiting.done() and isinstance(mapped.exception(), error)
            with pytest.raises(error):
                waiting.result()


# -- cycles ----------------------------------------------------------------------------------------


class Asking(Actor):
    """Asks the first of the actors in a message for the rest, through ``as_asyncio``."""

    async def on_receive(self, message: tuple[ActorRef[Any], ...]) -> Any:
        if not message:
            return "end"
        return await message[0].ask(message[1:], block=False).as_asyncio()


async def test_a_cycle_is_found_through_as_asyncio() -> None:
    async with ActorSystem() as system:
        first, second = system.spawn(Asking), system.spawn(Asking)
        with pytest.raises(AskCycle):
            await asyncio.wait_for(first.ask((second, first), block=False), ENOUGH)
        assert await first.ask((second,), block=False) == "end"
        assert first._cell.waiting_on is None
