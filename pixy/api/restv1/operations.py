"""What operators and tools ask for: probes, the contract, its human page."""

from __future__ import annotations

from aiohttp import web

from pixy.api.restv1.call import Call
from pixy.api.restv1.errors import UNAVAILABLE, ApiError
from pixy.api.restv1.routes import Route, Routes


async def _nothing(call: Call) -> web.StreamResponse:
    return await call.json({})


async def _healthy(call: Call) -> web.StreamResponse:
    return await call.json({"status": "healthy"})


async def _ready(call: Call) -> web.StreamResponse:
    if call.engine.stopping:
        raise ApiError(UNAVAILABLE, "service is shutting down")
    return await call.json({"status": "ready"})


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    routes.add(Route("GET", "/", _nothing))
    routes.add(Route("POST", "/", _nothing))
    routes.add(Route("GET", "/healthy", _healthy, answers=None, clustered=False))
    routes.add(Route("GET", "/ready", _ready, answers=None, clustered=False))
