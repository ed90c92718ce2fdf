"""A hook or handler that is a generator function would never run: the class statement, or ``become``, refuses it."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from actors import Actor, ActorSystem, handles
from actors.patterns import StateMachine, when


def generator(self: Any, *_: Any) -> Iterator[int]:
    yield 1


async def async_generator(self: Any, *_: Any) -> AsyncIterator[int]:
    yield 1


@types.coroutine
def old_coroutine(self: Any, *_: Any) -> Any:
    yield 1


HOOKS = [
    "on_start",
    "on_stop",
    "on_failure",
    "on_receive",
    "on_child_stopped",
    "before_restart",
    "after_restart",
]


@pytest.mark.parametrize("function", [generator, async_generator, old_coroutine])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_is_a_generator_function_is_refused(hook: str, function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=rf"^Wrong\.{hook} is .*generator function") as caught:
        type("Wrong", (Actor,), {hook: function})
    assert "\n" not in str(caught.value)


def test_a_hook_of_a_mixin_is_refused_too() -> None:
    class Mixin:
        on_start = generator

    with pytest.raises(TypeError, match="on_start is a generator function"):
        type("Wrong", (Mixin, Actor), {})


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_marked_handler_that_is_a_generator_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"generator function"):
        type("Wrong", (Actor,), {"handle": handles(int)(types.FunctionType(function.__code__, {}))})


def test_a_handler_of_a_state_machine_is_refused_too() -> None:
    with pytest.raises(TypeError, match=r"generator function"):
        type(
            "Wrong",
            (StateMachine,),
            {"initial": "a", "handle": when("a", int)(types.FunctionType(generator.__code__, {}))},
        )


async def test_a_behaviour_that_is_a_generator_function_is_refused() -> None:
    class Changing(Actor):
        rows = generator

        def on_receive(self, message: Any) -> Any:
            if message == "become":
                self.become(self.rows)
            return (number for number in range(3))  # a generator as a reply is a value like any other

    async with ActorSystem() as system:
        ref = system.spawn(Changing)
        with pytest.raises(TypeError, match="a behaviour is a generator function"):
            await ref.ask("become", block=False)
        assert list(await ref.ask("rows", block=False)) == [0, 1, 2]
        assert list(await ref.proxy().rows()) == [1], "a method that a proxy calls may be one"
