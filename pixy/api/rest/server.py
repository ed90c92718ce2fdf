"""The REST listeners: TCP (with TLS if configured) or a unix socket.

A listener serves two APIs: Kafka-Pixy's own (this package) and the REST v1/v2 API
(:mod:`pixy.api.restv1`). A request is matched once, here; after that nothing looks at its path again::

    request -> _match -> router.Match    -> Endpoints.serve -> handler -> engine -> JSON
                      -> restv1 Match    -> RestV1.serve    -> handler -> engine -> JSON
                      -> Redirect, or no endpoint: answered here
"""

from __future__ import annotations

import asyncio
import html
import logging
import os
import socket

from aiohttp import web

from pixy.api.edge import sockets
from pixy.api.edge.acceptor import Acceptor
from pixy.api.edge.callers import address_share, caller_of_request
from pixy.api.edge.edge import Edge
from pixy.api.edge.http_protocol import HttpServer
from pixy.api.edge.pace import PROBE
from pixy.api.identity import enter, leave_nobody
from pixy.api.listener import RETIRE_LOOK, Listener, split_address
from pixy.api.rest import access, router
from pixy.api.rest.endpoints import Endpoints
from pixy.api.rest.identity import address_of, again, credentials, remember
from pixy.api.rest.metering import OPERATION, Serve, metered, operation_of
from pixy.api.rest.render import printable, to_json
from pixy.api.rest.responses import SHARE, is_long, respond, respond_error, write_long
from pixy.api.restv1.app import RestV1
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.routes import Match as V1Match
from pixy.api.tls import ServerTls
from pixy.auth.principal import Credentials
from pixy.engine import shares
from pixy.engine.engine import Engine
from pixy.engine.guard import Guard
from pixy.engine.shares import Shares
from pixy.errors import StartError, TooManyRequests, Unauthenticated

logger = logging.getLogger("pixy.api")

_GRACE = 1.0


def is_unix(address: str) -> bool:
    """Return whether an address is a path: one with a colon is TCP (the original's rule)."""
    return ":" not in address


def _refusal(address: str, error: OSError) -> str:
    """Say why an address cannot be used, and what to do. Blocks."""
    hint = sockets.socket_hint(address, error) if is_unix(address) else sockets.tcp_hint(error)
    return sockets.refusal(error, hint)


_SHARED = frozenset({"", "!", "topic", "topics", "create_topic", "alter_topic", "delete_topic"})
"""The results of Kafka-Pixy's router for paths that the REST v1/v2 API may have as well."""

_PROBES = frozenset({"/_ping", "/healthy", "/ready"})

_LONGEST_PATH = 8192
"""Characters of a path, percent-encoded: a cluster, a topic, a group and an instance of all that they may have take fewer."""
_TOO_LONG = f"the path is too long, at most {_LONGEST_PATH} characters are read"

Matched = router.Match | router.Redirect | V1Match | ApiError


class RestServer(Listener):
    """Serves both APIs on one address.

    Args:
        engine: answers the requests.
        address: ``host:port``, or the path of a unix socket.
        rest_v1: the REST v1/v2 API, one for all listeners.
        edge: the bounds of connections, one for all listeners.
    """

    def __init__(self, engine: Engine, address: str, rest_v1: RestV1, edge: Edge) -> None:
        super().__init__()
        self._engine = engine
        self._address = address
        self._rest_v1 = rest_v1
        self._endpoints = Endpoints(engine)
        self._guard = engine.guard
        self._shares = Shares(engine.config.max_concurrent_requests, total=True)
        self._immediate = _PROBES | {rest_v1.prefix + path for path in _PROBES}
        self._edge = edge
        self._server: HttpServer | None = None
        self._acceptor: Acceptor | None = None
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._retiring = False

    async def bind(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        unix = is_unix(self._address)
        kind, network = ("Unix socket", "unix") if unix else ("TCP", "tcp")
        try:
            if unix:
                shown = await self._bind_unix()
            else:
                shown = await self._bind_tcp()
        except OSError as error:
            refusal = await asyncio.to_thread(_refusal, self._address, error)
            raise StartError(
                f"failed to start {kind} based HTTP API server: failed to create listener: "
                f"listen {network} {self._address}: {refusal}"
            ) from error
        return shown

    async def _bind_tcp(self) -> str:
        host, port = split_address(self._address)
        tls = self._engine.config.tls
        if tls.certificate_path:
            self.tls = await asyncio.to_thread(ServerTls, tls)
        shared = self._edge.worker is not None
        self._socket = await asyncio.to_thread(sockets.listen_tcp, host, port, shared=shared)
        await self._accept(self._socket)
        return f"{host or '0.0.0.0'}:{self._socket.getsockname()[1]}"

    async def _bind_unix(self) -> str:
        mode = int(self._engine.config.unix_mode, 8)
        worker = self._edge.worker
        if worker is not None and worker.unix >= 0:
            # The supervisor listens for all workers, and removes the file at its end.
            self._socket = socket.socket(fileno=os.dup(worker.unix))
            self._socket.setblocking(False)
            await self._accept(self._socket)
            return self._address
        self._socket = await asyncio.to_thread(sockets.listen_unix, self._address, mode)
        self._inode = await asyncio.to_thread(sockets.inode, self._address)
        await self._accept(self._socket)
        return self._address

    async def _accept(self, listener: socket.socket) -> None:
        settings = self._engine.config.connections
        await self._edge.proxies.start()
        refused = self._edge.refused(self._name)
        edge = self._edge
        self._server = HttpServer(
            self._serving(),
            settings,
            edge.heads,
            edge.budget,
            edge.body_deadline,
            refused,
            edge.steps,
            edge.arrivals,
            edge.records,
        )
        self._acceptor = Acceptor(
            listener,
            self._server.connection,
            self._edge.book,
            None if self.tls is None else self.tls.context,
            settings.handshake_timeout,
            edge.handshakes,
            refused,
        )
        self._acceptor.start()

    # -- requests ---------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        """The listener's name."""
        return self.path.rpartition("/")[2]

    def _serving(self) -> Serve:
        """Return what answers requests, with the log and the meter that there are."""
        serve: Serve = self._answer if self._edge.access_log is None else self._recorded
        if self._edge.meter is not None:
            serve = metered(self._edge.meter, self._name, serve)
        return serve if self._edge.worker is None else self._until_retired(serve)

    def _until_retired(self, serve: Serve) -> Serve:
        """Wrap what answers requests, so that connections end with their next answer once another worker takes over."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            response = await serve(request)
            if self._retiring:
                response.force_close()
            return response

        return answer

    async def _recorded(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, and leave a line in the access log."""
        log = self._edge.access_log
        assert log is not None
        leave_nobody()
        began = log.clock()
        try:
            response = await self._answer(request)
        except (asyncio.CancelledError, ConnectionError):
            access.note(log, self._name, request, None, began)
            raise
        access.note(log, self._name, request, response, began)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, share = _path(request), address_share(request)
        who = PROBE + share if path in self._immediate else share
        turn = self._edge.pace.enter(who)
        if turn is not None:
            await self._edge.pace.wait(turn, who)
        if len(path) > _LONGEST_PATH:
            return respond(to_json({"error": _TOO_LONG}), 414)
        match = self._match(request, path)
        if self._edge.meter is not None:
            request[OPERATION] = operation_of(match)
        problem = self._edge.browsers.problem(request, path, not is_unix(self._address))
        if problem:
            return self._forbidden(request, match, problem)
        if self._guard is not None and (_is_public(match) or not again(self._guard, request)):
            refused = await self._recognize(self._guard, request, match)
            if refused is not None:
                return refused
        if isinstance(match, router.Match):
            if match is router.NOT_FOUND:
                return _not_found()
            if match is router.METHOD_NOT_ALLOWED:
                return web.Response(status=405)
            return await self._serve_pixy(request, match, share)
        if isinstance(match, router.Redirect):
            return _redirect(request, match.path)
        return await self._serve_v1(request, match, share)

    async def _recognize(
        self, guard: Guard, request: web.BaseRequest, match: Matched
    ) -> web.StreamResponse | None:
        """Recognize the caller; or return the answer to one who is not recognized."""
        if _is_public(match):
            leave_nobody()
            return None
        try:
            later = enter(guard, lambda: self._shown(guard, request), address_of(request))
            if later is not None:
                await later()
            remember(request)
        except Unauthenticated as error:
            v1 = isinstance(match, V1Match | ApiError)
            response = self._rest_v1.unauthenticated(request, error) if v1 else respond_error(error)
            if response.status == 401:
                for challenge in guard.authenticator.challenges:
                    response.headers.add("WWW-Authenticate", challenge)
            return response
        return None

    def _forbidden(self, request: web.BaseRequest, match: Matched, problem: str) -> web.Response:
        self._edge.refusals.count(f"requests are refused, such as this: {problem}", "browsers")
        if isinstance(match, V1Match | ApiError):
            response = self._rest_v1.forbidden(request, problem)
        else:
            response = respond(to_json({"error": printable(problem)}), 403)
        response.force_close()  # the body is not read
        return response

    def _shown(self, guard: Guard, request: web.BaseRequest) -> Credentials:
        """Return the credentials of a request, or of the caller that a forwarding peer has proved. Raises Unauthenticated."""
        peers = self._rest_v1.peers
        peers.refuse_unknown(request)
        hop = peers.hop(request)
        if hop is None or hop.principal is None:
            return credentials(request, guard.authenticator)
        return Credentials(principal=hop.principal, trace=request.headers.get("traceparent", ""))

    def _match(self, request: web.BaseRequest, raw_path: str) -> Matched:
        """Find the API and the endpoint of a request."""
        below_prefix = self._rest_v1.below_prefix(raw_path)
        if below_prefix is not None:
            return self._rest_v1.match(request.method, below_prefix)
        match = router.route(request.method, raw_path)
        if isinstance(match, router.Match) and match.endpoint in _SHARED:
            return self._rest_v1.claim(request, raw_path, match.endpoint) or match
        return match

    async def _serve_v1(
        self, request: web.BaseRequest, match: V1Match | ApiError, address: str
    ) -> web.StreamResponse:
        probe = _is_public(match)
        caller = self._enter(request, probe, address)
        if caller is None:
            return self._rest_v1.busy(request)
        try:
            return await self._rest_v1.serve(request, match, caller)
        finally:
            self._leave(caller, probe)

    async def _serve_pixy(
        self, request: web.BaseRequest, match: router.Match, address: str
    ) -> web.StreamResponse:
        probe = match.endpoint == "ping"
        caller = self._enter(request, probe, address)
        if caller is None:
            return respond_error(TooManyRequests("max_concurrent_requests"))
        share = request[SHARE] = self._edge.budget.share(caller)
        try:
            if not self._engine.diagnostics.traced:
                response = await self._endpoints.serve(request, match)
            else:
                with self._engine.diagnostics.context(request.headers.get("traceparent")):
                    response = await self._endpoints.serve(request, match)
            return await write_long(request, response) if is_long(response) else response
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client is gone
        except Exception as error:
            logger.exception("%s %s failed", request.method, _path(request))
            return respond(to_json({"error": f"internal error: {error!r}"}), 500)
        finally:
            share.give_back()
            self._leave(caller, probe)

    def _enter(self, request: web.BaseRequest, probe: bool, address: str) -> str | None:
        """Take a place among the concurrent requests; return the caller, or None if there is no place for him.

        A probe needs none: it waits for nothing but its client, who may not hold up the probes of others.
        """
        caller = caller_of_request(request, self._edge.proxies, address)
        if probe:
            return caller
        if not self._shares.enter(caller):
            return None
        shares.caller.set(caller)
        return caller

    def _leave(self, caller: str, probe: bool) -> None:
        if not probe:
            self._shares.leave(caller)

    # -- the listener's life ----------------------------------------------------------------------

    def dead(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        if self._socket is None or self._socket.fileno() == -1:
            return f"HTTP API server on {self._address} has lost its socket"
        if self._acceptor is None or not self._acceptor.accepting:
            return f"HTTP API server on {self._address} has stopped"
        return ""

    async def retire(self, within: float) -> None:
        """See :class:`pixy.api.listener.Listener`."""
        self._retiring = True
        if self._acceptor is not None:
            self._acceptor.retire()
        until = asyncio.get_running_loop().time() + within
        while self._server is not None and self._server.connections:
            if asyncio.get_running_loop().time() >= until:
                return
            await asyncio.sleep(RETIRE_LOOK)

    async def close(self) -> None:
        """Let requests finish for a moment, then end them; remove the unix socket's file."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._server is not None:
            await self._server.catch_up(_GRACE)
            self._server.pre_shutdown()
            await self._server.shutdown(_GRACE)
        await self._rest_v1.close()
        if self._inode is not None:
            await asyncio.to_thread(sockets.unlink, self._address, self._inode)


class RestV1Server(RestServer):
    """Serves the REST v1/v2 API alone."""

    def _match(self, request: web.BaseRequest, raw_path: str) -> Matched:
        return self._rest_v1.match(request.method, raw_path)


def _is_public(match: Matched) -> bool:
    """Return whether a request is a probe, which is answered without a caller."""
    if isinstance(match, V1Match):
        return match.route.public
    return isinstance(match, router.Match) and match.endpoint == "ping"


def _path(request: web.BaseRequest) -> str:
    """Return the path as it was sent, still percent-encoded."""
    return request.raw_path.partition("?")[0].partition("#")[0]


def _not_found() -> web.Response:
    return web.Response(
        body=b"404 page not found\n",
        status=404,
        headers={"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"},
    )


def _redirect(request: web.BaseRequest, path: str) -> web.Response:
    _, mark, query = request.raw_path.partition("?")
    location = path + mark + query
    body = ""
    if request.method == "GET":
        body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'
    return web.Response(
        body=body.encode("utf-8", "replace"),
        status=301,
        headers={"Location": location, "Content-Type": "text/html; charset=utf-8"},
    )


__all__ = ["RestServer", "RestV1Server", "is_unix"]
