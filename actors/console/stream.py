"""The page's WebSocket: subscriptions in, frames out.

The page sends ``{"id": 1, "watch": "actors", "query": {"sort": "wait"}}`` and ``{"id": 1, "stop": true}``. It gets
``{"id": 1, "at": 1764182000.5, "data": ...}`` about once a second, or ``"error"`` in place of ``"data"``. A WebSocket,
because a browser opens only six HTTP/1.1 connections to a host: with server-sent events, the seventh tab would hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

from actors.console.extension import BadQuery
from actors.console.hub import Hub, TooMany, Watcher
from actors.console.page_files import HEADERS

MAX_MESSAGE = 64 * 1024
"""Most bytes of a message of the page."""

MAX_TEXT = 16 * 1024
"""Most characters of all names and values of a query."""

SEND_TIMEOUT = 20.0
"""Seconds that a page may take to read a frame; then it is cut off, and connects again."""

LAST_FRAME = 1.0
"""Seconds that a frame which is being sent may still take once its page has left."""

HEARTBEAT = 30.0
"""Seconds after which a silent page is asked for a sign of life."""


Allowed = Callable[[web.Request], bool]
"""Tells whether whoever has opened a stream may still look."""

FORBIDDEN = 1008
"""The code with which a stream is closed whose page may no longer look."""


async def stream(
    request: web.Request, hub: Hub, allowed: Allowed = lambda _request: True
) -> web.WebSocketResponse:
    """Serve a page until it leaves, is too slow, may no longer look, or the hub is closed.

    Args:
        request: the page's.
        hub: the topics.
        allowed: asked before frames are sent.
    """
    # aiohttp would answer any number of pings in one turn of the loop.
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_MESSAGE, autoping=False)
    socket.headers.update(HEADERS)
    try:
        with hub.joined() as watcher:
            await socket.prepare(request)
            sender = asyncio.create_task(
                _send(socket, watcher, lambda: allowed(request)), name="actors.console.stream"
            )
            try:
                async for message in socket:
                    await hub.turn()
                    if message.type is WSMsgType.TEXT:
                        _obey(hub, watcher, message.data)
                    elif message.type is WSMsgType.PING:
                        await socket.pong(message.data)
                    elif message.type is not WSMsgType.PONG:
                        break
            finally:
                watcher.close()
                await _end(sender)
    except TooMany as full:
        raise web.HTTPServiceUnavailable(text=f"{full}\n", headers=HEADERS) from None
    return socket


async def _send(socket: web.WebSocketResponse, watcher: Watcher, allowed: Callable[[], bool]) -> None:
    may = True
    with contextlib.suppress(ConnectionError, TimeoutError):
        while (frames := await watcher.take()) and (may := allowed()):
            for frame in frames:
                async with asyncio.timeout(SEND_TIMEOUT):
                    await socket.send_str(frame)
    # The transport of a page that does not read would keep its frames, and a close frame behind them.
    if watcher.closed or not may:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1.0):
                await socket.close(code=1001 if may else FORBIDDEN)
    transport = socket._req.transport if socket._req is not None else None
    if transport is not None:
        transport.abort()


async def _end(sender: asyncio.Task[None]) -> None:
    """Let it end by itself: aiohttp compresses a long frame in a task of its own, whose error nobody would take if this one were cancelled."""
    await asyncio.wait((sender,), timeout=LAST_FRAME)
    sender.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sender


def _obey(hub: Hub, watcher: Watcher, text: str) -> None:
    number = 0
    try:
        wish = json.loads(text)
        number = wish["id"]
        if type(number) is not int or not 0 <= number < 2**31:
            number = 0
            raise BadQuery("an id is a number from 0 to 2147483647")
        if wish.get("stop"):
            hub.unwatch(watcher, number)
        else:
            hub.watch(watcher, number, str(wish["watch"]), query_of(wish.get("query") or {}))
    except (BadQuery, TooMany) as wrong:
        watcher.put(number, json.dumps({"error": str(wrong)}))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        watcher.put(number, json.dumps({"error": "not a message of the console's page"}))


def query_of(values: Any) -> dict[str, str]:
    """Make a source's query of what came over the network.

    Raises:
        BadQuery: it is no mapping of text to text, or has more than ``MAX_TEXT`` characters.
    """
    query = {str(name): str(value) for name, value in dict(values).items() if value is not None}
    if sum(len(name) + len(value) for name, value in query.items()) > MAX_TEXT:
        raise BadQuery(f"a query has {MAX_TEXT} characters at most")
    return query


__all__ = ["FORBIDDEN", "HEARTBEAT", "MAX_MESSAGE", "SEND_TIMEOUT", "Allowed", "query_of", "stream"]
