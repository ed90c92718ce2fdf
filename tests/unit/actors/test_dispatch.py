"""``handles`` dispatches by the message's exact type; ``Request`` names the reply's type."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from actors import Actor, ActorSystem, Future, Request, ThreadedActor, Unhandled, handles
from actors.patterns import StateMachine, entering, when


@dataclass(frozen=True, slots=True)
class Add(Request[int]):
    number: int


@dataclass(frozen=True, slots=True)
class Slowly(Request[str]):
    pass


class Strange(Add):
    pass


class Adder(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @handles(Add)
    def add(self, message: Add) -> int:
        self.total += message.number
        return self.total

    @handles(Slowly)
    async def slowly(self, _message: Slowly) -> str:
        await asyncio.sleep(0)
        return "done"


class Twice(Adder):
    def add(self, message: Add) -> int:
        return super().add(Add(2 * message.number))


class Loud(Adder):
    def on_receive(self, message: Any) -> Any:
        return "loud" if message == "!" else super().on_receive(message)


async def test_plain_and_coroutine_methods_handle_their_messages() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Adder)
        assert await ref.ask(Add(2), block=False) == 2
        assert await ref.ask(Add(3), block=False) == 5
        assert await ref.ask(Slowly(), block=False) == "done"


async def test_a_subclass_replaces_a_handler_by_overriding_the_method() -> None:
    async with ActorSystem() as system:
        assert await system.spawn(Twice).ask(Add(2), block=False) == 4


async def test_on_receive_reaches_the_table_through_super() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Loud)
        assert await ref.ask("!", block=False) == "loud"
        assert await ref.ask(Add(1), block=False) == 1


async def test_a_key_error_of_a_handler_is_the_reply() -> None:
    class Lookup(Actor):
        @handles(Add)
        def add(self, message: Add) -> int:
            return {1: 1}[message.number]

    unhandled: list[Any] = []
    async with ActorSystem() as system:
        system.events.subscribe(unhandled.append, Unhandled)
        with pytest.raises(KeyError):
            await system.spawn(Lookup).ask(Add(2), block=False)
    assert not unhandled


async def test_a_handler_takes_the_reply_with_its_type() -> None:
    class Later(Actor):
        @handles(Add)
        def add(self, message: Add) -> None:
            reply = self.take_reply(message)
            assert_type(reply, Future[int])
            reply.try_set(message.number)

    async with ActorSystem() as system:
        assert_type(system.spawn(Later).ask(Add(2), block=False), Future[int])
        assert await system.spawn(Later).ask(Add(2), block=False) == 2
        router = system.spawn_pool(Later, size=2)
        assert_type(router.ask(Add(2), block=False), Future[int])
        assert await router.ask(Add(2), block=False) == 2


async def test_a_subclass_of_a_handled_message_is_not_handled() -> None:
    unhandled: list[Any] = []
    async with ActorSystem() as system:
        system.events.subscribe(unhandled.append, Unhandled)
        ref = system.spawn(Adder)
        ref.tell(Strange(1))
        assert await ref.ask(Add(1), block=False) == 1
    assert [type(event.message) for event in unhandled] == [Strange]


def test_only_classes_are_handled() -> None:
    with pytest.raises(TypeError, match="takes the classes of messages"):
        handles()
    with pytest.raises(TypeError, match="takes the classes of messages"):

        class Bare(Actor):
            @handles  # type: ignore[arg-type]
            def add(self, _message: Add) -> None: ...


def test_two_methods_for_one_message_are_refused() -> None:
    with pytest.raises(TypeError, match="one and two both handle Add"):

        class Both(Actor):
            @handles(Add)
            def one(self, _message: Add) -> None: ...

            @handles(Add)
            def two(self, _message: Add) -> None: ...


def test_a_threaded_actor_refuses_a_coroutine_handler() -> None:
    with pytest.raises(TypeError, match="slowly is a coroutine function"):

        class Threaded(ThreadedActor):
            @handles(Slowly)
            async def slowly(self, _message: Slowly) -> None: ...


@pytest.mark.parametrize("wrap", [staticmethod, classmethod])
@pytest.mark.parametrize("mark", [handles(int), when("a", int), entering("a")])
@pytest.mark.parametrize("outside", [True, False])
def test_a_handler_that_gets_no_actor_is_refused(wrap: Any, mark: Any, outside: bool) -> None:
    def method(message: Any) -> None: ...

    body = {"method": wrap(mark(method)) if outside else mark(wrap(method)), "__qualname__": "Wrong"}
    with pytest.raises(
        TypeError, match=rf"^Wrong\.method is called with the actor, so it cannot be a {wrap.__name__}"
    ):
        type("Wrong", (StateMachine,), body)
