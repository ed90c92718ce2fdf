"""Actors with threads of their own, actors used from other threads, ask cycles, futures."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pykka
import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRegistry,
    ActorStarted,
    ActorSystem,
    AskCycle,
    AskCycleFound,
    Backoff,
    Future,
    Piped,
    Router,
    Supervision,
    ThreadedActor,
    Timeout,
    WouldDeadlock,
    get_all,
)

LIMIT = 30.0
"""Seconds after which something hangs."""

SOON = Supervision(backoff=Backoff(first=0.001, most=0.002))


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class Blocking(ThreadedActor):
    """Works with blocking calls only."""

    use_daemon_thread = True

    def __init__(self, other: Any = None) -> None:
        super().__init__()
        self.other, self.count = other, 0

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        if message == "thread":
            return threading.current_thread().name
        if message == "ask":
            return self.other.ask("asked")
        if isinstance(message, threading.Event):
            assert message.wait(30), "the loop waits for the thread"
        self.count += 1
        return self.count


async def test_both_kinds_talk_to_each_other_and_the_loop_stays_free() -> None:
    async with ActorSystem() as system:
        echo = system.spawn(Echo)
        blocking = system.spawn(Blocking, echo)
        assert (await blocking.ask("thread", block=False)).startswith("Blocking-")
        assert await blocking.ask("ask", block=False) == "asked"
        end = threading.Event()
        slow = blocking.ask(end, block=False)
        while blocking.statistics().current is None:
            await asyncio.sleep(0.001)
        assert not slow.done(), "the loop turns while the thread waits"
        end.set()
        await slow


async def test_a_threaded_actor_is_supervised_like_any_other() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Blocking, supervision=SOON)
        assert await ref.ask("x", block=False) == 1
        ref.tell(RuntimeError("boom"))
        queued = [ref.ask("x", block=False) for _ in range(3)]
        assert [await reply for reply in queued] == [1, 2, 3], "a new life, the same mailbox"
        with pytest.raises(ValueError, match="mine"):
            await ref.ask(ValueError("mine"), block=False)
        assert await ref.stop(block=False) is True
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("Blocking-") and thread.is_alive() and not thread.daemon
    ]


async def test_children_timers_and_tasks_of_a_threaded_actor() -> None:
    got: list[Any] = []

    class Busy(ThreadedActor):
        use_daemon_thread = True

        def on_start(self) -> None:
            self.child = self.spawn(Echo, name="child")
            self.set_timer("t", 0.001, "tick", every=0.001)
            self.pipe_to_self(asyncio.sleep(0.001, "slept"), tag="s")

        def on_receive(self, message: Any) -> Any:
            got.append((message, threading.current_thread().name.split("-")[0]))
            if message == "tick" and [each for each, _ in got].count("tick") == 3:
                self.cancel_timer("t")
                self.set_timer("e", 0.005, "end")  # later than another tick would come
            return self.child.ask("from the child")

    async with ActorSystem() as system:
        ref = system.spawn(Busy, name="busy")
        assert await ref.ask("hello", block=False) == "from the child"
        assert system.paths() == ["/busy", "/busy/child"]
        while not {"end", Piped("slept", None, "s")} <= {message for message, _ in got}:
            await asyncio.sleep(0.001)
    assert {thread for _, thread in got} == {"Busy"}
    messages = [message for message, _ in got]
    assert messages.count("tick") == 3 and Piped("slept", None, "s") in messages


def test_coroutine_hooks_of_a_threaded_actor_are_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="plain function"):

        class Wrong(ThreadedActor):
            async def on_receive(self, message: Any) -> Any:
                return message


async def test_a_coroutine_returned_by_a_threaded_actor_is_an_error() -> None:
    class Hidden(ThreadedActor):
        use_daemon_thread = True

        async def later(self) -> int:
            return 1

    async with ActorSystem() as system:
        ref = system.spawn(Hidden)
        with pytest.raises(TypeError, match="plain function"):
            await ref.proxy().later()


async def test_a_thread_that_never_comes_back_is_abandoned_and_reported() -> None:
    release = threading.Event()

    class Stuck(ThreadedActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> None:
            release.wait()

    system = ActorSystem(stop_grace=0.02)
    ref = system.spawn(Stuck, name="stuck")
    ref.tell("forever")
    while ref.statistics().current is None:
        await asyncio.sleep(0.001)
    report = await asyncio.wait_for(system.stop(), 30)
    release.set()
    assert not report.clean
    assert report.left[0].startswith("/stuck (stopping, handling str")
    async with asyncio.timeout(30):
        while not (await system.stop()).clean:  # the thread comes back
            await asyncio.sleep(0.001)


def test_the_default_system_is_one_for_all_threads() -> None:
    outer = Echo.start()
    threaded = Blocking.start(outer)
    try:
        assert threaded.ask("ask", timeout=5) == "asked"
        assert {outer, threaded} <= set(ActorRegistry.get_all())
        assert ActorRegistry.get_by_urn(outer.actor_urn) is outer
        assert outer in ActorRegistry.get_by_class(Echo)
        assert get_all([outer.ask(n, block=False) for n in range(3)]) == [0, 1, 2]
    finally:
        ActorRegistry.stop_all(timeout=5)
    assert not {outer, threaded} & set(ActorRegistry.get_all())


def test_a_loop_that_a_thread_of_an_actor_runs_has_a_default_system_of_its_own() -> None:
    """Its actors end with it."""

    async def work() -> Any:
        return await Echo.start().ask("worked", block=False)

    class Running(ThreadedActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            return asyncio.run(work())

    threaded = Running.start()
    try:
        assert threaded.ask("work", timeout=20) == "worked"
        assert threaded.ask("work", timeout=20) == "worked"
        assert ActorRegistry.get_by_class(Echo) == []
    finally:
        ActorRegistry.stop_all(timeout=5)


def test_a_blocking_ask_that_timed_out_is_not_executed() -> None:
    seen: list[Any] = []
    release = threading.Event()

    class Noting(ThreadedActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> None:
            seen.append(message)
            release.wait(5)

    ref = Noting.start()
    ref.tell("first")
    with pytest.raises(Timeout):
        ref.ask("late", timeout=0.01)
    release.set()
    assert ref.stop(timeout=5)
    assert seen == ["first"]


class Asking(Actor):
    """Asks another actor while it handles a message."""

    def __init__(self) -> None:
        super().__init__()
        self.other: Any = None

    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, tuple):
            self.other = message[0]
            return None
        if message == "self":
            return await self.actor_ref.ask("x", block=False)
        return await self.other.ask("go", block=False)


async def test_an_ask_cycle_is_refused_with_its_paths() -> None:
    found: list[Any] = []
    async with ActorSystem() as system:
        system.events.subscribe(found.append, AskCycleFound)
        refs = [system.spawn(Asking, name=name) for name in "abc"]
        for ref, other in zip(refs, (*refs[1:], refs[0]), strict=True):
            await ref.ask((other,), block=False)
        with pytest.raises(AskCycle, match="/c -> /a -> /b -> /c") as caught:
            await asyncio.wait_for(_reply(refs[0], "go"), 30)
        assert isinstance(caught.value, WouldDeadlock)
        assert found[0].paths == ("/c", "/a", "/b", "/c")
        with pytest.raises(AskCycle, match="/a -> /a"):
            await asyncio.wait_for(_reply(refs[0], "self"), 30)


class Admin(Actor):
    """Stops its system."""

    async def on_receive(self, how: Any) -> Any:
        if how == "a handler":
            return await self.system.stop()
        self.start_task(self.system.stop())
        return None


@pytest.mark.parametrize("how", ["a handler", "background work"])
async def test_an_actor_that_awaits_the_stop_of_its_own_system_is_refused(how: str) -> None:
    failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    system = ActorSystem()
    older = system.spawn(Actor)
    ref = system.spawn(Admin, name="admin")
    system.events.subscribe(lambda event: failed.set_result(event.error), ActorFailed)
    ref.tell(how)
    error = await asyncio.wait_for(failed, 30)
    assert isinstance(error, AskCycle) and error.paths == ("/admin", "/admin")
    assert str(error).startswith("/admin awaits its system's stop, ")
    assert older.is_alive(), "nothing has been stopped by halves"
    assert (await system.stop()).clean


async def test_a_task_of_its_own_may_stop_the_system_for_an_actor() -> None:
    class Beside(Actor):
        def on_receive(self, _: Any) -> Any:
            return asyncio.create_task(self.system.stop())

    system = ActorSystem()
    system.spawn(Actor)
    stop = await system.spawn(Beside).ask("stop", block=False)
    assert (await asyncio.wait_for(stop, 30)).clean and not system.paths()


async def _reply(ref: Any, message: Any) -> Any:
    return await ref.ask(message, block=False)


async def test_a_threaded_actor_that_asks_itself_is_refused_too() -> None:
    class Selfish(ThreadedActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            return self.actor_ref.ask("again") if message == "go" else message

    async with ActorSystem() as system:
        with pytest.raises(AskCycle):
            await asyncio.wait_for(_reply(system.spawn(Selfish), "go"), 30)


@pytest.mark.parametrize("how", ["ask", "get", "router"])
async def test_a_blocking_ask_that_is_refused_is_not_handled(how: str) -> None:
    handled: list[Any] = []

    class Front(Actor):
        async def on_receive(self, message: Any) -> Any:
            handled.append(message)
            return await message.ask(self.actor_ref, block=False) if message is back else message

    class Back(ThreadedActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            try:
                if how == "ask":
                    message.ask("refused")
                elif how == "get":
                    message.ask("refused", block=False).get()
                else:
                    Router.of([message]).ask("refused")
            except AskCycle:
                return "refused"

    async with ActorSystem() as system:
        back, front = system.spawn(Back), system.spawn(Front)
        async with asyncio.timeout(30):
            assert await front.ask(back, block=False) == "refused"
            assert await front.ask("last", block=False) == "last"
    assert handled == [back, "last"], "the asker was told that it was refused, and may have asked again"


async def test_waiting_for_a_reply_that_was_taken_over_is_no_cycle() -> None:
    class Taking(Actor):
        async def on_receive(self, message: Any) -> Any:
            if message == "first":
                self.reply = self.take_reply()
                return None
            self.reply.try_set("late")
            return "done"

    class Waiting(Actor):
        def __init__(self, other: Any) -> None:
            super().__init__()
            self.other = other

        async def on_receive(self, message: Any) -> Any:
            return await self.other.ask("first", block=False)

    async with ActorSystem() as system:
        taking = system.spawn(Taking)
        reply = system.spawn(Waiting, taking).ask("go", block=False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await taking.ask("second", block=False)
        assert await asyncio.wait_for(_awaited(reply), 30) == "late"


async def _awaited(future: Any) -> Any:
    return await future


async def test_derived_futures_are_computed_on_the_loop() -> None:
    threads: list[str] = []

    def note(value: Any) -> Any:
        threads.append(threading.current_thread().name)
        return value

    first, second = Future[Any](), Future[Any]()
    stock: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    stock.set(3)
    mapped = first.map(lambda value: note(value) + 1)
    joined = first.join(second, stock)
    kept = joined.filter(lambda value: value > 1)
    total = joined.reduce(lambda a, b: a + b, 10)
    first.set(1)
    second.set(2)
    assert await mapped == 2 and await mapped == 2
    assert await joined == [1, 2, 3] and await kept == [2, 3] and await total == 16
    assert threads == ["MainThread"], "computed once, here"


async def test_setting_an_attribute_through_a_proxy() -> None:
    class Holder(Actor):
        value = 1

        async def double(self) -> int:
            await asyncio.sleep(0)
            return self.value * 2

    async with ActorSystem() as system:
        proxy = system.spawn(Holder).proxy()
        with pytest.raises(WouldDeadlock, match="await"):
            proxy.value = 2
        await proxy.set_attr("value", 5)
        assert await proxy.value == 5 and await proxy.double() == 10
        await proxy.double.send()


async def test_asks_from_many_threads_all_resolve() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Echo)

        def work(base: int) -> list[int]:
            return [ref.ask(base + n, timeout=30) for n in range(200)]

        found = await asyncio.gather(*(asyncio.to_thread(work, base) for base in (0, 1000, 2000)))
    assert [values[-1] for values in found] == [199, 1199, 2199]


async def test_a_dead_actor_in_another_thread_raises() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Blocking)
        await ref.stop(block=False)
        with pytest.raises(ActorDeadError):
            ref.tell(1)


async def test_one_of_many_threads_settles_a_future_and_wakes_all_waiters() -> None:
    began, rounds = sys.getswitchinterval(), 300
    sys.setswitchinterval(1e-6)
    loop = asyncio.get_running_loop()
    try:
        with ThreadPoolExecutor(5) as threads:
            for number in range(rounds):
                future: Future[int] = Future()
                start = threading.Barrier(5)

                def settle(value: int, future: Any = future, start: Any = start) -> bool:
                    start.wait()
                    return bool(future.try_set(value))

                def get(future: Any = future, start: Any = start) -> Any:
                    start.wait()
                    return future.get(timeout=10)

                settling = [loop.run_in_executor(threads, settle, each) for each in range(3)]
                getting = [loop.run_in_executor(threads, get) for _ in range(2)]
                async with asyncio.timeout(30):
                    awaited = await future
                    won = await asyncio.gather(*settling)
                assert sum(won) == 1, f"{number}: {won}"
                assert await asyncio.gather(*getting) == [awaited, awaited]
                assert awaited == won.index(True)
    finally:
        sys.setswitchinterval(began)


def test_each_future_is_settled_by_one_of_many_threads() -> None:
    began = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    futures = [Future[int]() for _ in range(20_000)]
    try:
        with ThreadPoolExecutor(3) as threads:
            won = list(threads.map(lambda number: [each.try_set(number) for each in futures], range(3)))
    finally:
        sys.setswitchinterval(began)
    assert [sum(each) for each in zip(*won, strict=True)] == [1] * len(futures)
    assert all(
        each.value() == by.index(True) for each, by in zip(futures, zip(*won, strict=True), strict=True)
    )


async def test_a_message_that_comes_while_a_new_life_begins_is_handled_and_the_next_too() -> None:
    """The thread begins with it at once; what the loop had left to do then ended the thread."""
    entered, go_on = threading.Event(), threading.Event()

    class Holding(ThreadedActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            if message == "crash":
                raise OSError(message)
            if message == "hold":
                entered.set()
                assert go_on.wait(LIMIT)
            return message

    async with ActorSystem() as system:
        ref = await system.spawn(Holding, supervision=SOON)
        assert await ref.ask("first life", block=False) == "first life"

        class InTheMiddle(type(system.events)):  # type: ignore[misc]
            def wants(self, kind: type) -> bool:
                if kind is ActorStarted and ref._cell.restarts and not entered.is_set():
                    ref.tell("hold")
                    assert entered.wait(LIMIT)
                return bool(super().wants(kind))

        system.events.__class__ = InTheMiddle
        ref.tell("crash")
        await asyncio.to_thread(entered.wait, LIMIT)
        go_on.set()
        assert await ref.ask("on", block=False, timeout=LIMIT) == "on"


async def test_a_defect_of_the_runtime_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(Blocking)

        def defect(_: object) -> None:
            monkeypatch.undo()
            raise TypeError("a defect")

        monkeypatch.setattr("actors._core.handling.begin_recent", defect)
        assert await ref.ask("echo", block=False, timeout=LIMIT) == 1


async def test_a_system_is_stopped_on_its_own_loop() -> None:
    """Elsewhere its procedures would run in the wrong thread."""
    async with ActorSystem("mine") as system:
        ref = system.spawn(Actor)

        def elsewhere() -> Any:
            with pytest.raises(RuntimeError, match=r"^the system 'mine' runs on another event loop: "):
                asyncio.run(system.stop())
            assert ref.is_alive()
            return asyncio.run_coroutine_threadsafe(system.stop(), system.loop).result(timeout=20)

        report = await asyncio.to_thread(elsewhere)
        assert report.clean and not ref.is_alive()
