"""The endpoints for operators: probes, the OpenAPI document and its HTML page."""

from __future__ import annotations

import asyncio

from aiohttp import web

from pixy.api.openapi import document, page
from pixy.api.restv1 import negotiation
from pixy.api.restv1.call import Call, accepts_gzip
from pixy.api.restv1.errors import UNAVAILABLE, ApiError
from pixy.api.restv1.routes import Route, Routes


async def _nothing(call: Call) -> web.StreamResponse:
    return await call.json({})


async def _root(call: Call) -> web.StreamResponse:
    """Lead a browser to the page for people; answer other clients as the REST proxies do."""
    headers = call.request.headers
    accepted = negotiation.parse_accept(headers.get("Accept", ""))
    if accepted and accepted[0].full == "text/html" and not call.request.path.startswith("/clusters/"):
        return web.Response(status=302, headers={"Location": "docs", "Vary": "Accept"})
    call.negotiated = negotiation.negotiate(headers.get("Accept"), headers.get("Content-Type"))
    return await call.answer(b"{}", headers={"Vary": "Accept"})


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
    headers = {"Content-Security-Policy": page.POLICY, "X-Content-Type-Options": "nosniff"}
    return await call.answer(body, content_type="text/html; charset=utf-8", headers=headers)


async def _viewer(call: Call) -> web.StreamResponse:
    packed = accepts_gzip(call.request.headers.get("Accept-Encoding"))
    body = await asyncio.to_thread(page.packed_viewer if packed else page.viewer)
    headers = {
        "Content-Type": "text/javascript; charset=utf-8",
        "Cache-Control": "private, max-age=31536000, immutable",  # its address names the version
        "Vary": "Accept-Encoding",
    }
    if packed:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers)


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    routes.add(Route("GET", "/", _root, answers=None))
    routes.add(Route("POST", "/", _nothing))
    for path, handler in (
        ("/healthy", _healthy),
        ("/ready", _ready),
        ("/openapi.json", _openapi),
        ("/docs", _docs),
        ("/docs/viewer.js", _viewer),
    ):
        public = path in ("/healthy", "/ready")
        routes.add(Route("GET", path, handler, answers=None, clustered=False, public=public))
