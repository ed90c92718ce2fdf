"""A hosting server of ASGI without sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from pixy.api.asgi.types import Served


class Exchange:
    """One request, and what was sent as its answer.

    Args:
        path: of the request.
        headers: likewise.
        method: likewise.
    """

    def __init__(
        self, path: str, headers: tuple[tuple[bytes, bytes], ...] = (), method: str = "POST"
    ) -> None:
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "http_version": "2",
            "scheme": "http",
            "headers": list(headers),
            "client": ("127.0.0.1", 4000),
            "server": ("127.0.0.1", 80),
        }
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = False

    def body(self, data: bytes, *, more: bool = False) -> None:
        """Let a part of the request's body arrive."""
        self._events.put_nowait({"type": "http.request", "body": data, "more_body": more})

    def leave(self) -> None:
        """Let the client go."""
        self.gone = True
        self._events.put_nowait({"type": "http.disconnect"})

    async def _send(self, event: dict[str, Any]) -> None:
        if self.gone:
            raise OSError("gone")
        self.sent.put_nowait(event)

    def serve(self, served: Served) -> asyncio.Task[None]:
        """Begin to serve the request."""
        return asyncio.ensure_future(served(self.scope, self._events.get, self._send))

    def answer(self) -> tuple[int, bytes, dict[bytes, bytes], dict[bytes, bytes]]:
        """Return the answer so far: status, body, headers and trailers."""
        status, body = 0, b""
        headers: dict[bytes, bytes] = {}
        trailers: dict[bytes, bytes] = {}
        while not self.sent.empty():
            event = self.sent.get_nowait()
            if event["type"] == "http.response.start":
                status, headers = event["status"], dict(event["headers"])
            elif event["type"] == "http.response.body":
                body += event["body"]
            else:
                trailers.update(event["headers"])
        return status, body, headers, trailers
