"""What a gRPC call shows of its caller, and the refusal of calls without one."""

from __future__ import annotations

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


__all__ = ["credentials", "recognize"]
