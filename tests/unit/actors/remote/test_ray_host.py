"""What runs in a Ray worker, and what an asker hears, without Ray's cluster."""

from __future__ import annotations

import concurrent.futures
from types import SimpleNamespace
from typing import Any

import pytest

from actors import Actor, ActorDeadError, Backoff, NoAnswer, Supervision
from actors.remote import ConnectionLost, RemoteError, RemoteRef

actors_ray = pytest.importorskip("actors.ray")
from ray import exceptions  # noqa: E402


class Quits(Actor):
    """Exits, or cancels its reply."""

    def on_receive(self, message: str) -> Any:
        if message == "exit":
            raise SystemExit(3)
        if message == "cancel":
            self.take_reply().cancel()
        return "here"


@pytest.mark.parametrize(("message", "kind"), [("exit", "SystemExit"), ("cancel", "CancelledError")])
async def test_what_ends_an_ask_otherwise_than_by_an_exception_is_an_answer(message: str, kind: str) -> None:
    host = actors_ray._Host(Quits, (), {}, Supervision(backoff=Backoff(first=0.001)))
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
