"""Cross-origin requests of browsers (the Fetch standard's CORS), for the origins configured."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

_METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
_MAX_AGE = "600"


class Cors:
    """Adds the CORS headers for the allowed origins; does nothing without any.

    Args:
        origins: as in the Origin header; ``*`` allows every origin.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def _allowed(self, request: web.BaseRequest) -> str:
        origin = request.headers.get("Origin", "")
        if not origin or not self._origins:
            return ""
        if self._any:
            return "*"
        return origin if origin.rstrip("/").lower() in self._origins else ""

    def is_preflight(self, request: web.BaseRequest) -> bool:
        """Return whether a request is a preflight request, and origins are configured."""
        return (
            request.method == "OPTIONS"
            and bool(self._origins)
            and "Access-Control-Request-Method" in request.headers
        )

    def preflight(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to a preflight request; None for any other request."""
        if not self.is_preflight(request):
            return None
        response = web.Response(status=204)
        if self.allow(request, response):
            headers = response.headers
            headers["Access-Control-Allow-Methods"] = _METHODS
            headers["Access-Control-Allow-Headers"] = request.headers.get(
                "Access-Control-Request-Headers", "Content-Type, Accept"
            )
            headers["Access-Control-Max-Age"] = _MAX_AGE
        return response

    def allow(self, request: web.BaseRequest, response: web.StreamResponse) -> bool:
        """Add the CORS headers to an answer.

        Args:
            request: for its Origin.
            response: gets the headers.

        Returns:
            Whether the origin is allowed.
        """
        if not self._origins:
            return False
        allowed = self._allowed(request)
        if allowed != "*" and "Origin" not in response.headers.getall("Vary", ()):
            response.headers.add("Vary", "Origin")
        if not allowed:
            return False
        response.headers["Access-Control-Allow-Origin"] = allowed
        response.headers["Access-Control-Expose-Headers"] = "Retry-After"
        return True
