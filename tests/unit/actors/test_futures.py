"""Futures in asyncio's own tools, and the cancelling of derived ones."""

from __future__ import annotations

import asyncio
import gc
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from actors import Actor, ActorRef, ActorSystem, Future
from tests.unit.actors.pools import until
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Sleeper(Actor):
    """Answers a number after as many seconds; raises what is an exception."""

    def __init__(self, log: list[Any] | None = None) -> None:
        super().__init__()
        self.log = log if log is not None else []

    async def on_receive(self, message: Any) -> Any:
        self.log.append(message)
        if isinstance(message, Exception):
            raise message
        await asyncio.sleep(message)
        return message


def asks(system: ActorSystem, *messages: Any) -> list[Future[Any]]:
    return [system.spawn(Sleeper).ask(message, block=False) for message in messages]


@virtual_time
async def test_asyncio_wait_takes_futures_as_they_are() -> None:
    async with virtual_system() as system:
        quick, slow = asks(system, 1.0, 5.0)
        found: Any = await asyncio.wait([quick, slow], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        assert found == ({quick}, {slow})
        assert quick.result() == 1.0
        with pytest.raises(asyncio.InvalidStateError):
            slow.result()
        found = await asyncio.wait([quick, slow], timeout=1.0)  # type: ignore[type-var]
        assert found == ({quick}, {slow}) and not slow._callbacks
        bad, other = asks(system, ValueError("bad"), 5.0)
        found = await asyncio.wait([bad, other], return_when=asyncio.FIRST_EXCEPTION)  # type: ignore[type-var]
        assert found == ({bad}, {other}) and isinstance(bad.exception(), ValueError)


@virtual_time
async def test_asyncio_wait_computes_derived_futures() -> None:
    async with virtual_system() as system:
        first, second = asks(system, 1.0, 2.0)
        derived = first.join(second).map(sum)
        failing = first.map(lambda _value: {}["missing"])
        found: Any = await asyncio.wait([derived, failing])  # type: ignore[type-var]
        assert found == ({derived, failing}, set())
        assert derived.result() == 3.0 and derived.done()
        assert isinstance(failing.exception(), KeyError)


@virtual_time
async def test_gather_task_group_wait_for_and_shield() -> None:
    async with virtual_system() as system:
        assert await asyncio.gather(*asks(system, 1.0, 2.0)) == [1.0, 2.0]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.as_coroutine()) for each in asks(system, 1.0, 2.0)]
        assert [task.result() for task in tasks] == [1.0, 2.0]
        done, pending = await asyncio.wait([each.as_asyncio() for each in asks(system, 1.0, 2.0)])
        assert {each.result() for each in done} == {1.0, 2.0} and not pending
        (slow,) = asks(system, 5.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow, 1.0)
        assert slow.cancelled()
        (slow,) = asks(system, 5.0)
        slow.as_asyncio().cancel()  # before its first step
        await asyncio.sleep(0.1)
        assert slow.cancelled()
        (slow,) = asks(system, 5.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(slow.as_asyncio()), 1.0)
        assert await slow == 5.0


@virtual_time
async def test_a_done_callback_runs_on_its_own_loop_once() -> None:
    async with virtual_system() as system:
        called: list[Any] = []
        (future,) = asks(system, 1.0)
        future.add_done_callback(called.append)
        future.add_done_callback(called.append)
        assert future.remove_done_callback(called.append) == 2
        future.add_done_callback(called.append)
        await future
        await asyncio.sleep(0)
        future.add_done_callback(called.append)
        assert called == [future]
        await asyncio.sleep(0)
        assert called == [future, future]


async def test_a_done_callback_is_called_when_a_thread_settles_the_future() -> None:
    future: Future[int] = Future()
    thread: list[Any] = []
    done = asyncio.Event()

    def note(_future: Any) -> None:
        thread.append(asyncio.get_running_loop())
        done.set()

    future.add_done_callback(note)
    await asyncio.to_thread(future.set, 1)
    await done.wait()
    assert thread == [asyncio.get_running_loop()]


def busy_sleeper(system: ActorSystem, log: list[Any]) -> ActorRef[Sleeper]:
    """An actor that handles a long message, so that the next one waits in its mailbox."""
    ref = system.spawn(Sleeper, log)
    ref.tell(10.0)
    return ref


@pytest.mark.parametrize(
    "derive",
    [
        lambda ask: ask.map(str),
        lambda ask: ask.map(lambda value: [value]).filter(bool),
        lambda ask: ask.join(Future()),
        lambda ask: ask.map(lambda value: [value]).reduce(max),
    ],
)
@pytest.mark.parametrize("awaited", [False, True])
def test_cancelling_a_derived_future_takes_the_ask_back(derive: Any, awaited: bool) -> None:
    @virtual_time
    async def test() -> None:
        log: list[Any] = []
        async with virtual_system() as system:
            ask = busy_sleeper(system, log).ask(0.0, block=False)
            derived = derive(ask)
            waiting = asyncio.ensure_future(derived) if awaited else None
            await asyncio.sleep(1.0)
            assert derived.cancel() and derived.cancelled() and ask.cancelled()
            assert not derived.cancel(), "it is settled"
            for each in (derived, waiting):
                if each is not None:
                    with pytest.raises(asyncio.CancelledError):
                        await each
            await asyncio.sleep(20.0)
        assert log == [10.0], "the ask was handled although nobody wants its reply"

    test()


@virtual_time
async def test_a_cancelled_awaiter_of_a_join_takes_all_asks_back() -> None:
    log: list[Any] = []
    async with virtual_system() as system:
        asked = [busy_sleeper(system, log).ask(0.0, block=False) for _ in range(3)]
        joined = asked[0].join(*asked[1:])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await joined
        assert joined.cancelled() and all(each.cancelled() for each in asked)
        await asyncio.sleep(20.0)
    assert log == [10.0] * 3


@virtual_time
async def test_a_derived_future_is_computed_once_and_done() -> None:
    calls: list[Any] = []
    async with virtual_system() as system:
        (ask,) = asks(system, 1.0)
        derived = ask.map(calls.append)
        assert not derived.done()
        assert await derived is None and await derived is None
        assert derived.done() and calls == [1.0]
        assert not derived.cancel()


@virtual_time
async def test_a_cancelled_derived_future_stays_cancelled_although_its_source_is_done() -> None:
    async with virtual_system() as system:
        (ask,) = asks(system, 1.0)
        await ask
        derived = ask.map(str)
        assert derived.cancel()
        with pytest.raises(asyncio.CancelledError):
            await derived
        with pytest.raises(asyncio.CancelledError):
            derived.get()


@virtual_time
@pytest.mark.parametrize(
    "derive",
    [
        lambda ask, note: ask.map(note),
        lambda ask, note: ask.map(lambda value: [value]).filter(note),
        lambda ask, note: ask.map(lambda value: [value]).reduce(lambda _, value: note(value), 0),
    ],
)
async def test_two_awaiters_of_a_derived_future_compute_it_once(derive: Any) -> None:
    calls: list[Any] = []

    def note(value: Any) -> Any:
        calls.append(value)
        return [value]

    async with virtual_system() as system:
        (ask,) = asks(system, 1.0)
        derived = derive(ask, note)
        first, second = await asyncio.gather(*(derived.as_coroutine() for _ in range(2)))
        assert first is second and calls == [1.0]


@virtual_time
async def test_a_function_that_raises_is_called_once_for_all_awaiters() -> None:
    calls: list[Any] = []

    def fail(value: Any) -> Any:
        calls.append(value)
        raise ValueError("no")

    async with virtual_system() as system:
        (ask,) = asks(system, 1.0)
        derived = ask.map(fail)
        found = await asyncio.gather(*(derived.as_coroutine() for _ in range(2)), return_exceptions=True)
        assert found[0] is found[1] and isinstance(found[0], ValueError) and calls == [1.0]


@virtual_time
@pytest.mark.parametrize("how", ["callback", "callback of a derived future", "task"])
async def test_the_reply_to_a_stop_lives_as_long_as_somebody_waits_for_it(how: str) -> None:
    heard: list[str] = []

    async def wait(ref: ActorRef[Any]) -> None:
        await ref.stop(block=False)
        heard.append("stopped")

    def stop(ref: ActorRef[Any]) -> None:
        if how == "task":
            asyncio.get_running_loop().create_task(wait(ref))
        elif how == "callback":
            ref.stop(block=False).add_done_callback(lambda _: heard.append("stopped"))
        else:
            ref.stop(block=False).map(str).add_done_callback(lambda _: heard.append("stopped"))

    async with virtual_system() as system:
        ref = busy_sleeper(system, [])
        stop(ref)
        await asyncio.sleep(1)
        gc.collect()
        given_up = asyncio.ensure_future(wait(ref))
        await asyncio.sleep(1)
        given_up.cancel()
        await asyncio.sleep(1)
        assert len(ref._cell.stop_replies or ()) == 1, "one that was given up is kept"
        await asyncio.sleep(20)
        assert heard == ["stopped"]


@virtual_time
async def test_a_derived_future_is_given_up_with_the_last_who_awaits_it() -> None:
    async with virtual_system() as system:
        (ask,) = asks(system, 5.0)
        derived = ask.map(str)
        first, second = derived.as_asyncio(), asyncio.ensure_future(derived.as_coroutine())
        await asyncio.sleep(1)
        first.cancel()
        assert await second == "5.0"
        (ask,) = asks(system, 5.0)
        derived = ask.map(str)
        only = derived.as_asyncio()
        await asyncio.sleep(1)
        only.cancel()
        await asyncio.sleep(1)
        assert derived.cancelled() and ask.cancelled()


async def test_a_thread_that_blocks_for_a_derived_future_keeps_it() -> None:
    source: Future[int] = Future()
    derived = source.map(str)
    thread = asyncio.create_task(asyncio.to_thread(derived.get))
    await until(lambda: source._blocked)
    task = derived.as_asyncio()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)  # the callback of its end
    assert not derived.cancelled() and source.try_set(1)
    assert await thread == "1"


@virtual_time
async def test_a_callback_keeps_an_ask_whose_awaiters_are_cancelled() -> None:
    log: list[Any] = []
    async with virtual_system() as system:
        ref = busy_sleeper(system, log)
        for given_up in (lambda ask: asyncio.ensure_future(ask.as_coroutine()), lambda ask: ask.as_asyncio()):
            ask = ref.ask(2.0, block=False)
            waiting: Any = asyncio.ensure_future(asyncio.wait([ask], timeout=100))  # type: ignore[type-var]
            other = given_up(ask)
            await asyncio.sleep(0.1)
            other.cancel()
            assert await waiting == ({ask}, set()) and ask.value() == 2.0


class Emptied(list[Any]):
    """A list that another thread empties after the look at it."""

    def __bool__(self) -> bool:
        found = len(self) > 0
        self.clear()
        return found


@pytest.mark.parametrize("left", ["_waiters", "_blocked", "_callbacks"])
async def test_who_leaves_while_a_thread_settles_the_future_does_not_stop_it(left: str) -> None:
    future: Future[int] = Future()
    called: list[Any] = []
    if left != "_callbacks":
        future.add_done_callback(called.append)
    setattr(future, left, Emptied([None]))
    assert await asyncio.to_thread(future.try_set, 1)
    await asyncio.sleep(0)
    assert future.value() == 1 and called == ([future] if left != "_callbacks" else [])


class Request:
    """What the frame of an awaiter refers to."""


def frames(error: BaseException) -> int:
    """The length of an error's traceback."""
    return sum(1 for _ in traceback.walk_tb(error.__traceback__))


@pytest.mark.parametrize("derive", [lambda future: future, lambda future: future.map(str)])
async def test_an_error_that_is_awaited_again_and_again_does_not_grow(
    derive: Callable[[Future[Any]], Future[Any]],
) -> None:
    lengths: list[int] = []
    requests: list[weakref.ref[Any]] = []

    async def request(future: Future[Any]) -> None:
        local = Request()
        requests.append(weakref.ref(local))
        await future

    async with ActorSystem() as system:
        future = derive(system.spawn(Sleeper).ask(ValueError("a bug"), block=False))
        for _ in range(3):
            with pytest.raises(ValueError, match="a bug") as caught:
                await request(future)
            lengths.append(frames(caught.value))
        for _ in range(3):
            with pytest.raises(ValueError, match="a bug") as caught:
                future.result()
            lengths.append(frames(caught.value))
        for _ in range(3):
            with pytest.raises(ValueError, match="a bug") as caught:
                await asyncio.to_thread(future.get)
        del caught
        with pytest.raises(ValueError, match="a bug"):
            future.result()  # its frames take the place of the awaiters'
        gc.collect()
    assert lengths[1] == lengths[2] <= lengths[0] and lengths[3] == lengths[5], lengths
    assert [each() for each in requests] == [None] * 3
