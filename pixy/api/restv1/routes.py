"""The routes of this API: a tree of path segments. Pure.

A template is ``/consumers/{group}/instances/{instance}``. A literal segment takes precedence over a
named one. A trailing slash makes no difference. The path is split before it is percent-decoded, so a
segment may contain a slash.
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
_CLUSTERS = "/clusters/"


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path and the handler of their requests.

    Attributes:
        method: in upper case; GET covers HEAD.
        template: the path, with named segments in braces.
        handler: answers a request.
        answers: the content of the answer, for content negotiation; None: the route has no Kafka media
            type (``/healthy``, ``/docs``), so Accept and Content-Type are ignored.
        only: the version of an endpoint that exists in one version only.
        reads_body: whether the request has a body, so that its Content-Type must be one of this API.
            Other requests' bodies are ignored, and their Content-Type is a mere hint.
        clustered: whether the path also exists below ``/clusters/{cluster}``.
        public: whether it is answered without a caller, although ``auth`` is on: a probe has no credentials.
    """

    method: str
    template: str
    handler: Handler
    answers: Answers | None = "plain"
    only: Api | None = None
    reads_body: bool = False
    clustered: bool = True
    public: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request, and the names in its path.

    Attributes:
        route: the route.
        params: the decoded values of the named segments.
        cluster: from ``/clusters/{cluster}``; empty: the default cluster.
    """

    route: Route
    params: dict[str, str]
    cluster: str = ""


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    named: _Node | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)


class Routes:
    """A set of routes."""

    def __init__(self) -> None:
        self._root = _Node()
        self._all: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._all)

    def add(self, route: Route) -> None:
        """Add a route. Raises ValueError if its method and path are there already."""
        node, names = self._root, []
        for segment in _split(route.template):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.named = node = node.named or _Node()
            else:
                node = node.literals.setdefault(segment, _Node())
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.template} was added twice")
        node.routes[route.method] = (route, tuple(names))
        self._all.append(route)

    def find(self, method: str, raw_path: str) -> Match | ApiError:
        """Find the route of a request.

        Args:
            method: in upper case.
            raw_path: still percent-encoded, without the query.

        Returns:
            The route; or NotAllowed if the path has other methods; or a 404.
        """
        cluster, path = split_cluster(raw_path)
        values: list[str] = []
        node = self._root
        for segment in _split(path):
            text = unquote(segment, errors="replace") if "%" in segment else segment
            below = node.literals.get(text)
            if below is None:
                below = node.named
                values.append(text)
            if below is None or not text:
                return ApiError(NOT_FOUND)
            node = below
        if not node.routes:
            return ApiError(NOT_FOUND)
        found = node.routes.get("GET" if method == "HEAD" else method)
        if found is None:
            return NotAllowed(frozenset(node.routes))
        route, names = found
        return Match(route, dict(zip(names, values, strict=True)), cluster)


def split_cluster(raw_path: str) -> tuple[str, str]:
    """Return the cluster in a path (empty: the default one), and the path without it."""
    if raw_path.startswith(_CLUSTERS):
        cluster, slash, rest = raw_path[len(_CLUSTERS) :].partition("/")
        if cluster and slash:
            return unquote(cluster, errors="replace") if "%" in cluster else cluster, slash + rest
    return "", raw_path


def _split(path: str) -> list[str]:
    path = path.removeprefix("/")
    if path.endswith("/"):
        path = path[:-1]
    return path.split("/") if path else []
