"""The files of the page: the package's own and those of extensions, with the policy that the browser enforces.

There is no build step: a browser gets the files as they are here. Nothing is loaded from elsewhere (:data:`POLICY`).
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from aiohttp import web

from actors.console.extension import FILE

FOLDER = Path(__file__).with_name("page")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of all answers: no inline script or style, nothing from elsewhere."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def serve_file(request: web.Request, folder: Path, name: str) -> web.Response:
    """Answer with a file of a folder; the browser asks each time whether it has changed.

    Args:
        request: the request.
        folder: the folder.
        name: the file's name below it, with slashes.

    Raises:
        web.HTTPNotFound: there is no such file.
    """
    path = folder / name
    if not FILE.match(name) or not path.is_file():
        raise web.HTTPNotFound(text="there is no such file\n")
    content = path.read_bytes()  # at most 51 kB, from the file cache
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    response = web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)
    response.enable_compression()
    return response


__all__ = ["FOLDER", "HEADERS", "POLICY", "serve_file"]
