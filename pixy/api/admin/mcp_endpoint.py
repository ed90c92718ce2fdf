"""``/mcp``: a read-only endpoint of the Model Context Protocol (streamable HTTP), for assistants. Needs the extra ``mcp``.

The official SDK speaks the protocol; it is an ASGI application, which :meth:`McpEndpoint.handle` calls for one request of the admin
listener's own aiohttp application. Each POST has one JSON answer: no sessions and no streams, so nothing is kept between requests.
The SDK is imported, in a thread, by the first request: who does not use it does not pay for it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from aiohttp import web

from pixy import __version__
from pixy.api.admin.access import error
from pixy.api.admin.assistant_tools import Tools
from pixy.errors import PixyError, needs_extra

logger = logging.getLogger("pixy.api")

MISSING: Final = needs_extra("the MCP endpoint", "mcp")
AT_ONCE: Final = 8
"""Requests that are answered at the same time; one more is refused with 503."""
_INSTRUCTIONS: Final = (
    "Kafka-Pixy is a proxy for Apache Kafka: its clients consume over gRPC or HTTP, and it is the member of their consumer groups. "
    "To learn why a group is stuck, ask `findings` with its name, then `group` and `unacked_messages`. Everything here only reads."
)


class McpEndpoint:
    """Serves the tools.

    Args:
        tools: what may be asked.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._lock = asyncio.Lock()
        self._open = 0
        self._manager: Any = None
        self._running: asyncio.Task[None] | None = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request of an MCP client."""
        if importlib.util.find_spec("mcp") is None:
            return error(501, MISSING)
        if request.method != "POST":
            # Without sessions there is nothing to stream or to end; the protocol has clients go on without.
            return web.Response(status=405, headers={"Allow": "POST"})
        if self._open >= AT_ONCE:
            return error(503, f"{AT_ONCE} requests of assistants are being answered already", retry_after=1)
        self._open += 1
        try:
            body = await request.read()
            async with self._lock:
                if self._manager is None:
                    await self._start()
            return await _answer(self._manager.handle_request, request, body)
        finally:
            self._open -= 1

    async def _start(self) -> None:
        await asyncio.to_thread(importlib.import_module, "mcp.server.streamable_http_manager")
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        logging.getLogger("mcp").setLevel(logging.WARNING)
        manager = StreamableHTTPSessionManager(_server(self._tools), json_response=True, stateless=True)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with manager.run():
                ready.set_result(None)
                await asyncio.get_running_loop().create_future()  # until it is cancelled

        self._running = asyncio.create_task(run(), name="mcp")
        await asyncio.wait((self._running, ready), return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            self._running.result()
        self._manager = manager

    async def close(self) -> None:
        """End what requests have started."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))


def _server(tools: Tools) -> Any:
    """Make the SDK's server of the tools."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    reads = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    listed = [
        types.Tool(
            name=each.name,
            title=each.title,
            description=each.about,
            input_schema=each.schema,
            annotations=reads,
        )
        for each in tools.by_name.values()
    ]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, failed = await tools.call(params.name, params.arguments), False
        except PixyError as problem:
            text, failed = str(problem), True
        except Exception:
            logger.exception("the tool %s has failed", params.name[:100])
            text, failed = "the tool has failed; the daemon's log says why", True
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=failed)

    return Server(
        "kafka-pixy",
        version=__version__,
        title="Kafka-Pixy",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answer(
    application: Callable[..., Awaitable[None]], request: web.Request, body: bytes
) -> web.Response:
    """Have an ASGI application answer one request, whose answer is whole: no stream.

    Args:
        application: of ASGI.
        request: of aiohttp.
        body: its body.
    """
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.rel_url.raw_path.encode(),
        "query_string": request.rel_url.raw_query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": None,
        "server": None,
    }
    unread = [body]
    status, headers, parts = 500, [], []

    async def receive() -> MutableMapping[str, Any]:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await (
            asyncio.get_running_loop().create_future()
        )  # the next message would say that the client has gone
        raise AssertionError("never reached")

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await application(scope, receive, send)
    response = web.Response(status=status, body=b"".join(parts))
    for name, value in headers:
        if name.lower() != b"content-length":
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
    return response


__all__ = ["AT_ONCE", "MISSING", "McpEndpoint"]
