"""The REST v1/v2 API on an engine: which requests belong to it, and the one way they all take.

The listener (:mod:`pixy.api.rest.server`) matches a request with :meth:`RestV1.match` or
:meth:`RestV1.claim` and hands the result to :meth:`RestV1.serve`. A v1 produce and a v2 read::

    RestV1.serve   POST /topics/{topic}                 GET /consumers/.../records
      Call         negotiates versions and formats      the same
      handler      produce.produce                      consumers.read (at the instance's owner)
      parse        call.body, decode                    query parameters
      engine       ClusterClient.produce_many           InstanceClient.read
      render       _answer, call.answer                 render, call.answer
      _write       written here, so that the byte budget and the records handed out are settled
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from pixy.api.edge.budget import Budget, Share
from pixy.api.edge.pace import Pace
from pixy.api.edge.proxies import TrustedProxies
from pixy.api.restv1 import consumers, metadata, negotiation, operations, produce, reads
from pixy.api.restv1.call import Call, error_answer
from pixy.api.restv1.cors import Cors
from pixy.api.restv1.errors import (
    FORBIDDEN,
    INTERNAL,
    KAFKA_ERROR,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    ApiError,
    ErrorKind,
    NotAllowed,
    kind_of,
)
from pixy.api.restv1.negotiation import Negotiated
from pixy.api.restv1.peers import MakePeers, Peers
from pixy.api.restv1.routes import Match, Route, Routes, split_cluster
from pixy.auth.limits import whole_seconds
from pixy.config.model import App
from pixy.engine.engine import Engine
from pixy.errors import Limited, PixyError, Unauthenticated

logger = logging.getLogger("pixy.api")

_CHANGE_NOTHING = frozenset({"GET", "HEAD"})
"""Methods whose answers may be refused if the byte budget has no room for them: records in them are given back."""
_SMALL = 1024
"""Bytes of an answer that is never refused, such as a probe's."""
_PLAIN = Negotiated("v1", "binary", None, "application/json")


def make_routes() -> Routes:
    """Return all routes; the OpenAPI document holds the contract of each."""
    routes = Routes()
    for module in (operations, metadata, produce, reads, consumers):
        module.add_routes(routes)
    return routes


class RestV1:
    """One for the process: all listeners share its byte budget.

    Args:
        engine: answers the requests.
        proxies: whose forwarding headers are believed; None: nobody's.
        peers: makes what knows the owners of consumer instances; None: the daemons in the configuration.
    """

    def __init__(
        self, engine: Engine, proxies: TrustedProxies | None = None, peers: MakePeers | None = None
    ) -> None:
        self._engine = engine
        self._config = engine.config.rest
        self._steps = Pace(time.monotonic, 1)
        """Of long requests. Some take tens of milliseconds, so a turn has one."""
        self.prefix = self._config.prefix.rstrip("/")
        """Below it every path is this API's; empty: there is none."""
        self.routes = make_routes()
        self.budget = Budget(self._config.max_buffered_bytes)
        self.cors = Cors(self._config.cors_origins)
        make: MakePeers = Peers if peers is None else peers
        longest = _longest_wait(engine.config) if self._config.peers or peers is not None else 0.0
        self.peers = make(self._config, proxies, longest, self.cors)
        if engine.guard is not None:
            self.peers.recognized_by(engine.guard.authenticator)

    # -- matching ---------------------------------------------------------------------------------

    def below_prefix(self, raw_path: str) -> str | None:
        """Return the path below ``rest.prefix``, where every request belongs to this API; None elsewhere."""
        prefix = self.prefix
        if prefix and (raw_path == prefix or raw_path.startswith(prefix + "/")):
            return raw_path[len(prefix) :] or "/"
        return None

    def match(self, method: str, raw_path: str) -> Match | ApiError:
        """Return the route of a request to this API, or the error to answer. See :meth:`Routes.find`.

        Args:
            method: in upper case.
            raw_path: still percent-encoded, without the query.
        """
        return self.routes.find(method, raw_path)

    def claim(self, request: web.BaseRequest, raw_path: str, pixy_endpoint: str) -> Match | ApiError | None:
        """Decide whether a request on a shared listener is for this API or Kafka-Pixy's own.

        Where both have the path, ``vnd.kafka`` in Accept or Content-Type decides; and a POST of JSON to
        a topic, which Kafka-Pixy does not accept, is a produce, and CORS's preflight, which has no types, is this
        API's. Every other path belongs to one API.

        Args:
            request: for its method and headers.
            raw_path: still percent-encoded, without the query.
            pixy_endpoint: the result of Kafka-Pixy's router: ``""`` no such path, ``"!"`` other methods.

        Returns:
            The route, or the error to answer; None: the request is Kafka-Pixy's.
        """
        headers = request.headers
        speaks_kafka = negotiation.speaks_kafka(headers.get("Accept"), headers.get("Content-Type"))
        _, path = split_cluster(raw_path)
        if path.startswith("/topics") and path.rstrip("/").count("/") <= 2:
            # /topics or /topics/{topic}: both APIs have them.
            others = pixy_endpoint == "!" and (_posts_json(request, path) or self.cors.is_preflight(request))
            if not speaks_kafka and not others:
                return None
            return self.routes.find(request.method, raw_path)
        found = self.routes.find(request.method, raw_path)
        known = isinstance(found, Match | NotAllowed)
        return found if known or (pixy_endpoint == "" and speaks_kafka) else None

    # -- answering --------------------------------------------------------------------------------

    async def serve(
        self, request: web.BaseRequest, match: Match | ApiError, caller: str = ""
    ) -> web.StreamResponse:
        """Answer a request.

        Args:
            request: aiohttp's.
            match: its route; or an error, which is answered like any other.
            caller: whose share of the byte budget it counts against.
        """
        preflight = self.cors.preflight(request)
        if preflight is not None:
            return preflight
        with self.budget.share(caller) as share:
            call: Call | None = None
            try:
                call = self._call(request, match, share)
                response = await call.route.handler(call)
                await self._write(request, response, share, refusable=request.method in _CHANGE_NOTHING)
                call.settle(True)
            except (asyncio.CancelledError, ConnectionError):
                raise  # the client is gone
            except Exception as error:
                if call is not None:
                    call.settle(False)
                response = self._failed(request, error)
                await self._write(request, response, share)
            finally:
                if call is not None:
                    call.settle(False)  # no effect if it is settled already
            return response

    def _call(self, request: web.BaseRequest, match: Match | ApiError, share: Share) -> Call:
        if isinstance(match, ApiError):
            raise match
        if match.cluster and not match.route.clustered:
            raise ApiError(NOT_FOUND)
        negotiated = _negotiate(request, match.route)
        call = Call(request, match, negotiated, self._engine, share, self.peers, self._steps)
        if match.cluster:
            self._engine.cluster(match.cluster)  # an unknown cluster is the first error to report
        return call

    async def _write(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        share: Share,
        *,
        refusable: bool = False,
    ) -> None:
        if response.prepared:
            return
        # aiohttp would write it after the return. Writing it here counts its bytes until the client has
        # taken them, and tells whether it has.
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            size = len(response.body)
            if refusable and size > _SMALL:
                share.give_back()
                share.take(size)
            else:
                share.keep(size)
        self.cors.allow(request, response)
        await response.prepare(request)
        await response.write_eof()

    async def close(self) -> None:
        """Close the connections to peers."""
        await self.peers.close()

    def busy(self, request: web.BaseRequest) -> web.Response:
        """Return the 429 answer to a request above ``max_concurrent_requests``."""
        kind = TOO_MANY_REQUESTS.with_text("Too many requests. Consider increasing `max_concurrent_requests`")
        return self._readable(request, kind)

    def unauthenticated(self, request: web.BaseRequest, error: Unauthenticated) -> web.StreamResponse:
        """Return the 401 answer to a request whose caller is not recognized. A preflight has no credentials: it is answered."""
        response = self.cors.preflight(request)
        if response is None:
            response = self._readable(request, kind_of(error))
        return response

    def forbidden(self, request: web.BaseRequest, text: str) -> web.Response:
        """Return the 403 answer to a request that is refused before it is served."""
        return self._readable(request, FORBIDDEN.with_text(text))

    def _readable(self, request: web.BaseRequest, kind: ErrorKind) -> web.Response:
        """Return an error that is not written here, for pages of origins that may read it, too."""
        response = self._error(request, kind)
        self.cors.allow(request, response)
        return response

    def _failed(self, request: web.BaseRequest, error: Exception) -> web.StreamResponse:
        if not isinstance(error, PixyError):
            path = request.raw_path.partition("?")[0].partition("#")[0]
            logger.error("%s %s failed", request.method, path, exc_info=error)
            return self._error(request, INTERNAL.with_text(f"Internal Server Error: {type(error).__name__}"))
        allowed = error.allowed if isinstance(error, NotAllowed) else frozenset()
        response = self._error(request, kind_of(error), allowed)
        if isinstance(error, Limited):
            response.headers["Retry-After"] = whole_seconds(error)
        return response

    def _error(
        self, request: web.BaseRequest, kind: ErrorKind, allowed: frozenset[str] = frozenset()
    ) -> web.Response:
        if kind.code == KAFKA_ERROR.code:
            kind = ErrorKind(kind.status, self._config.kafka_error_code, kind.text)
        return error_answer(kind, _error_type(request), allowed=allowed, retry_after=self._config.retry_after)


def _longest_wait(config: App) -> float:
    """Return the seconds that a request to a consumer instance may take: to join its group, wait for records, and ask Kafka."""
    found = [each.instances for each in config.proxies.values()]
    return max(each.join_timeout + each.max_read_timeout + each.operation_timeout for each in found)


def _posts_json(request: web.BaseRequest, path: str) -> bool:
    """Return whether a request posts JSON to ``/topics/{topic}``."""
    content_type = request.headers.get("Content-Type", "")
    return (
        request.method == "POST"
        and path.count("/") == 2
        and negotiation.parse(content_type).full == "application/json"
    )


def _negotiate(request: web.BaseRequest, route: Route) -> Negotiated:
    if route.answers is None:
        return _PLAIN
    headers = request.headers
    return negotiation.negotiate(
        headers.get("Accept"),
        headers.get("Content-Type"),
        route.answers,
        route.only,
        has_body=route.reads_body and request.body_exists and request.content_length != 0,
    )


def _error_type(request: web.BaseRequest) -> str:
    """Return the Content-Type of an error: one that the client accepts, if it accepts any of this API."""
    headers = request.headers
    try:
        found = negotiation.negotiate(headers.get("Accept"), headers.get("Content-Type"))
    except ApiError:
        return "application/json"
    if found.explicit:
        return found.content_type
    # A client that names no type of this API gets plain JSON.
    speaks = negotiation.speaks_kafka(headers.get("Accept"), headers.get("Content-Type"))
    return found.content_type if speaks else "application/json"
