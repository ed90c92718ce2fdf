"""What the runtime calls while it deals with a failure may fail itself: the failure escalates then, and nothing stays stuck."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from actors import (
    STOP_ON_FAILURE,
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorSystem,
    Backoff,
    Supervision,
    ThreadedActor,
)


class Fails(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class FailsInThread(ThreadedActor):
    use_daemon_thread = True
    on_receive = Fails.on_receive


class BrokenChance(random.Random):
    def random(self) -> float:
        raise LookupError("no more chance")


class NoPause(Backoff):
    def delay(self, failures: int, rng: random.Random) -> float:
        return float("nan")


@pytest.mark.parametrize("actor_class", [Fails, FailsInThread])
@pytest.mark.parametrize(("chance", "backoff"), [(BrokenChance(), Backoff()), (random.Random(), NoPause())])
async def test_a_pause_that_cannot_be_computed_escalates(
    actor_class: type[Actor], chance: random.Random, backoff: Backoff
) -> None:
    async with ActorSystem(rng=chance) as system:
        failures: list[ActorFailed] = []
        system.events.subscribe(failures.append, ActorFailed)
        ref = system.spawn(actor_class, supervision=Supervision(backoff=backoff))
        ref.tell(ValueError("a bug"))
        with pytest.raises(ActorDeadError):
            await ref.ask("what has nothing to do with it", block=False)
        escalated = await system.failure
        assert isinstance(escalated.__cause__, ValueError)
        assert [each.where for each in failures] == ["supervision", "on_receive"]


def in_a_circle() -> BaseException:
    first, second = ValueError(1), ValueError(2)
    first.__cause__, second.__cause__ = second, first
    return first


def in_a_long_chain() -> BaseException:
    last: BaseException | None = None
    for number in range(3_000):
        error = ValueError(number)
        error.__cause__, last = last, error
    assert last is not None
    return last


@pytest.mark.parametrize("make", [in_a_circle, in_a_long_chain])
async def test_the_end_by_a_failure_with_endless_causes(
    make: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("actors"), "disabled", True)  # pytest's records keep the exception
    unhandled: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with ActorSystem() as system:
        ref = system.spawn(Fails, supervision=STOP_ON_FAILURE)
        await ref
        instance = weakref.ref(ref._cell.actor)
        ref.tell(make())
        await ref.stop(block=False)
        assert system.paths() == []
    gc.collect()
    assert unhandled == []
    assert instance() is None
    assert ref._cell.error is not None
    assert ref._cell.error.__traceback__ is None
    assert isinstance(ref._cell.error.__cause__, ValueError)
