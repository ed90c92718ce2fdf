"""A request to the admin listener on its way to another worker: who asks, and the console's stream.

The worker that a client has reached recognizes and admits him, and says who he is to the other one, over a socket that only the
daemon's user can reach, with the secret that all workers share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
from aiohttp import WSMsgType, web

from actors.console.stream import FORBIDDEN, HEARTBEAT, MAX_MESSAGE, SEND_TIMEOUT
from pixy.api.admin.access import REASONS, error
from pixy.api.edge.callers import address_share
from pixy.api.identity import leave_nobody
from pixy.api.siblings import PROVING_HEADER, is_worker
from pixy.auth.principal import Caller, Principal, current

CALLER: Final = "X-Kafka-Pixy-Caller"
"""The caller, as JSON."""
ADDRESS: Final = "X-Kafka-Pixy-Address"
"""His address, without ``auth``: the name under which he acts."""
MAX_HEADER: Final = 256 * 1024
"""Bytes of it: a principal may be in many groups."""
_PASSED: Final = frozenset({"accept", "accept-encoding", "content-type", "last-event-id", "if-none-match"})


def headers_of(request: web.Request, secret: str) -> dict[str, str]:
    """Return the headers with which another worker is asked: some of the request's, and who its caller is.

    Args:
        request: has been admitted.
        secret: proves that a worker asks.
    """
    found = {
        name: value
        for name, value in request.headers.items()
        if name.lower() in _PASSED or name.lower().startswith("mcp-")
    }
    found[PROVING_HEADER] = secret
    found[ADDRESS] = address_share(request)
    caller = current.get()
    if caller is not None:
        name, groups = caller.principal.name, sorted(caller.principal.groups)
        found[CALLER] = json.dumps([name, groups, caller.address, caller.trace])
    return found


def caller_in(headers: Mapping[str, str]) -> Caller | None:
    """Return the caller that another worker names; None: it names none."""
    named = headers.get(CALLER)
    if named is None:
        return None
    name, groups, address, trace = json.loads(named)
    return Caller(Principal(name, frozenset(groups)), address, trace)


def recognizing(secret: str) -> Any:
    """Return the middleware of the listener for other workers, which answers nobody else."""

    @web.middleware
    async def recognize(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        leave_nobody()
        if not is_worker(request.headers, secret):
            return error(403, "this is a socket for the workers of a daemon")
        current.set(caller_in(request.headers))
        request[REASONS] = True  # that worker knows who may hear them
        return await handler(request)

    return recognize


async def pass_stream(
    request: web.Request,
    inner: aiohttp.ClientWebSocketResponse,
    turn: Callable[[], Awaitable[object]],
    allowed: Callable[[web.Request], bool],
) -> web.StreamResponse:
    """Connect a page to the stream of another worker, until either ends.

    Args:
        request: the page's.
        inner: the other worker's stream.
        turn: waits for the turn of a message of the page.
        allowed: asked before a frame is sent.
    """
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_MESSAGE, autoping=False)
    await socket.prepare(request)
    tasks = [
        asyncio.create_task(_up(socket, inner, turn)),
        asyncio.create_task(_down(socket, inner, request, allowed)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if request.transport is not None:
        request.transport.abort()
    return socket


async def _up(
    socket: web.WebSocketResponse,
    inner: aiohttp.ClientWebSocketResponse,
    turn: Callable[[], Awaitable[object]],
) -> None:
    async for message in socket:
        await turn()
        if message.type is WSMsgType.TEXT:
            await inner.send_str(message.data)
        elif message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.type is not WSMsgType.PONG:
            return


async def _down(
    socket: web.WebSocketResponse,
    inner: aiohttp.ClientWebSocketResponse,
    request: web.Request,
    allowed: Callable[[web.Request], bool],
) -> None:
    code = 1001
    with contextlib.suppress(ConnectionError, TimeoutError):
        async for message in inner:
            if message.type is not WSMsgType.TEXT:
                break
            if not allowed(request):
                code = FORBIDDEN
                break
            async with asyncio.timeout(SEND_TIMEOUT):
                await socket.send_str(message.data)
        async with asyncio.timeout(1.0):
            await socket.close(code=code)


__all__ = ["ADDRESS", "CALLER", "MAX_HEADER", "caller_in", "headers_of", "pass_stream", "recognizing"]
