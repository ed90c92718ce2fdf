"""The routes of this API: a tree of path segments. Pure.

A template is ``/consumers/{group}/instances/{instance}``; a literal segment goes before a named
one. A trailing slash means nothing. Percent-encoding is undone after the path is split, so a
segment may hold a slash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aiohttp import web

from pixy.api.restv1.errors import NOT_FOUND, ApiError, NotAllowed
from pixy.api.restv1.negotiation import Answers, Api

if TYPE_CHECKING:
    from pixy.api.restv1.call import Call

Handler = Callable[["Call"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path, and who answers.

    Attributes:
        answers: what the answer holds, for content negotiation; None: the route is about no Kafka
            media type at all (``/healthy``, ``/docs``), and neither header is looked at.
        only: the version of an endpoint that exists in one version only.
        reads_body: whether a body is meant to be there, so its Content-Type counts. A body of
            another request is ignored, and its type is a hint.
        clustered: whether the path also exists below ``/clusters/{cluster}``.
    """

    method: str
    template: str
    handler: Handler
    answers: Answers | None = "plain"
    only: Api | None = None
    reads_body: bool = False
    clustered: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """A route and the values of the segments that it names."""

    route: Route
    params: dict[str, str]


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    named: _Node | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)


class Routes:
    """Gathers routes and finds them."""

    def __init__(self) -> None:
        self._root = _Node()
        self._all: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._all)

    def add(self, route: Route) -> None:
        """Add one; the same method and path twice is a mistake in the program."""
        node, names = self._root, []
        for segment in _split(route.template):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.named = node = node.named or _Node()
            else:
                node = node.literals.setdefault(segment, _Node())
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.template} stands twice")
        node.routes[route.method] = (route, tuple(names))
        self._all.append(route)

    def match(self, method: str, raw_path: str) -> Match:
        """The route of a request.

        Raises:
            ApiError: 404, no such path.
            NotAllowed: the path has other methods.
        """
        values: list[str] = []
        node = self._root
        for segment in _split(raw_path):
            text = unquote(segment, errors="replace") if "%" in segment else segment
            below = node.literals.get(text)
            if below is None:
                below = node.named
                values.append(text)
            if below is None or not text:
                raise ApiError(NOT_FOUND)
            node = below
        if not node.routes:
            raise ApiError(NOT_FOUND)
        found = node.routes.get(method)
        if found is None:
            raise NotAllowed(frozenset(node.routes))
        route, names = found
        return Match(route, dict(zip(names, values, strict=True)))

    def knows(self, raw_path: str) -> bool:
        """Whether the path exists, with any method."""
        try:
            self.match("", raw_path)
        except NotAllowed:
            return True
        except ApiError:
            pass
        return False


def _split(path: str) -> list[str]:
    path = path.removeprefix("/")
    if path.endswith("/"):
        path = path[:-1]
    return path.split("/") if path else []
