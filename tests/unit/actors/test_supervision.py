"""Strategies, directives, back-off, restart hooks, death watch, failures in every hook."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from actors import (
    ESCALATE,
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRestarting,
    ActorStarted,
    ActorStopped,
    ActorSystem,
    Backoff,
    Directive,
    Escalated,
    Intensity,
    Interrupted,
    OnError,
    Strategy,
    Supervision,
    Terminated,
)
from tests.unit.actors.pools import until
from tests.unit.actors.virtual_time import virtual_time

SOON = Backoff(first=0.001, most=0.002)


class Child(Actor):
    """Records its lifecycle in a list that the test reads."""

    def __init__(self, log: list[str], name: str) -> None:
        super().__init__()
        self.log, self.name, self.count = log, name, 0

    def on_start(self) -> None:
        self.log.append(f"{self.name} start")

    def on_stop(self) -> None:
        self.log.append(f"{self.name} stop")

    def on_failure(self, *exc_info: Any) -> None:
        self.log.append(f"{self.name} failure")

    def before_restart(self, error: BaseException) -> None:
        self.log.append(f"{self.name} before {error}")

    def after_restart(self, error: BaseException) -> None:
        self.log.append(f"{self.name} after {error}")

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        self.count += 1
        return self.count


class Parent(Actor):
    def __init__(self, log: list[str], supervision: Supervision, names: str = "abc") -> None:
        super().__init__()
        self.log, self.policy, self.names = log, supervision, names

    def on_start(self) -> None:
        for name in self.names:
            self.spawn(Child, self.log, name, name=name, supervision=self.policy)


async def family(system: ActorSystem, log: list[str], policy: Supervision, **options: Any) -> dict[str, Any]:
    parent = await system.spawn(Parent, log, policy, name="p", **options)
    refs = {name: system.lookup(f"/p/{name}") for name in "abc"}
    for ref in refs.values():
        assert ref is not None
        await ref
    refs["p"] = parent
    log.clear()
    return refs


class Unreadable(Exception):
    """Has code of its own in its texts, which fails."""

    def __repr__(self) -> str:
        raise OSError("no text")

    __str__ = __repr__


@pytest.mark.parametrize("error", [ValueError("x" * 10_000), Unreadable()])
async def test_an_escalation_through_many_levels_has_a_text_that_is_bounded(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Each level quotes the one below it: with quotes in quotes, 40 levels made a text of a terabyte; and one traceback is enough."""

    class Level(Actor):
        supervision = ESCALATE

        def __init__(self, levels: int) -> None:
            super().__init__()
            self.levels = levels

        def on_start(self) -> None:
            if self.levels == 0:
                raise error
            self.spawn(Level, self.levels - 1)

    async with ActorSystem() as system:
        system.spawn(Level, 40, supervision=ESCALATE)
        failure: BaseException | None = await system.failure
    levels = 0
    while isinstance(failure, Escalated):
        assert len(str(failure)) < 2_000
        failure, levels = failure.__cause__, levels + 1
    assert failure is error and levels == 41
    unhandled = [each for each in caplog.records if each.msg.startswith("Unhandled exception")]
    assert len(unhandled) == 41 and [each for each in unhandled if each.exc_info] == unhandled[:1]


async def test_one_for_all_restarts_all_in_order_and_keeps_their_messages() -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        refs = await family(system, log, Supervision(strategy=Strategy.ONE_FOR_ALL, backoff=SOON))
        assert await refs["c"].ask("count", block=False) == 1
        refs["b"].tell(RuntimeError("boom"))
        await refs["b"].ask("count", block=False)
        assert await refs["c"].ask("count", block=False) == 1, "a new life counts from the start"
        assert log == [
            "c stop",
            "b failure",
            "b before boom",
            "a stop",
            "a after boom",
            "a start",
            "b after boom",
            "b start",
            "c after boom",
            "c start",
        ]


async def test_rest_for_one_leaves_the_older_alone() -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        refs = await family(system, log, Supervision(strategy=Strategy.REST_FOR_ONE, backoff=SOON))
        assert await refs["a"].ask("count", block=False) == 1
        refs["b"].tell(RuntimeError("boom"))
        await refs["c"].ask("count", block=False)
        for name in "bc":
            await refs[name].ask("count", block=False)
        assert await refs["a"].ask("count", block=False) == 2
        assert not [line for line in log if line.startswith("a ")]
        assert "c stop" in log and "c start" in log


async def test_group_strategies_count_failures_of_siblings_together() -> None:
    policy = Supervision(
        strategy=Strategy.ONE_FOR_ALL, backoff=SOON, intensity=Intensity(restarts=2, window=60)
    )
    async with ActorSystem() as system:
        refs = await family(system, [], policy, supervision=ESCALATE)
        for name in "abc":
            refs[name].notify(RuntimeError(name))
            for _ in range(20):
                await asyncio.sleep(0.001)
        failure = await asyncio.wait_for(asyncio.shield(system.failure), 30)
        assert failure.path == "/p"


@virtual_time
async def test_the_children_of_a_restarted_parent_begin_with_a_full_allowance() -> None:
    policy = Supervision(
        strategy=Strategy.ONE_FOR_ALL, backoff=SOON, intensity=Intensity(restarts=2, window=60)
    )
    counts: list[int] = []
    async with ActorSystem() as system:
        await family(system, [], policy, supervision=Supervision(backoff=SOON))
        system.events.subscribe(
            lambda failed: counts.append(failed.failures) if failed.path == "/p/a" else None, ActorFailed
        )
        for _ in range(6):
            child = system.lookup("/p/a")
            assert child is not None
            child.tell(RuntimeError("boom"))
            await asyncio.sleep(0.1)
        parent = system.lookup("/p")
        assert parent is not None and parent.statistics().restarts == 2
    assert counts == [1, 2, 3, 1, 2, 3], "the third failure is the parent's, which is restarted"


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE])
async def test_siblings_that_stop_use_up_no_restart(strategy: Strategy) -> None:
    policy = Supervision(
        decide=OnError((KeyError, Directive.STOP)),
        strategy=strategy,
        backoff=SOON,
        intensity=Intensity(restarts=1, window=60),
    )
    counts: list[int] = []
    async with ActorSystem() as system:
        refs = await family(system, [], policy, supervision=ESCALATE)
        system.events.subscribe(lambda failed: counts.append(failed.failures), ActorFailed)
        for name in "ab":
            refs[name].tell(KeyError("end"))
            await until(refs[name].actor_stopped.is_set)
        refs["c"].tell(RuntimeError("boom"))
        assert await refs["c"].ask("count", block=False) == 1
        assert refs["p"].is_alive() and counts == [1, 1, 1]


async def test_two_siblings_that_fail_together_come_back_once_each() -> None:
    log: list[str] = []
    async with ActorSystem(turn_time=60.0) as system:  # both fail in one turn
        refs = await family(system, log, Supervision(strategy=Strategy.ONE_FOR_ALL, backoff=SOON))
        refs["a"].tell(RuntimeError("one"))
        refs["c"].tell(RuntimeError("two"))
        for name in "abc":
            await refs[name].ask("count", block=False)
        started = sorted(line for line in log if line.endswith(" start"))
        assert started == ["a start", "b start", "c start"]


async def test_a_directive_per_exception() -> None:
    decide = OnError((ValueError, Directive.RESUME), (KeyError, Directive.STOP), otherwise=Directive.RESTART)
    log: list[str] = []
    async with ActorSystem() as system:
        refs = await family(system, log, Supervision(decide=decide, backoff=SOON))
        assert await refs["a"].ask("count", block=False) == 1
        refs["a"].tell(ValueError("never mind"))
        assert await refs["a"].ask("count", block=False) == 2, "resumed: the state stays"
        assert log == []
        refs["a"].tell(OSError("again"))
        assert await refs["a"].ask("count", block=False) == 1, "restarted"
        refs["a"].tell(KeyError("end"))
        with pytest.raises(ActorDeadError):
            await refs["a"].ask("count", block=False)
        assert refs["b"].is_alive()


async def test_a_resumed_coroutine_handler_goes_on() -> None:
    class Later(Actor):
        async def on_receive(self, message: Any) -> Any:
            await asyncio.sleep(0)
            if message == "bad":
                raise ValueError(message)
            return message

    resume = Supervision(decide=lambda _error: Directive.RESUME)
    async with ActorSystem() as system:
        ref = system.spawn(Later, supervision=resume)
        ref.tell("bad")
        assert await ref.ask("good", block=False) == "good"


async def test_a_handler_that_raises_cancelled_error_by_itself_has_failed() -> None:
    class Odd(Actor):
        async def on_receive(self, message: Any) -> Any:
            if message == "odd":
                raise asyncio.CancelledError
            return message

    async with ActorSystem() as system:
        ref = system.spawn(Odd, supervision=Supervision(backoff=SOON))
        with pytest.raises(Interrupted):
            await ref.ask("odd", block=False)
        assert await asyncio.wait_for(_reply(ref, "still here"), 30) == "still here"


async def _reply(ref: Any, message: Any) -> Any:
    return await ref.ask(message, block=False)


def test_backoff_starts_over_after_a_time_without_failures() -> None:
    from actors._policy import RestartHistory

    policy = Supervision(
        backoff=Backoff(first=1, jitter=0, reset=10), intensity=Intensity(restarts=100, window=1000)
    )
    history = RestartHistory()
    pauses = []
    for now in (0, 1, 2, 12, 13):
        history.record(now, policy)
        pauses.append(policy.backoff.delay(history.in_a_row, random.Random(1)))
    assert pauses == [1, 2, 4, 1, 2]


@virtual_time
async def test_a_stop_during_back_off_ends_the_restart() -> None:
    slow = Supervision(backoff=Backoff(first=60))
    log: list[str] = []
    async with ActorSystem() as system:
        refs = await family(system, log, slow)
        refs["a"].tell(RuntimeError("boom"))
        queued = refs["a"].ask("count", block=False)
        await asyncio.sleep(0.01)
        assert (await asyncio.wait_for(system.stop(), 30)).clean
        with pytest.raises(ActorDeadError):
            await queued
    assert "a start" not in log


async def test_watch_reports_a_stop_with_its_cause_and_no_restart() -> None:
    got: list[Terminated] = []

    class Watcher(Actor):
        def on_receive(self, message: Any) -> Any:
            if isinstance(message, Terminated):
                got.append(message)
            elif message[0] == "watch":
                self.watch(message[1])
            else:
                self.unwatch(message[1])

    decide = OnError((KeyError, Directive.STOP))
    async with ActorSystem() as system:
        refs = await family(system, [], Supervision(decide=decide, backoff=SOON))
        watcher = system.spawn(Watcher)
        for name in "abc":
            await watcher.ask(("watch", refs[name]), block=False)
        await watcher.ask(("unwatch", refs["c"]), block=False)
        refs["a"].tell(OSError("restart"))
        await refs["a"].ask("count", block=False)
        assert got == []
        refs["a"].tell(KeyError("end"))
        await refs["b"].stop(block=False)
        await refs["c"].stop(block=False)
        while len(got) < 2:
            await asyncio.sleep(0)
        await watcher.ask(("watch", refs["c"]), block=False)
        while len(got) < 3:
            await asyncio.sleep(0)
        found = {message.ref.name: message.error for message in got}
        assert isinstance(found["a"], KeyError) and found["b"] is None and found["c"] is None


async def test_failures_in_every_hook_are_reported_and_nothing_hangs() -> None:
    reports: list[tuple[str, str]] = []

    class Bad(Actor):
        def on_stop(self) -> None:
            raise RuntimeError("in on_stop")

        def on_failure(self, *_: Any) -> None:
            raise RuntimeError("in on_failure")

        def before_restart(self, error: BaseException) -> None:
            raise RuntimeError("in before_restart")

        def on_receive(self, message: Any) -> Any:
            if message == "boom":
                raise SystemExit("even this")
            return message

    def decide(error: BaseException) -> Any:
        return "nonsense" if str(error) == "nonsense" else Directive.RESTART

    async with ActorSystem() as system:
        system.events.subscribe(lambda event: reports.append((event.where, str(event.error))), ActorFailed)
        ref = system.spawn(Bad, supervision=Supervision(decide=decide, backoff=SOON))
        ref.tell("boom")
        assert await ref.ask("alive", block=False) == "alive"
        await ref.stop(block=False)
    assert reports == [
        ("on_receive", "even this"),
        ("on_failure", "in on_failure"),
        ("before_restart", "in before_restart"),
        ("on_stop", "in on_stop"),
    ]


async def test_system_exit_in_a_hook_does_not_end_the_loop() -> None:
    class Exiting(Actor):
        async def on_stop(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            raise SystemExit(3)

    async with ActorSystem() as system:
        ref = await system.spawn(Exiting)
        assert await ref.stop(block=False) is True
        assert not ref.is_alive()


async def test_the_event_stream_reports_the_lifecycle() -> None:
    events: list[Any] = []
    async with ActorSystem() as system:
        end = system.events.subscribe(events.append)
        ref = system.spawn(Child, [], "x", name="x", supervision=Supervision(backoff=SOON))
        await ref.ask("one", block=False)
        ref.tell(RuntimeError("boom"))
        await ref.ask("two", block=False)
        await ref.stop(block=False)
        end()
        system.spawn(Child, [], "y")
    kinds = [type(event) for event in events]
    assert kinds == [ActorStarted, ActorFailed, ActorRestarting, ActorStarted, ActorStopped]
    failed = events[1]
    assert (failed.where, failed.directive, failed.message) == ("on_receive", "restart", "RuntimeError")
    assert [header[0] for header in failed.recent] == ["str", "RuntimeError"]
    assert events[3].restarts == 1


async def test_a_subscriber_that_fails_is_removed() -> None:
    calls: list[Any] = []

    def bad(event: Any) -> None:
        calls.append(event)
        raise RuntimeError("no")

    async with ActorSystem() as system:
        system.events.subscribe(bad, ActorStarted)
        await system.spawn(Child, [], "x")
        await system.spawn(Child, [], "y")
    assert len(calls) == 1


@virtual_time
async def test_await_ref_waits_for_the_start_or_raises_what_prevented_it() -> None:
    class Slow(Actor):
        async def on_start(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0.01)

    class Never(Actor):
        async def on_start(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            raise OSError("no such device")

    async with ActorSystem() as system:
        ref = await system.spawn(Slow)
        assert ref.statistics().state == "running"
        with pytest.raises(ActorDeadError, match="never started") as caught:
            await system.spawn(Never)
        assert isinstance(caught.value.__cause__, OSError)


@virtual_time
async def test_a_restarted_parent_does_not_hear_of_the_children_of_the_life_before() -> None:
    heard: list[Any] = []

    class Dispatcher(Actor):
        def on_start(self) -> None:
            self.worker = self.spawn(Actor, name="worker")

        def on_child_stopped(self, ref: Any) -> None:
            heard.append(ref)

        async def on_receive(self, message: Any) -> Any:
            if message == "fail":
                await asyncio.sleep(1)
                raise OSError("fail")
            return self.worker

    async with ActorSystem() as system:
        ref = system.spawn(Dispatcher, supervision=Supervision(backoff=SOON))
        old = await ref.ask("worker", block=False)
        ref.tell("fail")
        await old.stop(block=False)
        new = await ref.ask("worker", block=False)
        assert ref.statistics().restarts == 1 and new is not old and heard == []
        await new.stop(block=False)
        await ref.ask("worker", block=False)
        assert heard == [new], "of its own it hears"


class Redacting(logging.Filter):
    """Expects texts, as many programs' own filters do."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.args = tuple(re.sub("secret", "...", each) for each in record.args or ())  # type: ignore[call-overload]
        return True


@pytest.fixture
def choosy_log() -> Iterator[None]:
    loggers, chosen = [logging.getLogger(name) for name in ("actors", "pykka")], Redacting()
    levels = [each.level for each in loggers]
    for each in loggers:
        each.addFilter(chosen)
        each.setLevel(logging.DEBUG)
    yield
    for each, level in zip(loggers, levels, strict=True):
        each.removeFilter(chosen)
        each.setLevel(level)


@pytest.mark.usefixtures("choosy_log")
@virtual_time
async def test_a_filter_of_the_log_that_raises_changes_nothing_for_actors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Weak(Actor):
        starts = 0

        def on_start(self) -> None:
            Weak.starts += 1
            if Weak.starts == 1:
                raise OSError("not yet")

        async def on_receive(self, message: Any) -> Any:
            if message is not None:
                raise message

        def on_stop(self) -> None:
            raise OSError("on_stop")

    system = ActorSystem()
    ref = system.spawn(Weak, supervision=Supervision(backoff=SOON))
    async with asyncio.timeout(60):
        await ref
        with pytest.raises(KeyError):
            await ref.ask(KeyError("asked"), block=False)
        ref.tell(KeyError("told"))
        await ref.ask(None, block=False)
        assert ref.statistics().restarts == 2
        assert (await system.stop()).clean
    assert "a line cannot be logged: TypeError" in caplog.text


@pytest.mark.parametrize(("how", "kind"), [("child", Escalated), ("task", OSError)])
def test_failures_beside_a_constructor_in_another_thread_are_the_actors_own(
    how: str, kind: type[Exception]
) -> None:
    """Its children and tasks begin on the loop while it goes on."""
    happened = threading.Event()

    class Database(Actor):
        def on_start(self) -> None:
            raise OSError("no database")

    class Service(Actor):
        def __init__(self, how: str) -> None:
            super().__init__()
            if how == "child":
                self.spawn(Database, supervision=ESCALATE)
            else:
                self.start_task(self.fail())
            assert happened.wait(20)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.system.loop).result(
                20
            )  # and what follows from it

        async def fail(self) -> None:
            self.system.loop.call_soon(happened.set)
            raise OSError("in a task")

    loop = asyncio.new_event_loop()
    loop.set_debug(True)  # refuses what is not for other threads
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        system = asyncio.run_coroutine_threadsafe(make_system(), loop).result(20)
        system.events.subscribe(lambda _: happened.set(), ActorStopped)
        system.spawn(Service, how, supervision=ESCALATE)
        found = asyncio.run_coroutine_threadsafe(asyncio.wait_for(system.failure, 20), loop).result(30)
        assert type(found.__cause__) is kind
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


async def make_system() -> ActorSystem:
    return ActorSystem()
