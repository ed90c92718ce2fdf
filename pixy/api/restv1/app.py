"""This API on an engine: which requests are its own, and one way through for all of them."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from pixy.api.restv1 import consumers, metadata, negotiation, operations, produce, reads
from pixy.api.restv1.budget import Budget, Share
from pixy.api.restv1.call import Call, error_answer
from pixy.api.restv1.cors import Cors
from pixy.api.restv1.errors import (
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
from pixy.api.restv1.peers import Peers
from pixy.api.restv1.routes import Match, Routes
from pixy.engine.engine import Engine
from pixy.errors import PixyError

logger = logging.getLogger("pixy.api")

_PLAIN = Negotiated("v1", "binary", None, "application/json")


def make_routes() -> Routes:
    """All routes; the contract of each stands in the OpenAPI document."""
    routes = Routes()
    for module in (operations, metadata, produce, reads, consumers):
        module.add_routes(routes)
    return routes


class RestV1:
    """One for the process: its byte budget is shared by all listeners."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._config = engine.config.rest
        self._prefix = self._config.prefix.rstrip("/")
        self.routes = make_routes()
        self.budget = Budget(self._config.max_buffered_bytes)
        self.cors = Cors(self._config.cors_origins)
        self.peers = Peers(self._config)

    # -- whose request it is ----------------------------------------------------------------------

    def own_path(self, raw_path: str) -> str | None:
        """The path below ``rest.prefix``, where every request is this API's; None elsewhere."""
        prefix = self._prefix
        if prefix and (raw_path == prefix or raw_path.startswith(prefix + "/")):
            return raw_path[len(prefix) :] or "/"
        return None

    def takes(self, request: web.BaseRequest, raw_path: str, endpoint: str) -> bool:
        """Whether a request on the shared listener is for this API rather than Kafka-Pixy's own.

        Where both have the path, ``vnd.kafka`` in Accept or Content-Type decides, and JSON posted
        to a topic, which Kafka-Pixy does not take, is a produce. Other paths belong to one of them.

        Args:
            endpoint: what Kafka-Pixy's router found: ``""`` no such path, ``"!"`` another method.
        """
        speaks = self._speaks(request)
        path = self._split_cluster(raw_path)[1]
        ends = path.rstrip("/")
        if not path.startswith("/topics") or ends.count("/") > 2:
            # Nothing that Kafka-Pixy has.
            return (endpoint == "" and speaks) or self.routes.knows(path)
        # /topics or /topics/{topic}: both have them.
        return speaks or (
            endpoint == "!"
            and request.method == "POST"
            and path.count("/") == 2
            and negotiation.parse(request.headers.get("Content-Type", "")).full == "application/json"
        )

    @staticmethod
    def _speaks(request: web.BaseRequest) -> bool:
        headers = request.headers
        return negotiation.speaks_kafka(headers.get("Accept"), headers.get("Content-Type"))

    @staticmethod
    def _split_cluster(raw_path: str) -> tuple[str, str]:
        if raw_path.startswith("/clusters/"):
            cluster, slash, rest = raw_path[len("/clusters/") :].partition("/")
            if cluster and slash:
                return cluster, slash + rest
        return "", raw_path

    # -- answering --------------------------------------------------------------------------------

    async def serve(self, request: web.BaseRequest, raw_path: str) -> web.StreamResponse:
        """Answer a request; every error becomes a document here."""
        preflight = self.cors.preflight(request)
        if preflight is not None:
            return preflight
        with self.budget.share() as share:
            call: Call | None = None
            try:
                cluster, path = self._split_cluster(raw_path)
                match = self._match(request, cluster, path)
                call = Call(
                    request,
                    self._engine,
                    self.budget,
                    share,
                    match.params,
                    self._engine.config.cluster_name(cluster),
                    self._negotiate(request, match),
                    self.peers,
                )
                if cluster:
                    self._engine.cluster(cluster)  # one that is not there is said first
                response = await match.route.handler(call)
                await self._write(request, response, share)
                call.settle(True)
            except (asyncio.CancelledError, ConnectionError):
                raise  # the client is gone
            except Exception as error:
                if call is not None:
                    call.settle(False)
                response = self._failed(request, raw_path, error)
                await self._write(request, response, share)
            finally:
                if call is not None:
                    call.settle(False)  # unless it is settled already
            return response

    async def _write(self, request: web.BaseRequest, response: web.StreamResponse, share: Share) -> None:
        if response.prepared:
            return
        self.cors.allow(request, response)
        # Written here rather than by aiohttp after the return: what the answer holds counts until
        # the client has taken it, and it is known whether it has.
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            share.hold(len(response.body))
        await response.prepare(request)
        await response.write_eof()

    async def close(self) -> None:
        """The connections to peers."""
        await self.peers.close()

    def _match(self, request: web.BaseRequest, cluster: str, path: str) -> Match:
        method = "GET" if request.method == "HEAD" else request.method
        match = self.routes.match(method, path)
        if cluster and not match.route.clustered:
            raise ApiError(NOT_FOUND)
        return match

    @staticmethod
    def _negotiate(request: web.BaseRequest, match: Match) -> Negotiated:
        route = match.route
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

    def busy(self, request: web.BaseRequest) -> web.Response:
        """429: ``max_concurrent_requests`` are under way."""
        kind = TOO_MANY_REQUESTS.said("Too many requests. Consider increasing `max_concurrent_requests`")
        return self._error(request, kind)

    def _failed(self, request: web.BaseRequest, raw_path: str, error: Exception) -> web.StreamResponse:
        if not isinstance(error, PixyError):
            logger.error("%s %s failed", request.method, raw_path, exc_info=error)
            return self._error(request, INTERNAL.said(f"Internal Server Error: {type(error).__name__}"))
        allowed = error.allowed if isinstance(error, NotAllowed) else frozenset()
        return self._error(request, kind_of(error), allowed)

    def _error(
        self, request: web.BaseRequest, kind: ErrorKind, allowed: frozenset[str] = frozenset()
    ) -> web.Response:
        if kind.code == KAFKA_ERROR.code:
            kind = ErrorKind(kind.status, self._config.kafka_error_code, kind.text)
        return error_answer(kind, _error_type(request), allowed=allowed, retry_after=self._config.retry_after)


def _error_type(request: web.BaseRequest) -> str:
    """A type that the client takes, if it takes one of ours at all."""
    headers = request.headers
    try:
        found = negotiation.negotiate(headers.get("Accept"), headers.get("Content-Type"))
    except ApiError:
        return "application/json"
    if found.explicit:
        return found.content_type
    # Without a word about this API an error is plain JSON.
    speaks = negotiation.speaks_kafka(headers.get("Accept"), headers.get("Content-Type"))
    return found.content_type if speaks else "application/json"
