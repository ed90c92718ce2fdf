"""What runs in a Ray worker, without Ray's cluster."""

from __future__ import annotations

from typing import Any

import pytest

from actors import Actor, Backoff, Supervision
from actors.remote import RemoteError

actors_ray = pytest.importorskip("actors.ray")


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
