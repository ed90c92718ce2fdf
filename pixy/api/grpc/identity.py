"""What a gRPC call shows of its caller, and the refusal of calls without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from pixy.api.identity import API_KEY, enter, single
from pixy.auth.principal import Credentials
from pixy.engine.guard import Guard
from pixy.errors import Unauthenticated

_REFLECTION = "/grpc.reflection."


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


class GuardReflection(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets only recognized callers use reflection. Health checks need no caller: a probe has no credentials.

    Args:
        guard: recognizes them.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """See :class:`grpc.aio.ServerInterceptor`."""
        handler = await continuation(details)
        if handler is None or not details.method.startswith(_REFLECTION):
            return handler
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


__all__ = ["GuardReflection", "credentials", "recognize"]
