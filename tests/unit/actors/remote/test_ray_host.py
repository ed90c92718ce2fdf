"""What runs in a Ray worker, and what an asker hears, without Ray's cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
from types import SimpleNamespace
from typing import Any

import pytest

from actors import Actor, ActorDeadError, Backoff, MailboxFull, NoAnswer, Supervision
from actors.remote import ConnectionLost, RemoteError, RemoteRef
from actors.remote.ray_host import Host
from tests.unit.actors.virtual_time import virtual_time

actors_ray = pytest.importorskip("actors.ray")
from ray import exceptions  # noqa: E402


class Odd(BaseException):
    """What no ``except Exception`` catches."""


class Quits(Actor):
    """Exits, or cancels its reply, or keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def on_receive(self, message: str) -> Any:
        if message == "exit":
            raise SystemExit(3)
        if message == "odd":
            raise Odd
        if message == "keep":
            self.kept.append(self.take_reply())
        if message == "cancel":
            self.take_reply().cancel()
        return "here"


@pytest.mark.parametrize(
    ("message", "kind"), [("exit", "SystemExit"), ("odd", "Odd"), ("cancel", "CancelledError")]
)
async def test_what_ends_an_ask_otherwise_than_by_an_exception_is_an_answer(message: str, kind: str) -> None:
    host = Host(Quits, (), {}, Supervision(backoff=Backoff(first=0.001)))
    value, error = await host.handle(message, None, True, 20.0)
    assert value is None and isinstance(error, RemoteError) and error.kind == kind
    assert await host.handle("again", None, True, 20.0) == ("here", None)
    await host.stop()


def never_ran() -> BaseException:
    error = exceptions.ActorDiedError()
    error._actor_init_failed = True
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ActorDiedError(), NoAnswer),
        (never_ran(), ActorDeadError),
        (exceptions.ActorUnavailableError("restarting", None), ConnectionLost),
        (exceptions.WorkerCrashedError(), ConnectionLost),
        (exceptions.OutOfMemoryError("killed"), ConnectionLost),
        (exceptions.OwnerDiedError("00", None, ""), ConnectionLost),
        (exceptions.TaskCancelledError(), RemoteError),
    ],
)
async def test_an_asker_hears_whether_its_message_may_have_been_handled(
    error: BaseException, kind: type[BaseException]
) -> None:
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
    call = SimpleNamespace(future=lambda: answer)
    transport = actors_ray.RayTransport()
    transport._handles["Quits-1"] = SimpleNamespace(handle=SimpleNamespace(remote=lambda *_: call))
    asked = RemoteRef(transport, "Quits-1").ask("message", block=False, timeout=20.0)
    answer.set_exception(error)
    with pytest.raises(kind) as caught:
        await asked
    assert type(caught.value) is kind and transport._pending == 0


async def test_a_call_that_is_cancelled_is_cancelled() -> None:
    host = Host(Quits, (), {}, Supervision(backoff=Backoff(first=0.001)))
    assert await host.handle("", None, True, 20.0) == ("here", None)
    call = asyncio.create_task(host.handle("keep", None, True, 20.0))
    for _ in range(10):
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled(), "Ray takes it for a call that has succeeded"
    await host.stop()


@pytest.mark.parametrize("error", [SystemExit(3), OSError("no"), KeyboardInterrupt()])
async def test_an_exit_out_of_the_constructor_is_the_actors_and_an_interrupt_the_programs(
    error: BaseException,
) -> None:
    class Broken(Actor):
        def __init__(self) -> None:
            super().__init__()
            raise error

    host = Host(Broken, (), {}, Supervision())
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            await host.handle("", None, True, 20.0)
    else:
        value, found = await host.handle("", None, True, 20.0)
        assert value is None and type(error).__name__ in (type(found).__name__, getattr(found, "kind", ""))
    await host.stop()


async def test_a_watch_that_fails_keeps_the_end_from_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(actors_ray.ray, "kill", lambda *_, **__: None)
    transport = actors_ray.RayTransport()
    transport._handles["Quits-1"] = SimpleNamespace()
    heard: list[Any] = []
    ref = RemoteRef(transport, "Quits-1")
    ref.watch(fails)
    ref.watch(heard.append)
    transport._forget("Quits-1", None)
    assert heard == [None]


class Limited:
    """An actor's handle with ``max_pending_calls``: refuses as long as it is full."""

    def __init__(self) -> None:
        self.full, self.tries = True, 0
        self.handle = self

    def remote(self, *_: Any) -> Any:
        self.tries += 1
        assert self.tries < 100, "the sender does not let the loop go on"
        if self.full:
            raise exceptions.PendingCallsLimitExceeded("full")
        return SimpleNamespace(future=concurrent.futures.Future)


async def test_more_messages_than_ray_lets_wait_are_a_full_mailbox() -> None:
    transport, handle = actors_ray.RayTransport(), Limited()
    transport._handles["Quits-1"] = handle
    ref = RemoteRef(transport, "Quits-1")
    with pytest.raises(MailboxFull, match=r"max_pending_calls.*full"):
        ref.tell("message")
    with pytest.raises(MailboxFull):
        await ref.ask("message", block=False)
    assert ref.notify("message") is False and transport._pending == 0


async def test_a_sender_waits_until_ray_takes_the_message() -> None:
    transport, handle = actors_ray.RayTransport(), Limited()
    transport._handles["Quits-1"] = handle
    sending = asyncio.create_task(RemoteRef(transport, "Quits-1").send("message"))
    while not handle.tries:
        await asyncio.sleep(0)
    handle.full = False
    await sending
    assert transport._pending == 1


@virtual_time
async def test_a_sender_that_ray_refuses_tries_again_now_and_then() -> None:
    transport, handle = actors_ray.RayTransport(), Limited()
    transport._handles["Quits-1"] = handle
    with pytest.raises(MailboxFull):
        await RemoteRef(transport, "Quits-1").send("message", timeout=1.0)
    assert handle.tries <= 1.0 / actors_ray._LOOK_AGAIN + 2


@virtual_time
async def test_an_actor_that_has_max_pending_calls_is_stopped_before_it_is_killed() -> None:
    calls: list[str] = []

    class Busy:
        """Refuses two calls of ``stop``."""

        def __init__(self) -> None:
            self.stop = self

        def remote(self) -> Any:
            if len(calls) < 2:
                calls.append("refused")
                raise exceptions.PendingCallsLimitExceeded("full")
            return self._stopping()

        async def _stopping(self) -> None:
            await asyncio.sleep(1.0)
            calls.append("stop")

    transport = actors_ray.RayTransport()
    transport._handles["Quits-1"] = Busy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actors_ray.ray, "kill", lambda *_, **__: calls.append("kill"))
        await transport.close()
    assert calls == ["refused", "refused", "stop", "kill"]


@pytest.mark.parametrize("settings", [{"max_pending": 0}, {"max_pending": "1"}, {"ask_timeout": 0.0}])
async def test_a_transport_that_could_carry_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(settings))):
        actors_ray.RayTransport(**settings)
