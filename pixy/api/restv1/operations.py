"""The endpoints for operators: probes, the OpenAPI document and its HTML page."""

from __future__ import annotations

import asyncio

from aiohttp import web

from pixy.api.openapi import document, page
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


async def _openapi(call: Call) -> web.StreamResponse:
    # Parsing the document takes a moment, the first time.
    return await call.answer(await asyncio.to_thread(document.as_json))


async def _docs(call: Call) -> web.StreamResponse:
    body = await asyncio.to_thread(page.render)
    return await call.answer(body, content_type="text/html; charset=utf-8")


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    routes.add(Route("GET", "/", _nothing))
    routes.add(Route("POST", "/", _nothing))
    for path, handler in (
        ("/healthy", _healthy),
        ("/ready", _ready),
        ("/openapi.json", _openapi),
        ("/docs", _docs),
    ):
        public = path in ("/healthy", "/ready")
        routes.add(Route("GET", path, handler, answers=None, clustered=False, public=public))
