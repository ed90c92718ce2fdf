"""Cancellation, inside the actor's code and from outside: it fails what it hits, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorSystem,
    Backoff,
    Interrupted,
    Piped,
    Strategy,
    Supervision,
    TooManyTasks,
)
from tests.unit.actors.virtual_time import virtual_system, virtual_time

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))


async def cancelled_work() -> None:
    """Await a task that somebody else has cancelled."""
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


class Careless(Actor):
    """Awaits cancelled work when told to; otherwise it echoes."""

    async def on_receive(self, message: Any) -> Any:
        if message == "cancelled":
            await cancelled_work()
        if message == "raise":
            raise asyncio.CancelledError
        return message


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "raise":
            raise asyncio.CancelledError
        return message


@virtual_time
@pytest.mark.parametrize("kind", [Careless, Echo])
async def test_an_inner_cancellation_fails_the_ask_and_nobody_else(kind: type[Actor]) -> None:
    async with ActorSystem() as system:
        bystander, careless = system.spawn(Echo), system.spawn(kind)
        for message in ("raise", "cancelled") if kind is Careless else ("raise",):
            with pytest.raises(Interrupted) as caught:
                await careless.ask(message, block=False)
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
            assert asyncio.current_task().cancelling() == 0
        assert await careless.ask("next", block=False) == "next", (
            "an ask that fails is no failure of the actor"
        )
        assert await bystander.ask("here", block=False) == "here"


@virtual_time
async def test_an_inner_cancellation_in_a_tell_stops_only_its_actor() -> None:
    async with ActorSystem() as system:
        bystander, careless = system.spawn(Echo), system.spawn(Careless)
        careless.tell("cancelled")
        await asyncio.sleep(1)
        assert not careless.is_alive()
        assert await bystander.ask("here", block=False) == "here"
        with pytest.raises(ActorDeadError) as caught:
            await careless.ask("anybody?", block=False)
        assert isinstance(caught.value.__cause__, Interrupted)


@virtual_time
async def test_an_inner_cancellation_in_a_tell_is_supervised() -> None:
    decided: list[BaseException] = []

    def decide(error: BaseException) -> Any:
        decided.append(error)
        return Supervision().decide(error)

    async with ActorSystem() as system:
        careless = system.spawn(Careless, supervision=Supervision(decide, backoff=SOON.backoff))
        careless.tell("cancelled")
        assert await careless.ask("next", block=False) == "next"
        assert careless.statistics().restarts == 1
    assert [type(error) for error in decided] == [Interrupted]


@virtual_time
async def test_an_inner_cancellation_in_on_start_is_supervised() -> None:
    class Starting(Careless):
        lives = 0

        async def on_start(self) -> None:  # type: ignore[override]
            Starting.lives += 1
            if Starting.lives == 1:
                await cancelled_work()

    async with ActorSystem() as system:
        ref = await system.spawn(Starting, supervision=SOON)
        assert await ref.ask("up", block=False) == "up"
    assert Starting.lives == 2


# -- from outside ---------------------------------------------------------------------------------


def all_others() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def cancel_all_others() -> None:
    """What programs, and ``asyncio.run`` at its end, do."""
    for task in all_others():
        task.cancel()


class Slow(Actor):
    """Takes an hour for every message but ``quick``; each hook awaits the gate of its name, if there is one."""

    def __init__(self, **gates: Any) -> None:
        super().__init__()
        self.gates = gates

    async def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise OSError("failed")
        if message != "quick":
            await asyncio.sleep(3600)
        return message

    async def _at(self, hook: str) -> None:
        if hook in self.gates:
            await self.gates[hook].wait()

    async def on_start(self) -> None:  # type: ignore[override]
        await self._at("on_start")

    async def on_stop(self) -> None:  # type: ignore[override]
        await self._at("on_stop")

    async def on_failure(self, *_: Any) -> None:  # type: ignore[override]
        await self._at("on_failure")

    async def before_restart(self, error: BaseException) -> None:
        await self._at("before_restart")

    async def after_restart(self, error: BaseException) -> None:
        await self._at("after_restart")


@virtual_time
@pytest.mark.parametrize("turns", range(6))
async def test_a_handler_cancelled_from_outside_fails_its_ask(turns: int) -> None:
    async with virtual_system() as system:
        ref = system.spawn(Slow, supervision=SOON)
        asked = ref.ask("slow", block=False)
        for _ in range(turns):  # before, at and after the first step of the handler's task
            await asyncio.sleep(0)
        cancel_all_others()
        try:
            assert await asked == "slow"
        except Interrupted:
            assert turns >= 2
        else:
            assert turns <= 3
        assert await ref.ask("quick", block=False) == "quick"


@virtual_time
async def test_a_tell_whose_handler_is_cancelled_from_outside_is_supervised() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Slow, supervision=SOON)
        ref.tell("slow")
        await asyncio.sleep(1)
        cancel_all_others()
        assert await ref.ask("quick", block=False) == "quick"
        assert ref.statistics().restarts == 1


@virtual_time
@pytest.mark.parametrize("turns", range(5))
async def test_a_start_cancelled_from_outside_is_supervised(turns: int) -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        ref = system.spawn(Slow, on_start=gate, supervision=SOON)
        for _ in range(turns):
            await asyncio.sleep(0)
        cancel_all_others()
        gate.set()
        assert await ref.ask("quick", block=False) == "quick"


@virtual_time
@pytest.mark.parametrize("hook", ["on_failure", "before_restart", "after_restart"])
@pytest.mark.parametrize("turns", range(8))
async def test_a_restart_cancelled_from_outside_goes_on(hook: str, turns: int) -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        ref = system.spawn(Slow, **{hook: gate}, supervision=SOON)
        await ref
        ref.tell("fail")
        for _ in range(turns):
            await asyncio.sleep(0)
        cancel_all_others()
        await asyncio.sleep(0.01)
        cancel_all_others()
        gate.set()
        assert await ref.ask("quick", block=False) == "quick"


@virtual_time
async def test_a_pause_before_a_restart_cannot_be_cancelled_from_outside() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Slow, supervision=Supervision(backoff=Backoff(first=1.0, jitter=0.0)))
        ref.tell("fail")
        await asyncio.sleep(0.5)
        cancel_all_others()
        assert ref.statistics().state == "restarting"
        assert await ref.ask("quick", block=False) == "quick"


@virtual_time
@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("how", ["on_stop", "handler", "children"])
async def test_a_stop_cancelled_from_outside_ends(turns: int, how: str) -> None:
    class Parent(Actor):
        def on_start(self) -> None:
            self.spawn(Slow, on_stop=asyncio.Event(), name="child")

    system = virtual_system()
    ref = system.spawn(
        Parent if how == "children" else Slow, **({} if how == "children" else {how: asyncio.Event()})
    )
    await ref
    asked = ref.ask("slow", block=False) if how == "handler" else None
    await asyncio.sleep(0.1)
    stopped = ref.stop(block=False) if asked is None else None
    stopping = asyncio.ensure_future(system.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in all_others():
        if task is not stopping:
            task.cancel()
    async with asyncio.timeout(600):
        assert (await stopping).clean
    assert not ref.is_alive() and (stopped is None or await stopped)
    if asked is not None:
        with pytest.raises((ActorDeadError, Interrupted)):
            await asked


@virtual_time
async def test_piped_work_cancelled_from_outside_says_so() -> None:
    got: list[Any] = []

    class Piping(Actor):
        def on_receive(self, message: Any) -> None:
            if isinstance(message, Piped):
                got.append(message)
            else:
                self.pipe_to_self(asyncio.sleep(3600), tag="work")

    async with virtual_system() as system:
        ref = system.spawn(Piping)
        await ref.ask("begin", block=False)
        await asyncio.sleep(0.1)
        cancel_all_others()
        await asyncio.sleep(0.1)
        assert [(piped.tag, type(piped.error)) for piped in got] == [("work", asyncio.CancelledError)]


def test_actors_do_not_keep_a_program_from_its_end() -> None:
    """``asyncio.run`` cancels what is left and waits for it: no actor may go on for ever in such a task."""
    refs: list[Any] = []

    class Endless(Actor):
        async def on_receive(self, message: Any) -> None:
            self.actor_ref.tell(message)
            await asyncio.sleep(0)

    async def main(spawn: Callable[..., Any]) -> None:
        refs.append(spawn(Endless, supervision=SOON))
        refs[0].tell("on and on")
        await asyncio.sleep(0.01)

    asyncio.run(main(lambda *args, **options: ActorSystem().spawn(*args, **options)))


@virtual_time
async def test_a_failure_is_reported_once() -> None:
    failures: list[Any] = []
    async with virtual_system() as system:
        system.events.subscribe(failures.append, ActorFailed)
        ref = system.spawn(Slow, supervision=SOON)
        ref.tell("slow")
        await asyncio.sleep(1)
        cancel_all_others()
        await ref.ask("quick", block=False)
    assert [(failed.where, type(failed.error)) for failed in failures] == [("on_receive", Interrupted)]


class Background(Actor):
    """Starts tasks and pipes; its last hooks wait."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    async def work(self) -> str:
        self.log.append("begins")
        await asyncio.sleep(60)
        return "done"

    def on_receive(self, message: Any) -> Any:
        if message == "start":
            self.start_task(self.work())
        elif message in ("pipe", "pipe, cancelled at once"):
            self.pipe_to_self(self.work(), tag="piped")
            for task in (self._cell.tasks or ()) if message != "pipe" else ():
                task.cancel()
        elif isinstance(message, Piped):
            self.log.append(f"{message.tag} {type(message.error).__name__}")
        return self.log

    async def on_stop(self) -> None:  # type: ignore[override]
        self.log.append("gives back")
        await asyncio.sleep(60)
        self.log.append("never")


@pytest.mark.parametrize("turns", range(3))
@virtual_time
async def test_a_background_task_that_is_cancelled_from_outside_fails_its_actor(turns: int) -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Background, [], supervision=SOON)
        await ref.ask("start", block=False)
        await cancel_after(turns)
        await asyncio.sleep(1)
        assert ref.statistics().restarts == 1 and ref.is_alive()
        ref.stop(block=False)


@pytest.mark.parametrize("turns", [None, 0, 1])
@virtual_time
async def test_piped_work_that_is_cancelled_from_outside_has_begun_and_has_an_outcome(
    turns: int | None,
) -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Background, [], supervision=SOON)
        if turns is None:
            ref.tell("pipe, cancelled at once")
        else:
            await ref.ask("pipe", block=False)
            await cancel_after(turns)
        await asyncio.sleep(1)
        assert await ref.ask("log", block=False) == ["begins", "piped CancelledError"]
        assert ref.statistics().restarts == 0


@pytest.mark.parametrize("turns", range(3))
@virtual_time
async def test_a_last_hook_that_is_cancelled_from_outside_has_begun(turns: int) -> None:
    log: list[str] = []
    async with virtual_system() as system:
        ref = await system.spawn(Background, log)
        stopped = ref.stop(block=False)
        while ref.is_alive():
            await asyncio.sleep(0)
        await cancel_after(turns)
        assert await stopped is True
    assert log == ["gives back"]


@virtual_time
async def test_piped_work_for_which_there_is_no_room_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    class Narrow(Background):
        max_tasks = 1

    log: list[str] = []
    async with virtual_system() as system:
        ref = await system.spawn(Narrow, log)
        await ref.ask("pipe", block=False)
        with pytest.raises(TooManyTasks):
            await ref.ask("pipe", block=False)
        await asyncio.sleep(1)
        await cancel_after(0)
        ref.stop(block=False)
    gc.collect()
    assert log[0] == "begins" and "begins" not in log[1:]
    assert not [str(each.message) for each in recwarn if "never awaited" in str(each.message)]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("hook", ["on_stop", "before_restart", "on_failure"])
@virtual_time
async def test_a_last_hook_that_ends_with_generator_exit_holds_up_nothing(hook: str, late: bool) -> None:
    async def ends(*_: Any) -> None:
        if late:
            await asyncio.sleep(0)
        raise GeneratorExit

    def receive(_: Any, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message

    failed: list[ActorFailed] = []
    system = virtual_system()
    system.events.subscribe(failed.append, ActorFailed)
    ref = await system.spawn(
        type("Odd", (Actor,), {hook: ends, "on_receive": receive}),
        supervision=Supervision(backoff=SOON.backoff, strategy=Strategy.ONE_FOR_ALL),
    )
    sibling = await system.spawn(Echo)
    if hook != "on_stop":
        ref.tell("fail")
        assert await ref.ask("here", block=False, timeout=60) == "here"
    async with asyncio.timeout(60):
        assert await ref.stop(block=False) is True
    assert await sibling.ask("here", block=False, timeout=60) == "here"
    assert [each.where for each in failed if isinstance(each.error, GeneratorExit)] == [hook]
    assert (await system.stop(60)).clean


async def cancel_after(turns: int) -> None:
    """Cancel all other tasks after some turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    cancel_all_others()
