"""The page for people: Scalar's viewer of OpenAPI documents, served from the package, so that it works without a network.

It has a sidebar, search, a curl command for each request with the host that the page came from, and sends requests. The browser
is told (:data:`POLICY`) to load nothing from elsewhere and to connect to nobody but this daemon.
"""

from __future__ import annotations

import functools
import gzip
import json
from html import escape
from importlib import resources
from urllib.parse import quote

from pixy.api.openapi.document import load

VERSION = "1.72.1"
"""Of the npm package @scalar/api-reference; ``make viewer`` fetches it."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page."""
_SETTINGS = {
    "withDefaultFonts": False,
    "telemetry": False,
    "hideClientButton": True,
    "hideModels": True,
    "showDeveloperTools": "never",
    "agent": {"disabled": True},
    "mcp": {"disabled": True},
    "documentDownloadType": "direct",
    "defaultHttpClient": {"targetKey": "shell", "clientKey": "curl"},
}


@functools.cache
def render() -> bytes:
    """Return the page. Its addresses are relative, so it also works below ``rest.prefix`` and behind a proxy."""
    title = escape(load()["info"]["title"])
    settings = escape(json.dumps(_SETTINGS), quote=True)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f'<link rel=icon href="{_icon()}">'
        f"<title>{title}: REST APIs</title></head><body>"
        "<noscript>This page needs JavaScript; the contract is <a href=openapi.json>openapi.json</a>.</noscript>"
        f'<script id="api-reference" data-url="openapi.json" data-configuration="{settings}"></script>'
        f'<script src="docs/viewer.js?v={VERSION}"></script></body></html>'
    ).encode()


def _icon() -> str:
    """Return the console's icon as a URL, or browsers ask for /favicon.ico."""
    drawn = resources.files("actors.console").joinpath("page", "icon.svg").read_text()
    return f"data:image/svg+xml,{quote(drawn, safe='')}"


@functools.cache
def packed_viewer() -> bytes:
    """Return the viewer, compressed by gzip: 1.2 MiB that are read at the first request."""
    return resources.files(__package__).joinpath("viewer", "scalar.js.gz").read_bytes()


def viewer() -> bytes:
    """Return the viewer for a client that does not accept gzip. Takes some 20 ms."""
    return gzip.decompress(packed_viewer())
