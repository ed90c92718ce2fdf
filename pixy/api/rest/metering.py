"""Count HTTP requests by the operation that their path names, never by the path: that is the client's to choose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from pixy.api.rest import router
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.routes import Match as V1Match
from pixy.engine.access_log import GONE
from pixy.engine.meter import Meter

OPERATION: Final = web.RequestKey("pixy_operation", str)
"""Where a request keeps the name of its operation."""
NONE: Final = "(none)"
"""The operation of a request that is refused before it is matched, or whose path names none."""

Serve = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def operation_of(match: router.Match | router.Redirect | V1Match | ApiError) -> str:
    """Name the operation of a request: the endpoint, or method and template of the v1 and v2 API."""
    if isinstance(match, V1Match):
        return f"{match.route.method} {match.route.template}"
    if isinstance(match, router.Match):
        return match.endpoint.strip("!") or NONE
    return NONE


def metered(meter: Meter, listener: str, serve: Serve) -> Serve:
    """Return a handler of requests that also counts them.

    Args:
        meter: counts.
        listener: its name.
        serve: answers a request.
    """

    async def measured(request: web.BaseRequest) -> web.StreamResponse:
        began, status = meter.clock(), GONE
        try:
            response = await serve(request)
            status = response.status
            return response
        except (asyncio.CancelledError, ConnectionError):
            raise
        except BaseException:
            status = 500
            raise
        finally:
            trace = request.headers.get("traceparent", "")
            meter.note(listener, request.get(OPERATION, NONE), str(status), began, trace)

    return measured


__all__ = ["NONE", "OPERATION", "metered", "operation_of"]
