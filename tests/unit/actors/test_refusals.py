"""What an outsider did wrong, and is told at once: arguments, copies of refs, instances of a life that has ended."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Backoff,
    Directive,
    Intensity,
    Supervision,
    Wait,
)
from actors._policy import RestartHistory
from actors.patterns import CircuitBreaker, CircuitOpen, StateMachine, ask_with_retry, when

NAN = float("nan")
QUICK = Supervision(backoff=Backoff(first=0.0))


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        return message(self) if callable(message) else message


@pytest.mark.parametrize(
    "make",
    [
        lambda: Intensity(-1),
        lambda: Intensity(1, 0),
        lambda: Intensity(1, NAN),
        lambda: Backoff(first=-1),
        lambda: Backoff(most=NAN),
        lambda: Backoff(factor=0),
        lambda: Backoff(factor=1e300),
        lambda: Backoff(jitter=2),
        lambda: Wait(NAN),
        lambda: ActorSystem(stop_grace=NAN),
        lambda: ActorSystem(stop_grace=-1),
        lambda: ActorSystem(hook_timeout=-1),
        lambda: ActorSystem(stop_timeout=NAN),
        lambda: ActorSystem(slow_handler=-1),
        lambda: ActorSystem(mailbox_capacity=0),
        lambda: ActorSystem(overflow="x"),  # type: ignore[arg-type]
        lambda: ActorSystem(hook_timeout=None),  # type: ignore[arg-type]
    ],
)
async def test_wrong_settings(make: Callable[[], object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        make()


async def test_what_is_no_actor_or_no_name() -> None:
    async with ActorSystem() as system:
        for wrong in (int, None, "Echo", lambda: 1):
            with pytest.raises(TypeError, match=r"a subclass of actors\.Actor, not"):
                system.spawn(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"a subclass of actors\.Actor, not"):
            await system.spawn(Echo).ask(lambda self: self.spawn(int), block=False)
        with pytest.raises(TypeError, match="name is a str, not 5"):
            system.spawn(Echo, name=5)  # type: ignore[arg-type]
        assert len(system.paths()) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda ref: ref.ask(1, block=False, timeout=NAN),
        lambda ref: ref.send(1, timeout=NAN),
        lambda ref: ref.ask(lambda self: self.set_timer("k", NAN, 1), block=False),
        lambda ref: ref.ask(lambda self: self.set_timer("k", 0, 1, every=NAN), block=False),
        lambda ref: ref.ask(lambda self: self.set_receive_timeout(NAN), block=False),
        lambda ref: ref._cell.system.stop(NAN),
        lambda ref: ask_with_retry(ref, 1, timeout=NAN),
    ],
)
async def test_no_timer_of_the_loop_is_nan(use: Callable[[ActorRef[Echo]], Any]) -> None:
    """One would disorder the loop's heap: timers of bystanders come late, or before their time."""
    async with ActorSystem() as system:
        ref = await system.spawn(Echo)
        with pytest.raises(ValueError, match="nan"):
            await use(ref)


def test_a_window_shorter_than_the_clocks_resolution() -> None:
    history, policy = RestartHistory(), Supervision(intensity=Intensity(3, 1e-9))
    assert [history.record(1e8, policy) for _ in range(3)] == [1, 1, 1]


async def test_copies_of_a_ref_are_the_ref() -> None:
    @dataclasses.dataclass
    class Message:
        ref: Any

    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        assert copy.copy(ref) is ref and copy.deepcopy([ref])[0] is ref
        assert dataclasses.asdict(Message(ref))["ref"] is ref
        with pytest.raises(TypeError, match=r"the ref of Echo \(/Echo-1\) cannot be pickled"):
            pickle.dumps(ref)


async def test_an_instance_from_before_a_restart_leaves_the_next_one_alone() -> None:
    instances: list[Any] = []

    class Reborn(Echo):
        def on_start(self) -> None:
            instances.append(self)

    def fail(_: Any) -> None:
        raise OSError("restart me")

    async with ActorSystem() as system:
        ref = await system.spawn(Reborn, supervision=QUICK)
        ref.tell(fail)
        assert await ref.ask(1, block=False) == 1
        old = instances[0]
        work = asyncio.sleep(0)
        for use in (
            lambda: old.set_timer("k", 0, 1),
            lambda: old.spawn(Echo),
            lambda: old.become(lambda _: "hijacked"),
            lambda: old.watch(ref),
            lambda: old.set_receive_timeout(0.01),
            lambda: old.start_task(work),
            lambda: old.pipe_to_self(asyncio.sleep(0)),
            lambda: old.take_reply(),
        ):
            with pytest.raises(ActorDeadError, match="has been restarted: this is an instance from before"):
                use()
        old.stop()
        await asyncio.sleep(0)
        assert await ref.ask(2, block=False) == 2
        assert ref.statistics().restarts == 1 and system.paths() == [ref.path]
        instances[1].stop()
        await asyncio.to_thread(ref.actor_stopped.wait, 10)
        assert not ref.is_alive()


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), ValueError("no idea")])
async def test_a_decision_that_raises_escalates(error: BaseException) -> None:
    def decide(_: BaseException) -> Directive:
        raise error

    def fail(_: Any) -> None:
        raise OSError

    async with ActorSystem() as system:
        bystander = system.spawn(Echo)
        ref = system.spawn(Echo, supervision=Supervision(decide=decide))
        ref.tell(fail)
        assert (await system.failure).path == ref.path
        assert await bystander.ask(1, block=False) == 1


async def test_a_message_whose_class_cannot_be_hashed() -> None:
    class Meta(type):
        __hash__ = None  # type: ignore[assignment]  # as a metaclass with __eq__ alone

        def __eq__(cls, other: object) -> bool:
            return False

    class Odd(metaclass=Meta):
        pass

    async with ActorSystem() as system:
        ref, odd = system.spawn(Echo), Odd()
        asked = [ref.ask(odd, block=False), ref.ask(odd, block=False)]
        assert [await each for each in asked] == [odd, odd]


async def test_a_breaker_whose_functions_raise_still_has_trials() -> None:
    now = [0.0]

    def broken(_: Any) -> bool:
        raise ZeroDivisionError

    async def down() -> None:
        raise OSError

    async def up() -> str:
        return "up"

    for options in ({"on_change": broken}, {"is_failure": broken}):
        breaker = CircuitBreaker(
            failures=1,
            pause=Backoff(first=1.0, jitter=0.0),
            clock=lambda: now[0],
            **options,  # type: ignore[arg-type]
        )
        for _ in range(2):  # the second one is a trial
            with pytest.raises((OSError, ZeroDivisionError)):
                await breaker.call(down)
            with pytest.raises(CircuitOpen):
                await breaker.call(up)
            now[0] += 100
        assert await breaker.call(up) == "up" and breaker.state == "closed"


async def test_goto_outside_of_a_handler() -> None:
    machines: list[Any] = []

    class Machine(StateMachine):
        initial = "a"

        def on_start(self) -> Any:
            machines.append(self)
            return super().on_start()

        @when("a", str)
        async def leave(self, message: str) -> None:
            await asyncio.sleep(0)
            self.goto(message)

        @when("b", int)
        def number(self, message: int) -> int:
            return message

        @when("a", float)
        def never(self, message: float) -> None:
            self.goto("b", timeout=message)

    async with ActorSystem() as system:
        ref = await system.spawn(Machine)
        with pytest.raises(RuntimeError, match="none is running"):
            machines[0].goto("b")
        with pytest.raises(ValueError, match="nan"):
            await ref.ask(NAN, block=False)
        await ref.ask("b", block=False)
        assert await ref.ask(1, block=False) == 1
        with pytest.raises(RuntimeError, match="none is running"):
            machines[0].goto("a")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 has eager tasks")
def test_eager_tasks() -> None:
    class Waiting(Echo):
        async def on_start(self) -> None:
            await asyncio.sleep(0)

        async def on_receive(self, message: Any) -> Any:
            if message == "wait":
                await asyncio.sleep(0)
            if message == "fail":
                raise OSError
            self.start_task(asyncio.sleep(0))
            self.pipe_to_self(asyncio.sleep(0))
            return message

        async def on_stop(self) -> None:
            await asyncio.sleep(0)

    async def scenario() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with ActorSystem() as system:
            ref = system.spawn(Waiting, supervision=QUICK)
            for message in ("plain", "wait", "plain", "wait") * 3:
                assert await ref.ask(message, block=False) == message
            ref.tell("fail")
            many = [asyncio.create_task(ref.ask("wait", block=False).as_coroutine()) for _ in range(20)]
            assert set(await asyncio.gather(*many)) == {"wait"}
            assert await ref.stop(block=False)

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("what", ["stash_capacity", "max_tasks"])
@pytest.mark.parametrize(
    ("value", "error"), [(None, TypeError), ("x", TypeError), (NAN, TypeError), (-1, ValueError)]
)
def test_a_class_with_a_bound_that_is_no_count_is_refused(
    what: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^Bounded\.{what} is "):
        type("Bounded", (Actor,), {what: value, "__qualname__": "Bounded"})
