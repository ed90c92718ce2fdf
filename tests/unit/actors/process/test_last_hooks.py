"""The end of a process actor's life, without a process: what ends before its last hooks, what they see, what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    ActorSystem,
    Backoff,
    Directive,
    NoAnswer,
    OnError,
    ProcessActor,
    Supervision,
)
from actors.tracing import Tracer
from tests.unit.actors.process.halves import Here, in_this_process, settled
from tests.unit.actors.process.kinds import Unloadable

SOON = Supervision(OnError((KeyError, Directive.RESUME)), backoff=Backoff(first=0.001, most=0.002))


class Noting(Actor):
    """Notes its end."""

    def __init__(self, notes: list[Any], name: str) -> None:
        super().__init__()
        self.notes, self.name = notes, name

    async def on_stop(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.notes.append(f"{self.name} has stopped")


class Busy(ProcessActor):
    """Has a child and a task; notes what it does, and what its last hooks see."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Any] = []

    async def on_start(self) -> None:
        self.spawn(Noting, self.notes, "the child")
        self.start_task(self.wait("the task"))

    def on_receive(self, message: str) -> Any:
        return getattr(self, message.split(maxsplit=1)[0])(message)

    async def wait(self, name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append(f"{name} has ended")

    def note(self, message: str) -> str:
        self.notes.append(message)
        return message

    def resume(self, message: str) -> None:
        raise KeyError(message)

    def fail(self, _: str) -> None:
        self.actor_ref.tell("wait for a handler")
        raise OSError("fail")

    async def fail_beside(self, message: str) -> None:
        self.start_task(self.fail_in_task())
        await self.wait(message)

    def fail_later(self, message: str) -> str:
        self.start_task(self.fail_in_task())
        return message

    async def fail_in_task(self) -> None:
        raise OSError("in a task")

    def wedge(self, message: str) -> str:
        self.actor_ref.tell("fail_when_called")
        return message

    async def fail_when_called(self, message: str) -> None:
        while self._cell.mailbox.empty():
            await asyncio.sleep(0)
        await self.fail_beside(message)

    def on_failure(self, kind: Any, error: Any, traceback: Any) -> None:
        self.notes.append(("on_failure", self.failed_message))
        self.spawn(Noting, self.notes, "a late child")

    async def before_restart(self, error: BaseException) -> None:
        self.actor_ref.tell("note of a message")
        await settled()
        self.notes.append("before_restart")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Here]:
    return in_this_process(monkeypatch)


@pytest.fixture
async def system(made: list[Here]) -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_grace=0.1) as system:
        yield system


@pytest.mark.parametrize(
    ("message", "handler"), [("fail", "wait for a handler"), ("fail_beside", "fail_beside")]
)
async def test_what_belongs_to_a_life_ends_before_the_hooks_of_its_failure(
    system: ActorSystem, made: list[Here], message: str, handler: str
) -> None:
    ref = await system.spawn(Busy, supervision=SOON)
    notes = made[0].actor.notes
    ref.tell(message)
    assert await ref.ask("note", block=False, timeout=30) == "note"
    assert set(notes[:3]) == {"the child has stopped", "the task has ended", f"{handler} has ended"}
    assert notes[3:] == [("on_failure", message), "a late child has stopped", "before_restart"], (
        "a failed actor goes on"
    )


@pytest.mark.parametrize(
    ("message", "seen"),
    [("fail", "fail"), ("fail_beside", "fail_beside"), ("fail_later", None), (Unloadable(), None)],
    ids=["told", "beside", "later", "unloadable"],
)
async def test_on_failure_sees_the_message_that_has_failed(
    system: ActorSystem, made: list[Here], message: Any, seen: str | None
) -> None:
    ref = await system.spawn(Busy, supervision=SOON)
    notes = made[0].actor.notes
    ref.tell("resume")
    ref.tell(message)
    for _ in range(2):
        await ref.ask("note", block=False, timeout=30)
    assert ("on_failure", seen) in notes and ref.statistics().restarts == 1


@pytest.mark.parametrize("how", ["process", "actor", "exit"])
async def test_a_stop_does_not_wait_for_an_answer_that_cannot_come(made: list[Here], how: str) -> None:
    """The told message is being handled when the worker's end comes."""
    system = ActorSystem(stop_grace=600.0)
    ref = await system.spawn(Busy)
    ref.tell("wait")
    await settled()
    if how != "exit":
        stopping = asyncio.ensure_future(system.stop())
        await settled()
    if how == "process":
        made[0].kill()
    else:
        made[0].worker._cell.fail(SystemExit(3) if how == "exit" else OSError("beside"), "task")  # type: ignore[union-attr]
        await settled()
    async with asyncio.timeout(30):
        report = await (system.stop() if how == "exit" else stopping)
    assert report.clean and made[0].exited.done()


async def test_a_message_that_no_handler_has_seen_is_not_under_way_for_a_tracer(system: ActorSystem) -> None:
    tracer = Tracer(sample=1)
    system.instrument(tracer)
    ref = await system.spawn(Busy)
    first, second = (ref.ask(message, block=False, timeout=30) for message in ("wedge", "note"))
    assert await first == "wedge"
    with pytest.raises(ActorDeadError) as caught:
        await second
    assert not isinstance(caught.value, NoAnswer)
    assert tracer._begun == {}
