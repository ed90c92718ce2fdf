"""The types of ASGI 3, and what its servers have in common here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Served = Callable[[Scope, Receive, Send], Awaitable[None]]

_FORWARDED_CERT: Final = b"x-forwarded-client-cert"
LOOK_AFTER: Final = 0.1
"""Seconds after which a request that is still served is watched for the end of its client, and between two looks.

ASGI tells an application that its client has gone only when it asks, and a question costs as much as a small answer.
"""


class ClientWatch:
    """Cancels a task when the client of its request has gone.

    Args:
        receive: of the request, which nobody else calls any more.
        task: the task that serves it.
    """

    __slots__ = ("_loop", "_receive", "_task", "_timer", "_watching", "gone")

    def __init__(self, receive: Receive, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LOOK_AFTER, self._begin)
        self.gone = False
        """True if the client has gone, and the task was therefore cancelled."""

    def _begin(self) -> None:
        self._timer = None
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        # Some servers answer at once while the client is there, others once it has gone.
        while (await self._receive())["type"] != "http.disconnect":  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(LOOK_AFTER)
        self.gone = True
        self._task.cancel()

    def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watching is not None:
            self._watching.cancel()


def certificate_of(scope: Scope) -> str:
    """Return the client's certificate in PEM, which the hosting server has put into the request; empty without one.

    The server removes such a header that a client has sent (``forward_client_cert_details: SANITIZE_SET``).
    """
    for name, value in scope["headers"]:
        if name == _FORWARDED_CERT:
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.partition("=")
                if key.strip().lower() == "cert":
                    return unquote(text.strip('"'))
    return ""


__all__ = ["LOOK_AFTER", "ClientWatch", "Receive", "Scope", "Send", "Served", "certificate_of"]
