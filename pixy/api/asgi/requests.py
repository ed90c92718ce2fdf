"""Serve HTTP requests of ASGI with handlers of aiohttp's requests: the REST APIs are the same code over both servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import HttpVersion, HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from pixy.api.asgi.answers import AsgiWriter, send_whole
from pixy.api.asgi.connection import AsgiConnection
from pixy.api.asgi.types import ClientWatch, Receive, Scope, Send
from pixy.api.edge.edge import Edge
from pixy.api.edge.http_request import HttpRequest
from pixy.api.rest.render import to_json
from pixy.api.rest.responses import respond

logger = logging.getLogger("pixy.api")

_READ_AHEAD: Final = 32 * 1024
"""Bytes of a body that wait for its reader; twice as many, and no more is taken from the server."""
_VERSIONS: Final = {"1.0": HttpVersion(1, 0), "1.1": HttpVersion11}
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
"""Methods whose requests have a body only if they say so."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class AsgiRequest(HttpRequest):
    """A request that came over ASGI. Its answers are not written to a transport, as those to :class:`HttpRequest` itself may be."""


class Requests:
    """Serves the requests of one listener.

    Args:
        handler: answers them.
        edge: counts bytes, and gives turns.
        tls: whether the listener has TLS.
    """

    def __init__(self, handler: Handler, edge: Edge, tls: bool = False) -> None:
        self._handler = handler
        self._edge = edge
        self._tls = tls
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = False
        """Whether requests are ended, and new ones refused."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of ASGI."""
        if self.stopping:
            await send_whole(respond(to_json({"error": "the server is stopping"}), 503), send, is_head=False)
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        body = _Body(AsgiConnection(scope, self._edge, self._tls), scope, receive, self._edge, task)
        try:
            await self._serve(scope, body, send, task)
        except asyncio.CancelledError:
            if not (body.gone or self.stopping):
                raise
            task.uncancel()
        except OSError:
            pass  # the client has gone
        finally:
            body.end()
            self._tasks.discard(task)

    async def _serve(self, scope: Scope, body: _Body, send: Send, task: asyncio.Task[Any]) -> None:
        await body.begin()
        writer = AsgiWriter(send, body.connection.transport)
        request = AsgiRequest(
            _message(scope),
            body.content,
            cast(Any, body.connection),
            writer,
            task,
            asyncio.get_running_loop(),
        )
        try:
            response = await self._handler(request)
        except (OSError, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("a request failed")
            if writer.started:
                raise  # the server resets the stream
            response = respond(to_json({"error": f"internal error: {error!r}"}), 500)
        finally:
            request._finish()
        if not await send_whole(response, send, is_head=scope["method"] == "HEAD"):
            await response.prepare(request)
            await response.write_eof()

    async def close(self, grace: float) -> None:
        """Give requests a moment to finish, then end them.

        Args:
            grace: seconds.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        self.stopping = True
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=grace)


class _Body:
    """The body of a request: one that comes at once is there before the handler begins, another one is fetched beside it."""

    def __init__(
        self,
        connection: AsgiConnection,
        scope: Scope,
        receive: Receive,
        edge: Edge,
        task: asyncio.Task[Any],
    ) -> None:
        self._receive = receive
        self._deadline = edge.body_deadline
        self._task = task
        self.connection = connection
        self._fetching: asyncio.Task[None] | None = None
        self._watch: ClientWatch | None = None
        self.content: StreamReader = EMPTY_PAYLOAD
        if scope["method"] not in _BODILESS or _has_body(scope):
            self.content = StreamReader(
                cast(Any, self.connection), _READ_AHEAD, loop=asyncio.get_running_loop()
            )

    @property
    def gone(self) -> bool:
        """True if the client has gone, and the task was cancelled for that."""
        return self._watch is not None and self._watch.gone

    async def begin(self) -> None:
        """Take what has come with the head."""
        if self.content is EMPTY_PAYLOAD:
            self._watch = ClientWatch(self._receive, self._task)
            return
        try:
            with self._deadline:
                event = await self._receive()
        except TimeoutError as error:
            self.content.set_exception(error)
            return
        if self._took(event):
            self._watch = ClientWatch(self._receive, self._task)
        else:
            self._fetching = asyncio.ensure_future(self._fetch())

    def _took(self, event: Any) -> bool:
        """Take an event of ASGI; return whether the body is whole."""
        if event["type"] == "http.disconnect":
            raise ConnectionResetError("the client has gone")
        if event.get("body"):
            self.content.feed_data(event["body"])
        if event.get("more_body", False):
            return False
        self.content.feed_eof()
        return True

    async def _fetch(self) -> None:
        try:
            while not self._took(await self._receive()):
                await self.connection.readable.wait()
            self._watch = ClientWatch(self._receive, self._task)
        except ConnectionResetError as error:
            self.content.set_exception(error)

    def end(self) -> None:
        """Fetch no more, and watch the client no longer."""
        if self._watch is not None:
            self._watch.end()
        if self._fetching is not None:
            self._fetching.cancel()
        self.connection.unread.forget()


def _has_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False


def _message(scope: Scope) -> RawRequestMessage:
    raw = scope["headers"]
    headers = CIMultiDict(
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw
    )
    path: str = scope["raw_path"].decode("utf-8", "surrogateescape")
    query: bytes = scope["query_string"]
    if query:
        path = f"{path}?{query.decode('utf-8', 'surrogateescape')}"
    return RawRequestMessage(
        scope["method"],
        path,
        _VERSIONS.get(scope["http_version"], HttpVersion11),
        CIMultiDictProxy(headers),
        raw,
        False,
        None,
        False,
        False,
        URL(path, encoded=True),
    )


__all__ = ["Requests"]
