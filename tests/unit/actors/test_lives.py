"""What belongs to one life of an actor ends with it: children, tasks, hooks, outcomes; and memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import weakref
from typing import Any

import pytest

from actors import (
    ESCALATE,
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRestarting,
    ActorSystem,
    Backoff,
    Directive,
    OnError,
    ProcessActor,
    Strategy,
    Supervision,
    ThreadedActor,
)
from actors.testing import Delay
from tests.unit.actors.virtual_time import virtual_system, virtual_time

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))
TOGETHER = Supervision(strategy=Strategy.ONE_FOR_ALL, backoff=Backoff(first=1.0, most=1.0, jitter=0.0))


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


# -- children ---------------------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize("top", [True, False])
async def test_children_of_a_constructor_that_raises_are_stopped(top: bool) -> None:
    refs: list[Any] = []

    class Broken(Actor):
        def __init__(self) -> None:
            super().__init__()
            refs.append(self.spawn(Echo))
            raise OSError("broken")

    class Parent(Actor):
        def on_receive(self, _: Any) -> None:
            self.spawn(Broken, name="broken")

    async with virtual_system() as system:
        with pytest.raises(OSError, match="broken"):
            if top:
                system.spawn(Broken, name="broken")
            else:
                await system.spawn(Parent, name="p").ask("spawn", block=False)
        await asyncio.sleep(0.1)
        assert not refs[0].is_alive() and system.paths() == ([] if top else ["/p"])


@virtual_time
async def test_children_that_last_hooks_spawn_are_stopped() -> None:
    refs: list[Any] = []

    class Spawning(Echo):
        def on_failure(self, *_: Any) -> None:
            refs.append(self.spawn(Echo))

    async with virtual_system() as system:
        restarted = system.spawn(Spawning, supervision=SOON, name="r")
        restarted.tell(OSError())
        assert await restarted.ask("back", block=False) == "back"
        assert not refs[0].is_alive() and system.paths() == ["/r"]
        system.spawn(Spawning, name="s").tell(OSError())
        await asyncio.sleep(0.1)
        assert system.paths() == ["/r"], "one that gives up has no more children"
        assert all(not ref.is_alive() for ref in refs)


@virtual_time
@pytest.mark.parametrize("hook", ["on_stop", "before_restart", "on_failure"])
async def test_an_endless_last_hook_of_a_child_does_not_block_a_restart(hook: str) -> None:
    over = False

    async def endless(*_: Any) -> None:
        while not over:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    child = type("Child", (Echo,), {hook: endless})

    class Parent(Echo):
        def on_start(self) -> None:
            self.ref = self.spawn(child, name="child")

        def on_receive(self, message: Any) -> Any:
            if message == "child":
                return self.ref
            return super().on_receive(message)

    failures: list[ActorFailed] = []
    system = virtual_system(hook_timeout=30)
    system.events.subscribe(failures.append, ActorFailed)
    parent = system.spawn(Parent, name="p", supervision=SOON)
    ref = await parent.ask("child", block=False)
    began = asyncio.get_running_loop().time()
    (parent if hook == "on_stop" else ref).tell(OSError())
    assert await (parent if hook == "on_stop" else ref).ask("back", block=False) == "back"
    assert 30 <= asyncio.get_running_loop().time() - began < 60
    assert any("did not end within 30 s" in str(failed.error) for failed in failures)
    report = await system.stop()
    assert [line.split(" ")[0] for line in report.left][:1] == ["/p/child"], "it is left behind, and said so"
    over = True
    await asyncio.sleep(3601)
    assert (await system.stop()).clean, "the hook has ended"


# -- restarts of several actors ----------------------------------------------------------------------


@virtual_time
async def test_a_pool_that_is_resized_during_the_pause_comes_back() -> None:
    async with virtual_system() as system:
        router = await system.spawn_pool(Echo, size=3, supervision=TOGETHER)
        router.refs[2].tell(OSError())
        await asyncio.sleep(0.5)
        assert [ref.statistics().state for ref in router.refs] == ["restarting"] * 3
        assert await router.resize(2) == 2
        async with asyncio.timeout(30):
            assert [await ref.ask("back", block=False) for ref in router.refs] == ["back"] * 2


@virtual_time
async def test_a_restart_of_several_waits_for_a_start_as_long_as_its_class_says() -> None:
    starts: list[float] = []

    class Hanging(Echo):
        hook_timeout = 2.0

        async def on_start(self) -> None:  # type: ignore[override]
            await asyncio.sleep(1000.0 if self.actor_ref.statistics().restarts else 0.0)

    class Next(Echo):
        def on_start(self) -> None:
            starts.append(asyncio.get_running_loop().time())

    async with virtual_system(hook_timeout=50.0, stop_grace=0.0) as system:
        await system.spawn(Hanging, supervision=TOGETHER)
        last = await system.spawn(Next, supervision=TOGETHER)
        last.tell(OSError())
        await asyncio.sleep(100.0)
    assert starts[1] - starts[0] == pytest.approx(3.0), "a pause of 1 s and the 2 s of the class"


@virtual_time
@pytest.mark.parametrize("asked", ["before the failure", "in a last hook", "in the pause"])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_stop_between_two_lives_waits_for_messages_only(asked: str, waits: bool) -> None:
    log: list[Any] = []

    class Failing(Echo):
        def on_receive(self, message: Any) -> Any:
            log.append(message)
            return super().on_receive(message)

        async def on_failure(self, *_: Any) -> None:  # type: ignore[override]
            await asyncio.sleep(1.0)

    system = virtual_system()
    pause = Supervision(backoff=Backoff(first=10.0, jitter=0.0))
    ref = await system.spawn(Failing, supervision=pause)
    began, error = asyncio.get_running_loop().time(), OSError()
    ref.tell(error)
    if asked != "before the failure":
        await asyncio.sleep(0.5 if asked == "in a last hook" else 5.0)
    if waits:
        ref.tell("last")
    assert await ref.stop(block=False)
    took = asyncio.get_running_loop().time() - began
    at = 5.0 if asked == "in the pause" else 1.0
    assert took == pytest.approx(11.0 if waits else at)
    assert log == [error, *(["last"] if waits else [])]
    assert (await system.stop()).clean


@virtual_time
async def test_a_restart_of_several_waits_for_each_start() -> None:
    log: list[str] = []

    class Slow(Echo):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        async def on_start(self) -> None:  # type: ignore[override]
            log.append(f"{self.name} begins")
            await asyncio.sleep(5)
            log.append(f"{self.name} runs")

    async with virtual_system() as system:
        refs = [system.spawn(Slow, name, supervision=TOGETHER) for name in "ab"]
        for ref in refs:
            await ref
        log.clear()
        refs[1].tell(OSError())
        assert await refs[1].ask("back", block=False) == "back"
    assert log == ["a begins", "a runs", "b begins", "b runs"]


@virtual_time
async def test_a_member_that_fails_in_its_start_takes_the_others_along() -> None:
    starts = {"a": 0, "b": 0}

    class Flaky(Echo):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        async def on_start(self) -> None:  # type: ignore[override]
            starts[self.name] += 1
            await asyncio.sleep(0.1)
            if self.name == "a" and starts["a"] == 2:
                raise OSError("not yet")

    async with virtual_system() as system:
        refs = [system.spawn(Flaky, name, supervision=TOGETHER) for name in "ab"]
        for ref in refs:
            await ref
        refs[1].tell(OSError())
        async with asyncio.timeout(60):
            assert [await ref.ask("back", block=False) for ref in refs] == ["back", "back"]
    assert starts == {"a": 3, "b": 2}


# -- what crosses from one life to the next -------------------------------------------------------------


@virtual_time
async def test_an_old_lifes_task_does_not_fail_the_new_one() -> None:
    async def late() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            raise OSError("late") from None

    class Tasked(Echo):
        def on_receive(self, message: Any) -> Any:
            if message == "task":
                self.start_task(late())
            return super().on_receive(message)

    async with virtual_system() as system:
        ref = system.spawn(Tasked, supervision=SOON)
        await ref.ask("task", block=False)
        await asyncio.sleep(0.1)
        ref.tell(OSError())
        await asyncio.sleep(5)
        assert ref.statistics().restarts == 1


@virtual_time
@pytest.mark.parametrize("held", [False, True])
async def test_a_piped_outcome_does_not_cross_a_restart(held: bool) -> None:
    got: list[Any] = []

    class Piping(Actor):
        async def on_receive(self, message: Any) -> None:
            if message == "fail":
                self.pipe_to_self(asyncio.sleep(0.1, "outcome"), on_value=lambda value: value)
                await asyncio.sleep(1)  # the outcome is in the mailbox when this fails
                raise OSError("failed")
            got.append(message)

    async with virtual_system() as system:
        if held:
            # An instrument holds it back until the next life runs.
            delay = Delay(message=lambda message: message == "outcome", seconds=2.0)
            system.instrument(delay.bound(system.loop, random.Random(1)))
        ref = system.spawn(Piping, supervision=SOON)
        ref.tell("fail")
        ref.tell("next")
        await asyncio.sleep(5)
    assert got == ["next"]


@virtual_time
async def test_on_stop_belongs_to_a_life_that_has_started() -> None:
    stops: list[str] = []

    class Starting(Echo):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.how = how

        async def on_start(self) -> None:  # type: ignore[override]
            if self.how == "slow":
                await asyncio.sleep(3600)
            elif self.how == "failing":
                raise OSError("no such host")

        def on_stop(self) -> None:
            stops.append(self.how)

    system = virtual_system()
    system.spawn(Starting, "slow")
    system.spawn(Starting, "failing", supervision=Supervision(backoff=Backoff(first=3600.0)))
    await system.spawn(Starting, "started")
    await asyncio.sleep(1)
    assert (await system.stop()).clean
    assert stops == ["started"]


async def test_a_thread_that_does_not_come_back_ends_its_actor_and_no_other_life_begins() -> None:
    gate, inside, lives, stops = threading.Event(), threading.Event(), [], []

    class Stuck(ThreadedActor):
        use_daemon_thread = True

        def __init__(self) -> None:
            super().__init__()
            lives.append(self)

        def on_receive(self, message: Any) -> Any:
            if message == "stick":
                inside.set()
                gate.wait(30)
            return id(self)

        def on_stop(self) -> None:
            stops.append(self)

    class Failing(Echo):
        pass

    class Parent(Actor):
        supervision = Supervision(strategy=Strategy.ONE_FOR_ALL, backoff=SOON.backoff)

        def on_start(self) -> None:
            self.spawn(Stuck, name="stuck")
            self.spawn(Failing, name="failing")

    system = ActorSystem(stop_grace=0.01)
    await system.spawn(Parent, name="p")
    stuck, failing = system.lookup("/p/stuck"), system.lookup("/p/failing")
    assert stuck is not None and failing is not None
    await failing
    asked = stuck.ask("stick", block=False)
    while not inside.is_set():
        await asyncio.sleep(0.001)
    failing.tell(OSError())
    with pytest.raises(ActorDeadError):
        await asked
    assert await failing.ask("back", block=False) == "back"
    assert not stuck.is_alive() and len(lives) == 1
    report = await system.stop()
    gate.set()
    assert len(report.left) == 1 and not stops


# -- memory -----------------------------------------------------------------------------------------------


@virtual_time
async def test_one_living_actor_does_not_hold_a_chain_of_stopped_ones() -> None:
    cells: list[weakref.ref[Any]] = []

    class Link(Actor):
        async def on_receive(self, depth: int) -> Any:
            if depth:
                self.system.spawn(Link).tell(depth - 1)
                self.stop()

    async with virtual_system() as system:
        made = system.add

        def add(cell: Any, siblings: Any) -> Any:
            cells.append(weakref.ref(cell.ref))
            return made(cell, siblings)

        system.add = add  # type: ignore[method-assign]
        system.spawn(Link).tell(500)
        while len(cells) < 501:
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert len(system.paths()) == 1
        gc.collect()
        assert sum(cell() is not None for cell in cells) < 10


@virtual_time
async def test_a_dead_ref_holds_neither_the_instance_nor_the_locals_of_its_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("actors"), "disabled", True)  # pytest keeps each record

    class Big:
        pass

    instances: list[weakref.ref[Any]] = []
    locals_: list[weakref.ref[Any]] = []

    class Holding(Actor):
        def __init__(self, argument: Any) -> None:
            super().__init__()
            instances.append(weakref.ref(self))
            locals_.append(weakref.ref(argument))

        def on_receive(self, message: Any) -> None:
            big = Big()
            locals_.append(weakref.ref(big))
            raise KeyError(message)

    policy = Supervision(OnError((KeyError, Directive.STOP)))
    async with virtual_system() as system:
        ref = system.spawn(Holding, Big(), supervision=policy)
        ref.tell("boom")
        await asyncio.sleep(1)
        gc.collect()
        assert [each() for each in (*instances, *locals_)] == [None] * 3
        with pytest.raises(ActorDeadError) as caught:
            await ref.ask("anybody?", block=False)
        assert repr(caught.value.__cause__) == "KeyError('boom')"
        assert ref.statistics().state == "stopped" and ref.path and repr(ref)


@virtual_time
async def test_a_class_decides_how_long_its_actors_take_to_stop() -> None:
    """As with the shutdown timeouts of Erlang's children."""
    ends: list[tuple[str, float]] = []
    clock = asyncio.get_running_loop().time

    class Busy(Actor):
        async def on_receive(self, message: float) -> None:
            try:
                await asyncio.sleep(message)
            finally:
                ends.append((self.actor_ref.name, clock() - began))

        async def on_stop(self) -> None:  # type: ignore[override]
            try:
                await asyncio.sleep(1000.0)
            finally:
                ends.append((f"last hook of {self.actor_ref.name}", clock() - began))

    class Patient(Busy):
        stop_grace, hook_timeout = 100.0, 20.0

    class Impatient(Busy):
        stop_grace, hook_timeout = 0.0, 0.0

    class Parent(Actor):
        def on_start(self) -> None:  # type: ignore[override]
            for kind in (Busy, Impatient, Patient):
                self.spawn(kind, name=kind.__name__).tell(50.0 if kind is Patient else 500.0)

    async with virtual_system(stop_grace=5.0, hook_timeout=10.0) as system:
        parent = await system.spawn(Parent)
        await asyncio.sleep(1.0)
        began = clock()
        await parent.stop(block=False)
    assert ends == [
        ("Patient", pytest.approx(49.0)),
        ("last hook of Patient", pytest.approx(69.0)),
        ("Impatient", pytest.approx(69.0)),
        ("last hook of Impatient", pytest.approx(69.0)),
        ("Busy", pytest.approx(74.0)),
        ("last hook of Busy", pytest.approx(84.0)),
    ]


@pytest.mark.parametrize(
    ("base", "setting", "wrong"),
    [
        (Actor, "stop_grace", -1.0),
        (Actor, "stop_grace", float("nan")),
        (Actor, "hook_timeout", "1"),
        (ProcessActor, "memory_limit", -1),
        (ProcessActor, "memory_limit", "1G"),
        (ProcessActor, "max_message", 0),
        (ProcessActor, "start_timeout", float("nan")),
        (ProcessActor, "stop_timeout", None),
    ],
)
def test_a_setting_of_a_class_that_makes_no_sense_is_refused(
    base: type[Actor], setting: str, wrong: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"Wrong\.{setting} is "):
        type("Wrong", (base,), {setting: wrong})


# -- behaviours and stashed messages ----------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize("hook", ["__init__", "after_restart", "on_start"])
async def test_a_behaviour_that_a_life_begins_with_holds(hook: str) -> None:
    class Changing(Actor):
        def __init__(self) -> None:
            super().__init__()
            self.change("__init__")

        def change(self, where: str) -> None:
            if where == hook:
                self.become(self.other, discard_old=False)

        def after_restart(self, error: BaseException) -> None:
            self.change("after_restart")

        def on_start(self) -> None:  # type: ignore[override]
            self.change("on_start")

        def on_receive(self, message: Any) -> str:
            if message == "fail":
                raise OSError
            return "on_receive"

        def other(self, message: Any) -> str:
            if message == "fail":
                raise OSError
            if message == "back":
                self.unbecome()
            return "other"

    async with virtual_system() as system:
        ref = system.spawn(Changing, supervision=SOON)
        for life in range(2):
            held = "on_receive" if hook == "after_restart" and life == 0 else "other"
            assert await ref.ask("hello", block=False) == held
            await ref.ask("back", block=False)
            assert await ref.ask("hello", block=False) == "on_receive"
            ref.tell("fail")


@virtual_time
@pytest.mark.parametrize("texts", ["a", "ab"])
async def test_stashed_messages_are_stashed_again_after_a_restart(texts: str) -> None:
    class Connecting(Actor):  # of docs/actors.md
        connected = False

        def on_receive(self, message: Any) -> str | None:
            if message == "fail":
                raise OSError
            if message == "connected":
                self.connected = True
                self.unstash_all()
            elif self.connected:
                return f"sent {message}"
            else:
                self.stash()
            return None

    async with virtual_system() as system:
        ref = system.spawn(Connecting, supervision=SOON)
        replies = [ref.ask(text, block=False) for text in texts]
        for message in ("fail", "fail", "connected"):
            ref.tell(message)
            await asyncio.sleep(1)
        assert [await reply for reply in replies] == [f"sent {text}" for text in texts]


@virtual_time
async def test_a_message_is_stashed_once_in_each_handling() -> None:
    refused: list[str] = []

    class Twice(Actor):
        handled = 0

        def on_receive(self, message: Any) -> Any:
            self.handled += 1
            if self.handled > 2:
                return self.handled
            self.stash()
            self.unstash_all()
            try:
                self.stash()
            except ValueError as error:
                refused.append(str(error))

    async with virtual_system() as system:
        assert await system.spawn(Twice).ask("m", block=False) == 3
    assert refused == ["this message is stashed already"] * 2


@virtual_time
async def test_an_instance_from_before_ends_nothing_of_the_next_one() -> None:
    instances: list[Actor] = []
    seen: list[Any] = []

    class Watching(Actor):
        def on_start(self) -> None:  # type: ignore[override]
            instances.append(self)
            self.set_timer("t", 1.0, "tick")
            self.watch(other)

        def on_receive(self, message: Any) -> None:
            if message == "fail":
                raise OSError
            seen.append(message)

    async with virtual_system() as system:
        other = system.spawn(Echo)
        ref = system.spawn(Watching, supervision=SOON)
        ref.tell("fail")
        await asyncio.sleep(0.5)
        old, new = instances
        old.cancel_timer("t")
        old.unwatch(other)
        assert new.has_timer("t") and not old.has_timer("t")
        await asyncio.sleep(1)
        await other.stop(block=False)
        await asyncio.sleep(1)
    assert [each if each == "tick" else type(each).__name__ for each in seen] == ["tick", "Terminated"]


@virtual_time
async def test_an_instance_does_nothing_for_the_next_one_in_the_pause_between_them() -> None:
    instances: list[Actor] = []
    got: list[Any] = []
    refused: list[str] = []

    class Reborn(Actor):
        def on_start(self) -> None:  # type: ignore[override]
            instances.append(self)

        def before_restart(self, error: BaseException) -> None:
            self.set_timer("last words", 0.0, "never comes")  # its hooks may do what they like

        def on_receive(self, message: Any) -> None:
            if message == "fail":
                raise OSError
            got.append(message)

    async def work() -> None:
        got.append("worked")

    def in_the_pause(_: ActorRestarting) -> None:
        (old,) = instances
        for use in (
            lambda: old.set_timer("t", 0.0, "ghost"),
            lambda: old.start_task(work()),
            lambda: old.watch(other),
            lambda: old.spawn(Echo),
        ):
            try:
                use()
            except ActorDeadError as error:
                refused.append(str(error))
        old.cancel_timer("t")
        old.unwatch(other)
        old.stop()
        got.append(old.stop_if_idle())

    async with virtual_system() as system:
        system.events.subscribe(in_the_pause, ActorRestarting)
        other = system.spawn(Echo, name="other")
        ref = system.spawn(Reborn, supervision=SOON, name="reborn")
        ref.tell("fail")
        await asyncio.sleep(5)
        await other.stop(block=False)
        await asyncio.sleep(5)
        assert ref.is_alive() and len(instances) == 2 and system.paths() == ["/reborn"]
    assert got == [False] and len(refused) == 4


async def test_an_instance_that_has_stopped_acts_no_more() -> None:
    async with ActorSystem() as system:
        ref, other = system.spawn(Echo), system.spawn(Echo)
        await asyncio.gather(ref, other)
        actor: Any = ref._cell.actor
        await ref.stop(block=False)
        work = asyncio.sleep(0)
        for act in (lambda: actor.start_task(work), lambda: actor.watch(other), actor.unstash_all):
            with pytest.raises(ActorDeadError, match="has stopped"):
                act()
        assert work.cr_frame is None and not other._cell.watchers


async def test_each_life_of_a_system_has_a_failure_of_its_own() -> None:
    class Fails(Actor):
        def on_receive(self, message: Any) -> Any:
            raise ValueError(message)

    async with ActorSystem() as system:
        system.spawn(Fails, supervision=ESCALATE).tell("first")
        first = await system.failure
        await system.stop()
        assert system.failure.result() is first, "it can be read after the stop"
        for what in ("second", "third"):
            ref = system.spawn(Fails, supervision=ESCALATE)
            failure = system.failure
            assert not failure.done() and system.failure is failure
            ref.tell(what)
            assert repr((await failure).__cause__) == f"ValueError({what!r})"
            system.spawn(Fails)
            assert system.failure is failure, "it is of this life"
            await system.stop()
        system.spawn(Fails)
        waited = system.failure
        await system.stop()
        system.spawn(Fails)
        assert system.failure is waited, "who waits goes on waiting"
