"""Actors on a real Ray, started on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from actors import (
    Actor,
    ActorDeadError,
    Backoff,
    Intensity,
    MailboxFull,
    NoAnswer,
    Supervision,
    Timeout,
    TraceContext,
    trace_as,
)
from actors.remote import BadPayload, ConnectionLost, RemoteError, RemoteRef
from tests.support import eventually

ray = pytest.importorskip("ray", reason="NOT TESTED: Ray is not installed (extra ray)")
from actors.ray import RayTransport  # noqa: E402

PATIENCE = 120.0
"""Seconds after which a test gives up on Ray. It starts a Python process for each restart, which takes 2 s on an idle
machine and has no bound on a busy one."""

pytestmark = pytest.mark.timeout(3 * PATIENCE)

SOON = Supervision(intensity=Intensity(restarts=1, window=60), backoff=Backoff(first=0.001))


@dataclass(frozen=True)
class Add:
    number: int


@dataclass(frozen=True)
class Fail:
    error: BaseException


class OddError(Exception):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} because {why}")


class Adder(Actor):
    """Adds; ``path`` names a file for its last words."""

    mailbox_capacity = 2

    def __init__(self, start: int = 0, path: str | None = None) -> None:
        super().__init__()
        self.sum, self.path_of_notes = start, path

    def on_stop(self) -> None:
        if self.path_of_notes is not None:
            with open(self.path_of_notes, "w") as file:
                file.write("stopped")

    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, Add):
            self.sum += message.number
            return self.sum
        if isinstance(message, Fail):
            raise message.error
        if message == "odd":
            raise OddError("it", "is")
        if message == "pid":
            return os.getpid()
        if message == "trace":
            return None if self._cell.trace is None else self._cell.trace.header
        if message == "exit":
            os._exit(5)
        if message == "stop":
            return self.stop()
        await asyncio.Event().wait()
        return None


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=80 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}},
    )
    yield
    ray.shutdown()


@pytest.fixture
async def transport() -> AsyncIterator[RayTransport]:
    made = RayTransport(max_pending=50)
    yield made
    await made.close(timeout=20)


async def until(check: Callable[[], bool], what: str) -> None:
    async def found() -> str:
        return what if check() else f"not yet: {what}"

    await eventually(found, lambda text: text == what, within=PATIENCE)


def spawn(transport: RayTransport, *args: Any, **options: Any) -> RemoteRef:
    return transport.spawn(Adder, *args, options={"num_cpus": 0.1}, **options)


async def ask(ref: RemoteRef, message: Any, timeout: float = PATIENCE) -> Any:
    return await ref.ask(message, block=False, timeout=timeout)


async def test_ask_tell_and_supervision_in_the_worker(transport: RayTransport) -> None:
    ref = spawn(transport, 10, supervision=SOON)
    pid = await ask(ref, "pid")
    assert pid != os.getpid()
    ref.tell(Add(1))
    assert await ask(ref, Add(2)) == 13
    with pytest.raises(ValueError, match="no"):
        await ask(ref, Fail(ValueError("no")))
    with pytest.raises(RemoteError, match="OddError: it because is"):
        await ask(ref, "odd")
    assert await ask(ref, Add(0)) == 13, "a failed ask keeps the state"
    ref.tell(Fail(ValueError("restart")))
    # Ray may exchange a tell and an ask.
    await eventually(lambda: ask(ref, Add(0)), lambda sum_: sum_ == 10, within=PATIENCE)
    assert await ask(ref, "pid") == pid, "a new instance in the same worker"
    with pytest.raises(Timeout):
        await ask(ref, "for ever", timeout=0.2)
    context = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    other = spawn(transport)
    with trace_as(context):
        assert await ask(other, "trace") == context.header


async def test_a_death_of_the_worker_is_rays_to_restart(transport: RayTransport) -> None:
    ended: list[Any] = []
    ref = spawn(transport, 1, supervision=SOON)
    ref.watch(ended.append)
    pid = await ask(ref, "pid")
    with pytest.raises((NoAnswer, ConnectionLost)):
        await ask(ref, "exit")

    async def again() -> int:
        try:
            return int(await ask(ref, "pid"))
        except Exception:
            return pid

    assert await eventually(again, lambda found: found != pid, within=PATIENCE) != pid
    assert ended == [], "a restart is no stop"
    assert await ask(ref, Add(0)) == 1
    ref.tell("exit")  # one more than max_restarts, which is the intensity's
    await until(lambda: bool(ended), "the watch is told")
    assert isinstance(ended[0], ActorDeadError)
    with pytest.raises(ActorDeadError):
        await ask(ref, "pid")


async def test_an_actor_that_gives_up_ends_its_worker(transport: RayTransport) -> None:
    ended: list[Any] = []
    never = Supervision(intensity=Intensity(restarts=0, window=60))
    ref = spawn(transport, supervision=never)
    ref.watch(ended.append)
    await ask(ref, "pid")
    ref.tell(Fail(ValueError("boom")))
    await until(lambda: bool(ended), "the watch is told")
    assert not ref.notify(Add(1))


async def test_a_stop_runs_the_last_hook(transport: RayTransport, tmp_path: Any) -> None:
    notes = tmp_path / "notes"
    ref = spawn(transport, 0, str(notes))
    await ask(ref, "pid")
    assert await transport.stop(ref) and not await transport.stop(ref)
    assert notes.read_text() == "stopped"
    ended: list[Any] = []
    own = spawn(transport)
    own.watch(ended.append)
    await ask(own, "stop")
    await until(lambda: ended == [None], "it stopped by itself, without an error")


async def test_bounds_and_bad_payloads(transport: RayTransport) -> None:
    ref = spawn(transport)
    await ask(ref, "pid")
    with pytest.raises(BadPayload, match="cannot be sent"):
        await ask(ref, {"lock": __import__("threading").Lock()})
    with pytest.raises(BadPayload, match="Adder with its arguments cannot be pickled"):
        spawn(transport, __import__("threading").Lock())
    waiting = [ref.ask("for ever", block=False, timeout=3 * PATIENCE) for _ in range(50)]
    with pytest.raises(MailboxFull, match="50 messages to Ray are not confirmed"):
        ref.tell(Add(1))
    await until(lambda: sum(each.done() for each in waiting) >= 47, "the mailbox takes three at most")
    refused = [each.exception() for each in waiting if each.done()]
    assert all(isinstance(each, MailboxFull) for each in refused)
    assert "mailbox of /Adder-1 is full" in str(refused[0])
    await transport.room()
