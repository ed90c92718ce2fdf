"""Serve gRPC calls over ASGI: find the method, run its handler, send its answer or status."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import grpc

from pixy.api.asgi.context import Aborted, AsgiContext
from pixy.api.asgi.types import Receive, Scope, Send
from pixy.api.edge.edge import Edge
from pixy.api.grpc.access import UnknownMethods
from pixy.api.grpc.health import NAME as HEALTH

logger = logging.getLogger("pixy.api")

_CONFIRMED: Final = frozenset({"/KafkaPixy/ConsumeNAck"})
"""Methods whose answer holds a message that is given back unless the answer was taken."""

_CHECKED: Final = {
    b"content-type": "Content-Type",
    b"host": "Host",
    b"origin": "Origin",
    b"sec-fetch-site": "Sec-Fetch-Site",
}
_GRPC: Final = b"application/grpc"
_NO_CALL: Final = b"a gRPC call has the Content-Type application/grpc\n"

_ONE_MESSAGE: Final = frozenset({f"/{HEALTH}/Watch"})
"""Methods that answer one message with a stream."""


class Calls:
    """Serves the calls of one listener.

    It has the part of :class:`grpc.aio.Server` that adds handlers.

    Args:
        most: bytes of the largest message.
        edge: refuses what web pages of somebody else send: unlike gRPC's core, the hosting server takes HTTP/1.1 and any Content-Type.
    """

    def __init__(self, most: int, edge: Edge) -> None:
        self._most = most
        self._edge = edge
        self._generic: list[Any] = []
        self._known: dict[str, Any] = {}
        """Handlers by path (``/KafkaPixy/Produce``), of methods that were called."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = False
        """Whether calls are ended, and new ones refused."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of ASGI that is a call."""
        sent = {_CHECKED[name]: value for name, value in scope["headers"] if name in _CHECKED}
        # A page may send other types without permission by CORS.
        if not sent.get("Content-Type", b"").startswith(_GRPC):
            await send({"type": "http.response.start", "status": 415, "headers": []})
            await send({"type": "http.response.body", "body": _NO_CALL})
            return
        problem = self._problem(scope, sent) if "Origin" in sent or "Sec-Fetch-Site" in sent else ""
        handler = self._known.get(scope["path"]) or self._find(scope["path"])
        single = handler.stream_unary is not None or scope["path"] in _ONE_MESSAGE
        context = AsgiContext(scope, receive, send, self._most, handler.response_serializer, single=single)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._run(_Refused(problem) if problem else handler, context, scope["path"] in _CONFIRMED)
        except asyncio.CancelledError:
            if context.gone:
                task.uncancel()
            elif self.stopping:
                task.uncancel()
                await self._stop(context)
            else:
                raise
        except OSError:
            pass  # the client has gone
        finally:
            self._tasks.discard(task)
            context.end()

    def _problem(self, scope: Scope, sent: Mapping[str, bytes]) -> str:
        headers = {name: value.decode("latin-1") for name, value in sent.items()}
        problem = self._edge.browsers.problem_of_call(scope["method"], scope["path"], headers)
        if problem:
            self._edge.refusals.count(f"requests are refused, such as this: {problem}", "browsers")
        return problem

    async def _run(self, handler: Any, context: AsgiContext, confirmed: bool) -> None:
        try:
            if self.stopping:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
            if handler.stream_unary is not None:
                raw = await handler.stream_unary(None, context)
            else:
                raw = None
                answers = handler.stream_stream(None, context)
                if inspect.isasyncgen(answers):
                    async for each in answers:
                        await context.write(each)
                else:
                    await answers
        except Aborted:
            await context.refuse()
        except (OSError, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception("a call failed")
            try:
                await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {error!r}")
            except Aborted:
                await context.refuse()
        else:
            await context.answer(raw, confirmed=confirmed)

    async def _stop(self, context: AsgiContext) -> None:
        try:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        except Aborted:
            try:
                await context.refuse()
            except (OSError, RuntimeError):
                pass  # the client has gone, or the answer was under way

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """See :class:`grpc.aio.Server`."""
        self._generic.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """See :class:`grpc.aio.Server`. The generic ones are the same."""

    def _find(self, path: str) -> Any:
        for each in self._generic:
            found = each.service(_Details(path))
            if found is not None:
                if not isinstance(each, UnknownMethods):
                    self._known[path] = found
                return found
        return _UNKNOWN

    async def close(self, grace: float) -> None:
        """Give calls a moment to finish, then end them.

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


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


_UNKNOWN: Final = grpc.stream_stream_rpc_method_handler(_refuse)


class _Refused:
    """Refuses a call of a web page."""

    stream_unary = None

    def __init__(self, problem: str) -> None:
        self._problem = problem

    async def stream_stream(self, _requests: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, self._problem)


class _Details:
    """The part of :class:`grpc.HandlerCallDetails` by which a method is found."""

    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


__all__ = ["Calls"]
