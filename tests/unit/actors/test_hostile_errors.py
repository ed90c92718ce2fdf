"""An exception whose own code raises: a failure like any other, also for supervision, askers and crash reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from actors import Actor, ActorFailed, Directive, OnError, Supervision
from actors.tracing.crashes import fingerprint
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class NoField(Exception):
    """As of a mock, or of a proxy to an object that is gone."""

    def __getattribute__(self, name: str) -> Any:
        raise ValueError(f"no {name}")


class NoTraceback(Exception):
    @property
    def __traceback__(self) -> Any:
        raise ValueError("no traceback")


class NoExceptionEither(BaseException):
    def __getattribute__(self, name: str) -> Any:
        raise ValueError(f"no {name}")


HOSTILE: list[type[BaseException]] = [NoField, NoTraceback, NoExceptionEither]


class Fails(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.receive: dict[str, Callable[[type[BaseException]], object]] = {
            "plain": self.plain,
            "coroutine": self.coroutine,
            "task": lambda kind: self.start_task(self.coroutine(kind)),
            "pipe": lambda kind: self.pipe_to_self(self.coroutine(kind)),
            "echo": lambda kind: kind.__name__,
        }

    def on_receive(self, message: tuple[str, type[BaseException]]) -> Any:
        how, kind = message
        return self.receive[how](kind)

    def plain(self, kind: type[BaseException]) -> None:
        raise kind

    async def coroutine(self, kind: type[BaseException]) -> None:
        await asyncio.sleep(0.1)
        raise kind


def loops_errors() -> list[dict[str, Any]]:
    """What goes to the handler of the running loop's exceptions from now on."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("how", ["plain", "coroutine", "task"])
@virtual_time
async def test_supervision_restarts_or_stops_its_actor(how: str, kind: type[BaseException]) -> None:
    wrong = loops_errors()
    async with virtual_system() as system:
        failures: list[Any] = []
        system.events.subscribe(failures.append, ActorFailed)
        restarted = system.spawn(Fails, supervision=Supervision())
        stopped = system.spawn(
            Fails,
            supervision=Supervision(decide=OnError((OSError, Directive.RESTART), (kind, Directive.STOP))),
        )
        for each in (restarted, stopped):
            each.tell((how, kind))
        await asyncio.sleep(10.0)
        assert restarted.statistics().restarts == 1
        assert await restarted.ask(("echo", kind), block=False) == kind.__name__
        assert not stopped.is_alive()
        assert [type(each.error) for each in failures] == [kind, kind]
        assert len({fingerprint(each.error) for each in failures}) == 1
    assert wrong == []


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("how", ["plain", "coroutine"])
@pytest.mark.parametrize(
    "awaited", [lambda reply: reply, lambda reply: reply.map(str), lambda reply: reply.as_asyncio()]
)
@virtual_time
async def test_the_asker_gets_it(how: str, kind: type[BaseException], awaited: Any) -> None:
    wrong = loops_errors()
    async with virtual_system() as system:
        ref = system.spawn(Fails, supervision=Supervision())
        with pytest.raises(kind):
            await awaited(ref.ask((how, kind), block=False))
    assert wrong == []


@pytest.mark.parametrize("kind", HOSTILE)
@virtual_time
async def test_piped_work_has_failed_with_it(kind: type[BaseException]) -> None:
    wrong = loops_errors()
    async with virtual_system() as system:
        ref = system.spawn(Fails, supervision=Supervision())
        ref.tell(("pipe", kind))
        await asyncio.sleep(10.0)
        assert ref.statistics().restarts == 1
    assert wrong == []
