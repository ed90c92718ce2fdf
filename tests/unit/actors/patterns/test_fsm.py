"""State machines, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from actors import ActorSystem, Backoff, ProcessActor, Supervision, Unhandled
from actors.patterns import ANY, StateMachine, StateTimeout, entering, when
from tests.unit.actors.virtual_time import virtual_system, virtual_time


@dataclass(frozen=True)
class Code:
    digits: str


@dataclass(frozen=True)
class Push:
    who: str


@dataclass(frozen=True)
class Ask:
    pass


@dataclass(frozen=True)
class Go:
    where: Any


class Door(StateMachine):
    """Opens for ten seconds; who pushes before that waits."""

    initial = "locked"

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    @entering("locked")
    def lock(self) -> None:
        self.log.append("lock")

    @entering("open")
    async def unlock(self) -> None:
        await asyncio.sleep(0.5)
        self.log.append("unlock")

    @when("locked", Code)
    async def try_code(self, message: Code) -> bool:
        await asyncio.sleep(1.0)
        if message.digits == "boom":
            self.goto("open")
            raise ValueError("boom")
        if message.digits == "1234":
            self.goto("open", timeout=10.0)
            assert self.state == "locked", "not before the handler's end"
        return self._next is not None

    @when("locked", Push)
    def wait(self, message: Push) -> None:
        self.postpone()

    @when("open", Push)
    def enter(self, message: Push) -> str:
        self.log.append(f"push {message.who}")
        return f"{message.who} is in"

    @when("open", Code)
    def extend(self, message: Code) -> None:
        self.goto("open", timeout=20.0)

    @when("open", StateTimeout)
    def close(self, message: StateTimeout) -> None:
        self.goto("locked")

    @when(ANY, Ask)
    def tell_state(self, _: Ask) -> Any:
        return self.state

    @when("open", Go)
    @when("locked", Go)
    def go(self, message: Go) -> None:
        self.goto(message.where)


@virtual_time
async def test_states_entries_timeouts_and_postponed_messages() -> None:
    async with virtual_system() as system:
        loop = asyncio.get_running_loop()
        door = system.spawn(Door)
        waiting = [door.ask(Push(who), block=False) for who in ("ann", "bob")]
        assert not await door.ask(Code("1"), block=False)
        assert await door.ask(Ask(), block=False) == "locked" and not waiting[0].done()
        assert await door.ask(Code("1234"), block=False)
        late = door.ask(Push("eve"), block=False)
        assert [await each for each in (*waiting, late)] == ["ann is in", "bob is in", "eve is in"]
        log = door._cell.actor.log  # type: ignore[attr-defined]
        assert log == ["lock", "unlock", "push ann", "push bob", "push eve"]
        opened = loop.time()
        await asyncio.sleep(9.0)
        await door.ask(Code("again"), block=False)  # the same state: a new timeout, no entry
        await asyncio.sleep(19.9)
        assert await door.ask(Ask(), block=False) == "open"
        await asyncio.sleep(0.2)
        assert await door.ask(Ask(), block=False) == "locked"
        assert log[-1] == "lock" and log.count("unlock") == 1 and loop.time() < opened + 30


@virtual_time
async def test_a_change_of_state_ends_the_timeout() -> None:
    async with virtual_system() as system:
        door = system.spawn(Door)
        await door.ask(Code("1234"), block=False)
        await door.ask(Go("locked"), block=False)
        await door.ask(Go("open"), block=False)
        await asyncio.sleep(60)
        assert await door.ask(Ask(), block=False) == "open", "the timeout of the first time is gone"


@virtual_time
async def test_an_error_leaves_the_state_and_a_restart_begins_anew() -> None:
    async with virtual_system() as system:
        door = system.spawn(Door, supervision=Supervision(backoff=Backoff(first=0.01)))
        with pytest.raises(ValueError, match="boom"):
            await door.ask(Code("boom"), block=False)
        assert [await door.ask(Ask(), block=False) for _ in range(2)] == ["locked", "locked"]
        with pytest.raises(ValueError, match=r"Door has no state 'opne'; its states are 'locked', 'open'"):
            await door.ask(Go("opne"), block=False)
        await door.ask(Code("1234"), block=False)
        door.tell(Go("opne"))
        assert await door.ask(Ask(), block=False) == "locked", "a new life begins in the initial state"


@virtual_time
async def test_a_message_without_a_handler_in_this_state_is_unhandled() -> None:
    async with virtual_system() as system:
        seen: list[Any] = []
        system.events.subscribe(seen.append, Unhandled)
        door = system.spawn(Door)
        assert await door.ask("what", block=False) is None
        assert [each.message for each in seen] == ["what"]


class Eager(StateMachine):
    initial = "a"

    @entering("a")
    async def rush(self) -> None:
        await asyncio.sleep(0)
        self.goto("b")

    @when("b", Ask)
    def answer(self, _: Ask) -> None: ...


@virtual_time
async def test_an_entry_cannot_change_the_state() -> None:
    async with virtual_system() as system:
        errors: list[Any] = []
        eager = system.spawn(Eager)
        with pytest.raises(Exception) as caught:
            await eager
        errors.append(caught.value.__cause__)
        assert "cannot change the state" in str(errors[0])


def test_mistakes_of_a_class_are_found_when_it_is_made() -> None:
    with pytest.raises(TypeError, match="one and two are both for"):

        class Twice(StateMachine):
            initial = "a"

            @when("a", Ask)
            def one(self, _: Ask) -> None: ...

            @when("a", Ask)
            def two(self, _: Ask) -> None: ...

    with pytest.raises(TypeError, match="takes a state and the classes"):
        when("a")

    class Nowhere(StateMachine):
        pass

    with pytest.raises(TypeError, match="has no 'initial' state"):
        Nowhere()

    with pytest.raises(TypeError, match=r"ANY is for @when\(\)"):
        entering(ANY)


async def test_an_initial_state_that_nothing_is_for_is_refused() -> None:
    class Typo(StateMachine):
        initial = "lokced"

        @when("locked", Ask)
        def which(self, _: Ask) -> Any:
            return self.state

    class Everywhere(StateMachine):
        initial = "lokced"

        @when(ANY, Ask)
        def which(self, _: Ask) -> Any:
            return self.state

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match=r"Typo has no state 'lokced'; its states are 'locked'$"):
            system.spawn(Typo)
        assert await system.spawn(Everywhere).ask(Ask(), block=False) == "lokced"


def test_a_subclass_replaces_handlers() -> None:
    class Quiet(Door):
        @when("open", Push)
        def greet(self, message: Push) -> str:
            return "hush"

    assert Quiet._handlers["open", Push] == "greet" and Door._handlers["open", Push] == "enter"


class Steps(StateMachine):
    """Answers an ask in its last state; each ``Push`` goes one further."""

    initial = "a"

    @when("a", Ask)
    @when("b", Ask)
    def not_yet(self, _: Ask) -> None:
        self.postpone()

    @when("c", Ask)
    def answer(self, _: Ask) -> str:
        return "here"

    @when("a", Push)
    def first(self, _: Push) -> None:
        self.goto("b")

    @when("b", Push)
    def second(self, _: Push) -> None:
        self.goto("c")


@virtual_time
@pytest.mark.parametrize("count", [1, 3])
async def test_a_message_can_be_postponed_in_one_state_after_the_other(count: int) -> None:
    async with virtual_system() as system:
        steps = system.spawn(Steps)
        waiting = [steps.ask(Ask(), block=False) for _ in range(count)]
        await steps.ask(Push(""), block=False)
        await asyncio.sleep(1)
        assert not any(each.done() for each in waiting)
        await steps.ask(Push(""), block=False)
        assert [await each for each in waiting] == ["here"] * count


class Failing(StateMachine):
    initial = "a"

    @entering("b")
    def fail(self) -> None:
        raise OSError("in the entry")

    @when("a", Push)
    def push(self, _: Push) -> str:
        self.goto("b", timeout=5.0)
        return "pushed"

    @when("b", StateTimeout)
    def late(self, _: StateTimeout) -> None:
        self.goto("a")

    @when(ANY, Ask)
    def tell_state(self, _: Ask) -> Any:
        return self.state


@virtual_time
async def test_a_state_whose_entry_fails_is_in_effect() -> None:
    async with virtual_system() as system:
        failing = system.spawn(Failing, supervision=Supervision(backoff=Backoff(first=0.01)))
        with pytest.raises(OSError, match="in the entry"):
            await failing.ask(Push(""), block=False)
        assert await failing.ask(Ask(), block=False) == "b"
        await asyncio.sleep(6)
        assert await failing.ask(Ask(), block=False) == "a", "its timeout is set"
        failing.tell(Push(""))
        assert await failing.ask(Ask(), block=False) == "a", "a restart begins in the initial state"
        assert failing.statistics().restarts == 1


class Entered(StateMachine):
    initial = "a"

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[str] = []

    @entering("a")
    def enter(self) -> None:
        self.entered.append("a")


class EnteredCoroutine(Entered):
    @entering("a")
    async def enter(self) -> None:  # type: ignore[override]
        self.entered.append("a")


@pytest.mark.parametrize("machine", [Entered, EnteredCoroutine])
async def test_a_machine_in_a_process_enters_its_initial_state(machine: type[Entered]) -> None:
    made: Any = type("Both", (ProcessActor, machine), {})()  # as its worker does
    await made.on_start()
    assert made.entered == ["a"]
