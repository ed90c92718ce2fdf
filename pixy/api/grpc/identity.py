"""What a gRPC call shows of its caller, and the refusal of calls without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import grpc

from pixy.api.identity import API_KEY, enter, single
from pixy.auth.principal import Credentials
from pixy.engine.guard import Guard
from pixy.errors import Unauthenticated


def credentials(context: Any) -> Credentials:
    """Collect what a call and its connection show of the caller. Raises Unauthenticated."""
    sent: dict[str, list[str]] = {}
    for name, value in context.invocation_metadata() or ():
        sent.setdefault(name, []).append(value if isinstance(value, str) else value.decode("latin-1"))
    certificates = context.auth_context().get("x509_pem_cert", ())
    return Credentials(
        authorization=single(sent.get("authorization", []), "authorization"),
        api_key=single(sent.get(API_KEY.lower(), []), API_KEY.lower()),
        certificate=certificates[0] if certificates else None,
        trace=sent.get("traceparent", [""])[0],
    )


async def recognize(guard: Guard, context: Any) -> None:
    """Recognize the caller of a call, or abort it with UNAUTHENTICATED."""
    try:
        await enter(guard, lambda: credentials(context), context.peer())
    except Unauthenticated as error:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))


class GuardedRegistration:
    """Takes the handlers of a service of streams (reflection) on behalf of a server: only recognized callers reach them.

    Not an interceptor: with one, each call of every service costs some 40 microseconds more. Health checks need no caller:
    a probe has no credentials.

    Args:
        server: gets the handlers.
        guard: recognizes callers.
    """

    def __init__(self, server: Any, guard: Guard) -> None:
        self._server = server
        self._guard = guard

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """See :class:`grpc.aio.Server`."""
        self._server.add_generic_rpc_handlers(tuple(_Generic(each, self.guarded) for each in handlers))

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """See :class:`grpc.aio.Server`."""
        guarded = {name: self.guarded(each) for name, each in handlers.items()}
        self._server.add_registered_method_handlers(service, guarded)

    def guarded(self, handler: Any) -> Any:
        """Return a handler that first recognizes the caller."""
        answer = handler.stream_stream

        async def behaviour(requests: Any, context: Any) -> AsyncIterator[Any]:
            await recognize(self._guard, context)
            async for each in answer(requests, context):
                yield each

        return grpc.stream_stream_rpc_method_handler(
            behaviour,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


class _Generic(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handler: Any, guarded: Callable[[Any], Any]) -> None:
        self._handler = handler
        self._guarded = guarded

    def service(self, details: Any) -> Any:
        found = self._handler.service(details)
        return None if found is None else self._guarded(found)


__all__ = ["GuardedRegistration", "credentials", "recognize"]
