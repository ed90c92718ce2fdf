"""Actors with threads at their limits: hooks that do not come back, threads that cannot start, too many tasks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorSystem,
    Backoff,
    Piped,
    Supervision,
    ThreadedActor,
    TooManyTasks,
)
from actors._core.lifecycle import begin
from actors._core.loops import runs_here

SOON = Supervision(backoff=Backoff(first=0.001, most=0.002))


class Lively(ThreadedActor):
    """Counts its lives; subclasses block in a hook. Only hooks that are overridden run in the thread."""

    use_daemon_thread = True

    def __init__(self, gate: threading.Event, lives: list[Any]) -> None:
        super().__init__()
        self.gate = gate
        lives.append(self)

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class InFailure(Lively):
    def on_failure(self, *failure: Any) -> None:
        self.gate.wait(30)


class InBeforeRestart(Lively):
    def before_restart(self, error: BaseException) -> None:
        self.gate.wait(30)


class InStop(Lively):
    def on_stop(self) -> None:
        self.gate.wait(30)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


def with_long_grace(overdue: Callable[[ActorSystem], object]) -> tuple[ActorSystem, list[str]]:
    """A system and its failures, in which ``overdue`` is called when a hook has exceeded its short time."""
    system = ActorSystem(stop_grace=30.0, hook_timeout=0.01)
    failures: list[str] = []

    def note(event: ActorFailed) -> None:
        failures.append(str(event.error))
        if "did not end" in failures[-1]:
            overdue(system)

    system.events.subscribe(note, ActorFailed)
    return system, failures


@pytest.mark.parametrize(
    ("kind", "hook"),
    [(InFailure, "on_failure"), (InBeforeRestart, "before_restart"), (InStop, "on_stop")],
)
async def test_a_thread_that_does_not_come_back_from_a_last_hook_is_abandoned(
    gate: threading.Event, kind: type[Lively], hook: str
) -> None:
    lives: list[Any] = []
    system, failures = with_long_grace(lambda system: setattr(system, "stop_grace", 0.01))
    ref = await system.spawn(kind, gate, lives, name="blocking", supervision=SOON)
    if hook == "on_stop":
        await ref.stop(block=False)
    else:
        ref.tell(OSError("fail"))
        queued = ref.ask("queued", block=False, timeout=30)
        with pytest.raises(ActorDeadError):
            await queued
    assert not ref.is_alive() and len(lives) == 1, "a next life would wait behind the hook"
    report = await system.stop()
    assert len(report.left) == 1 and report.left[0].startswith("/blocking ("), report
    assert f"{hook} of /blocking did not end within 0.01 s" in failures
    assert "the thread of /blocking does not come back from its last hook and is abandoned" in failures


async def test_a_slow_last_hook_that_ends_in_the_grace_is_not_abandoned(gate: threading.Event) -> None:
    lives: list[Any] = []
    system, failures = with_long_grace(lambda _: gate.set())
    ref = await system.spawn(InBeforeRestart, gate, lives, name="slow", supervision=SOON)
    ref.tell(OSError("fail"))
    assert await ref.ask("next", block=False, timeout=30) == "next"
    assert "before_restart of /slow did not end within 0.01 s" in failures
    assert len(lives) == 2 and (await system.stop()).clean


async def test_a_thread_that_cannot_start_is_a_failure_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with ActorSystem() as system:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            ref = system.spawn(Lively, threading.Event(), [], name="b")
            with pytest.raises(ActorDeadError) as caught:
                await ref
        assert "can't start new thread" in repr(caught.value.__cause__)
        while system.paths():
            await asyncio.sleep(0)
        assert not ref.is_alive()


class Hasty(ThreadedActor):
    """Has no time for its handlers at a stop."""

    stop_grace = 0.0

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message

    def on_stop(self) -> None:
        self.log.append("on_stop")


async def test_an_idle_thread_answers_also_without_a_grace() -> None:
    log: list[str] = []
    system = ActorSystem()
    ref = await system.spawn(Hasty, log, supervision=SOON)
    ref.tell(OSError("fail"))
    assert await ref.ask("back", block=False, timeout=30) == "back"
    assert await ref.stop(block=False)
    assert log == ["on_stop"]
    assert (await system.stop()).clean


def threads_of(actor_class: type[ThreadedActor]) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(actor_class.__name__ + "-")]


async def test_a_thread_begins_where_its_actor_is_started() -> None:
    """A program that ends before the loop has begun with the actor waits for it all the same."""
    async with ActorSystem() as system:
        spawning = threading.Thread(target=system.spawn, args=(Hasty, []))
        spawning.start()
        spawning.join(30)  # blocks the loop
        assert [each.daemon for each in threads_of(Hasty)] == [False]
    for each in threads_of(Hasty):
        await asyncio.to_thread(each.join, 30)
    assert not threads_of(Hasty)


async def test_an_actor_stopped_beside_its_constructor_leaves_no_thread() -> None:
    under_way, stopped = threading.Event(), threading.Event()

    class Slow(ThreadedActor):
        def __init__(self) -> None:
            super().__init__()
            under_way.set()
            stopped.wait(30)

    system = ActorSystem()
    spawning = threading.Thread(target=system.spawn, args=(Slow,))
    spawning.start()
    await asyncio.to_thread(under_way.wait, 30)
    assert (await system.stop()).clean
    stopped.set()
    await asyncio.to_thread(spawning.join, 30)
    for each in threads_of(Slow):
        await asyncio.to_thread(each.join, 30)
    assert not threads_of(Slow)


async def test_an_actor_that_stops_before_its_spawn_returns_has_its_last_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    returned = asyncio.Event()

    class Child(Actor):
        async def on_stop(self) -> None:  # type: ignore[override]
            await returned.wait()

    class Brief(Hasty):
        def on_start(self) -> None:
            self.spawn(Child)
            self.stop()

    system = ActorSystem(hook_timeout=5.0)
    on_loop = system.on_loop

    def stopping_first(call: Callable[..., object], *args: Any) -> bool:
        done = on_loop(call, *args)
        if call is begin and args[0].actor_class is Brief:
            args[0].stopped_flag.wait(30)
        return done

    monkeypatch.setattr(system, "on_loop", stopping_first)
    ref = await asyncio.to_thread(system.spawn, Brief, log)
    assert not ref.is_alive(), "it stops, and waits for its child"
    returned.set()
    assert (await system.stop()).clean
    assert log == ["on_stop"]


class Tasks(ThreadedActor):
    """Begins background work when told to."""

    use_daemon_thread = True
    max_tasks = 2

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self.gate = gate
        self.outcomes: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, Piped):
            self.outcomes.append(message.value)
        elif message == "pipe":
            self.pipe_to_self(self.work())
        elif message == "start":
            self.start_task(self.work())
        return len(self.outcomes)

    async def work(self) -> str:
        await self.gate.wait()
        return "done"


@pytest.mark.parametrize("message", ["pipe", "start"])
async def test_too_many_tasks_are_refused_where_they_are_begun(message: str) -> None:
    gate = asyncio.Event()
    loop_errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_errors.append(context))
    async with ActorSystem() as system:
        ref = system.spawn(Tasks, gate)
        for _ in range(2):
            await ref.ask(message, block=False, timeout=30)
        with pytest.raises(TooManyTasks, match="has 2 tasks under way"):
            await ref.ask(message, block=False, timeout=30)
        gate.set()
        while ref._cell.tasks:
            await asyncio.sleep(0.001)
        if message == "pipe":
            while await ref.ask("count", block=False, timeout=30) < 2:
                await asyncio.sleep(0.001)
        await ref.ask(message, block=False, timeout=30)
    assert not loop_errors


class Reply:
    """What an actor returns."""


class Replying(ThreadedActor):
    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return Reply()


class RepliesOnLoop(Actor):
    def on_receive(self, message: Any) -> Any:
        return Reply()


async def _nothing_holds_an_answered_ask(kind: type[Any]) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        reply = await ref.ask("m", block=False, timeout=60)
        held = weakref.ref(reply)
        del reply
        await ref.ask("n", block=False)  # an actor keeps the last reply
        # An asker that sees the reply before it has begun to wait goes on before the thread has told the loop.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while held() is not None:
                    gc.collect()
                    await asyncio.sleep(0.001)
        assert held() is None, "the timer of the ask holds the reply"


@pytest.mark.parametrize("kind", [Replying, RepliesOnLoop])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_timer_of_an_answered_ask_holds_nothing(kind: type[Any], loop: str) -> None:
    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_nothing_holds_an_answered_ask(kind))
    else:
        asyncio.run(_nothing_holds_an_answered_ask(kind))


def test_a_loop_that_does_not_tell_its_thread_is_known_all_the_same() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    assert not runs_here(loop, threading.get_ident())

    async def look() -> tuple[bool, bool]:
        here = runs_here(loop, threading.get_ident())
        there = await asyncio.to_thread(lambda: runs_here(loop, threading.get_ident()))
        return here, there

    with contextlib.closing(loop):
        assert loop.run_until_complete(look()) == (True, False)
