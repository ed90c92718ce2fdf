"""Decide who may use the admin listener: hosts, origins, identity, rights, and how many at the same time."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from pixy.api.admin.streams import Streams, TooManyPages
from pixy.api.bodies import packed
from pixy.api.edge.browsers import Browsers
from pixy.api.edge.callers import address_share
from pixy.api.edge.edge import Edge
from pixy.api.identity import enter, leave_nobody
from pixy.api.rest import access
from pixy.api.rest.identity import address_of, credentials
from pixy.auth.patterns import EVERYTHING
from pixy.auth.rules import Access
from pixy.engine.guard import Guard
from pixy.engine.shares import Shares
from pixy.errors import Forbidden, Limited, PixyError, Unauthenticated

logger = logging.getLogger("pixy.api")

AT_ONCE: Final = 256
"""Requests at the same time, the console's streams included, as many as connections; one caller may have three quarters. What
costs more than a moment has a bound of its own."""
PROBES: Final = frozenset({"/livez", "/readyz"})
"""Paths that need no caller: probes have no credentials."""
REASONS: Final = web.RequestKey("reasons", bool)
"""The key under which a request says whether ``/readyz`` may answer with its reasons; without it, it may not."""
COSTLY: Final = ("/debug/heap", "/debug/profile")
"""Paths that need ``admin``, because the whole daemon pays for them. So does everything that is no GET."""

READING: Final = frozenset({"/mcp"})
"""Paths of which a POST only reads."""

ACTIONS: Final = ("pause", "resume", "give-back", "drain", "reset")
"""What an operator may do to a group, each at a path of its own below ``/actions``."""

OWN_RIGHTS: Final = frozenset({"/trace", "/tail", "/actions", *(f"/actions/{name}" for name in ACTIONS)})
"""Paths behind which it is decided what the caller may hear or do, topic by topic and group by group."""

STREAM: Final = "/console/stream"
"""The path of the page's WebSocket."""
_ONE_WORKER: Final = re.compile(r"\A/workers/[0-9]+(?=/)")
"""The begin of a path that names one of several workers."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gatekeeper:
    """Checks each request.

    Args:
        guard: knows rights; None: everybody may do everything.
        edge: knows hosts and origins, and logs refusals.
        clusters: the names of all: whoever looks at the daemon looks at all of them.
    """

    def __init__(self, guard: Guard | None, edge: Edge, clusters: tuple[str, ...]) -> None:
        self._guard = guard
        self._edge = edge
        self._browsers: Browsers = edge.browsers
        self._clusters = clusters
        self._shares = Shares(AT_ONCE, total=True)
        self.streams = Streams(guard, clusters)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, or refuse it; leave a line in the access log."""
        log = self._edge.access_log
        if log is None:
            return await self._answer(request, handler)
        leave_nobody()
        began = log.clock()
        response = None
        try:
            response = await self._answer(request, handler)
            return response
        except web.HTTPException as answer:
            response = answer
            raise
        finally:
            access.note(log, "admin", request, response, began)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        problem = self._browsers.problem(request, "/" if _navigates(request) else request.path, True)
        if problem:
            self._edge.refusals.count(f"requests are refused, such as this: {problem}", "browsers")
            return error(403, problem)
        if request.path in PROBES:
            leave_nobody()
            request[REASONS] = self._may_look(request)
            return await self._within(request, handler)
        try:
            await self._admit(request)
        except Unauthenticated as refusal:
            refused = error(401, str(refusal))
            assert self._guard is not None
            for challenge in self._guard.authenticator.challenges:
                refused.headers.add("WWW-Authenticate", challenge)
            return refused
        except Forbidden as refusal:
            return error(403, str(refusal))
        except Limited as refusal:
            return error(429, str(refusal))
        if problem := packed(request):
            return error(415, problem)
        return await self._within(request, handler)

    def _may_look(self, request: web.Request) -> bool:
        """Return whether a probe may hear more than that the daemon is ready. A credential that does not count is as good as none."""
        guard = self._guard
        if guard is None:
            return True
        try:
            principal, _ = guard.authenticator.identify(credentials(request, guard.authenticator))
        except Unauthenticated:
            return False
        looks = (Access("console", name, EVERYTHING, EVERYTHING) for name in self._clusters)
        return all(guard.rules.allows(principal, each) for each in looks)

    async def _admit(self, request: web.Request) -> None:
        """Recognize the caller and check rights. Raises Unauthenticated, Forbidden or Limited."""
        guard = self._guard
        if guard is None:
            return
        later = enter(guard, lambda: credentials(request, guard.authenticator), address_of(request))
        if later is not None:
            await later()
        if _ONE_WORKER.sub("", request.rel_url.raw_path) in OWN_RIGHTS:
            return
        path = _ONE_WORKER.sub("", request.path)
        changes = request.method not in ("GET", "HEAD") and path not in READING
        costly = changes or path in COSTLY
        verb = "admin" if costly else "console"
        caller = guard.caller()
        try:
            with guard.begin(
                caller, *(Access(verb, name, EVERYTHING, EVERYTHING) for name in self._clusters)
            ):
                pass  # the audit log has its line; a stream that stays open for days would have it at its end
        except Forbidden as refusal:
            # The first cluster that the rules keep from him is not named.
            raise Forbidden(
                f"{caller.principal.name} may not {verb} topic * as group * in all clusters"
            ) from refusal

    async def _within(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        caller = address_share(request)
        if not self._shares.enter(caller):
            return error(
                503, f"too many requests at the same time, at most {AT_ONCE} are served here", retry_after=1
            )
        try:
            if _ONE_WORKER.sub("", request.path) != STREAM:
                return await handler(request)
            with self.streams.begin(request):
                return await handler(request)
        except TooManyPages as problem:
            return error(429, str(problem))
        except PixyError as problem:
            return error(503, str(problem))
        finally:
            self._shares.leave(caller)


def _navigates(request: web.Request) -> bool:
    """Return whether a person follows a link to a page: from any site, but only to look at it as a page of its own."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
        and "Origin" not in headers
    )


def error(status: int, text: str, retry_after: int = 0) -> web.Response:
    """Return an answer that is an error.

    Args:
        status: of HTTP.
        text: for people.
        retry_after: seconds after which the request may succeed; 0 says nothing about that.
    """
    headers = {"Retry-After": str(retry_after)} if retry_after else None
    return web.json_response(
        {"error": text.encode("utf-8", "replace").decode()}, status=status, headers=headers
    )


__all__ = [
    "ACTIONS",
    "AT_ONCE",
    "COSTLY",
    "OWN_RIGHTS",
    "PROBES",
    "READING",
    "REASONS",
    "STREAM",
    "Gatekeeper",
    "error",
]
