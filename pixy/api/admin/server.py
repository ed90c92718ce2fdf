"""The admin listener: one TCP address for metrics, probes, findings, debugging and the console.

========================  =====================================================================================
``/metrics``              Prometheus or OpenMetrics (docs/metrics.md)
``/livez``, ``/readyz``   probes, without credentials
``/findings``             causes of trouble, as JSON
``/trace``                the life of one message, as JSON
``/mcp``                  the same for assistants: Model Context Protocol (extra ``mcp``)
``/actions/...``          what operators may do: pause a group, for example (off without ``admin_actions``)
``/debug/...``            actors, tasks, threads, heap, profile, levels of loggers
``/console/``             the page
========================  =====================================================================================

It stands apart from the APIs: a full book of connections, or a crowd of requests there, does not keep operators out here.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from actors.console import application
from pixy import __version__
from pixy.api.admin import hop
from pixy.api.admin.access import REASONS, Gatekeeper, Handler, error
from pixy.api.admin.actions import Actions
from pixy.api.admin.assistant_tools import Tools
from pixy.api.admin.connections import AdminHttp
from pixy.api.admin.debug import Debug
from pixy.api.admin.index import PATHS, page
from pixy.api.admin.mcp_endpoint import McpEndpoint
from pixy.api.admin.tail import Tail
from pixy.api.admin.tracing import Tracing
from pixy.api.admin.workers import WorkersAdmin
from pixy.api.edge import sockets
from pixy.api.edge.acceptor import Acceptor
from pixy.api.edge.connections import ADMIN as ADMIN_CONNECTIONS, Book
from pixy.api.edge.edge import Edge
from pixy.api.listener import Listener, split_address
from pixy.api.siblings import ADMIN, WorkerSockets
from pixy.api.tls import ServerTls
from pixy.console.exposition import Edges, Exposition
from pixy.console.extension import kafka_extension
from pixy.console.readiness import Readiness
from pixy.console.watch import Watch
from pixy.engine.engine import Engine
from pixy.errors import InvalidParameter, StartError

_GRACE: Final = 1.0
_BACKLOG: Final = 1024
"""Connections of other workers that wait to be accepted; one more is refused."""
_WATCHERS: Final = "watchers"
"""Stands for an address where turns are given."""


class AdminServer(Listener):
    """Serves operators.

    Args:
        engine: the engine to show.
        address: ``host:port``.
        edge: the bounds of requests, one for all listeners.
        siblings: the other workers of this daemon; None: it has one process.
    """

    def __init__(
        self, engine: Engine, address: str, edge: Edge, siblings: WorkerSockets | None = None
    ) -> None:
        super().__init__()
        assert engine.meter is not None, "the engine counts requests if there is an admin listener"
        self._engine = engine
        self._address = address
        self._edge = edge
        self._observed = Watch(
            engine.inspector(), engine.counters, engine.meter, engine.system, engine.config.proxies
        )
        self._readiness = Readiness(self._observed)
        tools = Tools(self._observed, self._readiness, engine.lives(), engine.config.cluster_name)
        self._mcp = McpEndpoint(tools)
        most = engine.config.connections.max_admin
        self._book = Book(most, most - most // 4, ADMIN_CONNECTIONS)
        book = edge.book
        edges = Edges(lambda: engine.uptime, lambda: (book.open, book.refused), lambda: engine.spans.lost)
        self._exposition = Exposition(self._observed, edges)
        self._actions = Actions(engine.operator(), engine.guard, engine.config)
        self._debug = Debug(engine.system, engine.diagnostics, edge.steps)
        self._keeper = Gatekeeper(engine.guard, edge, tuple(engine.config.proxies))
        self._siblings = siblings
        self._workers = (
            None if siblings is None else WorkersAdmin(siblings, self._turn, self._keeper.streams.allowed)
        )
        self._runner: web.AppRunner | None = None
        self._inner: web.AppRunner | None = None
        self._server: AdminHttp | None = None
        self._acceptor: Acceptor | None = None
        self._socket: socket.socket | None = None

    async def bind(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        host, port = split_address(self._address)
        if self._engine.config.tls.certificate_path:
            self.tls = await asyncio.to_thread(ServerTls, self._engine.config.tls)
        worker = self._edge.worker
        try:
            if worker is not None and worker.admin >= 0:
                # One socket for all workers: whoever is free takes the next connection, so a worker that is frozen gets none.
                self._socket = socket.socket(fileno=os.dup(worker.admin))
                self._socket.setblocking(False)
            else:
                self._socket = await asyncio.to_thread(sockets.listen_tcp, host, port)
        except OSError as problem:
            raise StartError(
                f"failed to start the admin listener: listen tcp {self._address}: "
                f"{sockets.refusal(problem, sockets.tcp_hint(problem))}"
            ) from problem
        keeper = self._keeper
        if self._workers is None:
            app = self._application(keeper.middleware)
        else:
            await self._serve_workers()
            app = web.Application(middlewares=[keeper.middleware, _in_words])
            # The engine decides what the caller may hear, so it cannot be asked by another worker.
            app.add_routes([*self._workers.routes(), *self._of_messages()])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await self._accept(self._socket, self._runner)
        self._observed.start()
        return f"{host or '0.0.0.0'}:{self._socket.getsockname()[1]}"

    async def _accept(self, listener: socket.socket, runner: web.AppRunner) -> None:
        edge, settings = self._edge, self._engine.config.connections
        assert runner.server is not None
        refused = edge.refused("admin")
        self._server = AdminHttp(
            runner.server.request_handler,
            settings,
            edge.heads,
            edge.budget,
            edge.body_deadline,
            refused,
            edge.steps,
            edge.arrivals,
            edge.records,
        )
        tls = None if self.tls is None else self.tls.context
        self._acceptor = Acceptor(
            listener,
            self._server.connection,
            self._book,
            tls,
            settings.handshake_timeout,
            edge.handshakes,
            refused,
        )
        self._acceptor.start()

    async def _serve_workers(self) -> None:
        """Serve this worker's own figures to the others, which have checked who asks."""
        assert self._siblings is not None
        self._inner = web.AppRunner(
            self._application(hop.recognizing(self._siblings.worker.secret)),
            access_log=None,
            shutdown_timeout=_GRACE,
            max_field_size=hop.MAX_HEADER,
        )
        await self._inner.setup()
        await web.UnixSite(self._inner, self._siblings.path + ADMIN, backlog=_BACKLOG).start()

    async def retire(self, _within: float) -> None:
        """Leave new connections to other workers; the console's streams end with this one."""
        if self._acceptor is not None:
            self._acceptor.retire()

    def _application(self, *keepers: Middleware) -> web.Application:
        app = web.Application(middlewares=[*keepers, _in_words])
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/metrics", self._metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/findings", self._findings),
                *self._of_messages(),
                web.route("*", "/mcp", self._mcp.handle),
                *self._actions.routes(),
                *self._debug.routes(),
            ]
        )
        console = application(
            self._engine.system,
            extensions=(kafka_extension(self._observed),),
            title="Kafka-Pixy",
            turn=self._turn,
            allowed=self._keeper.streams.allowed,
        )
        app.add_subapp("/console", console)
        return app

    async def _turn(self) -> None:
        """Let requests have their turn: all pages of the console are one caller among them."""
        await self._edge.steps.wait(self._edge.steps.queue(_WATCHERS), _WATCHERS)

    def _of_messages(self) -> list[web.RouteDef]:
        tracing = Tracing(self._engine.lives(), self._engine.config)
        return [web.get("/trace", tracing.trace), web.get("/tail", Tail(self._engine).tail)]

    # -- requests -----------------------------------------------------------------------------------

    async def _index(self, _request: web.Request) -> web.Response:
        """List what there is."""
        return page(PATHS)

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._exposition.text(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _livez(self, _request: web.Request) -> web.Response:
        """Answer: the event loop turns, or there would be no answer."""
        return web.json_response(
            {"live": True, "version": __version__, "uptime": round(self._engine.uptime, 3)}
        )

    async def _readyz(self, request: web.Request) -> web.Response:
        found = await self._readiness.check()
        if not request.get(REASONS, False):
            found = {"ready": found["ready"]}
        return web.json_response(found, status=200 if found["ready"] else 503)

    async def _findings(self, _request: web.Request) -> web.Response:
        snapshot, found = await self._observed.findings()
        return web.json_response(
            {"at": snapshot.at, "findings": [each.document(snapshot.at) for each in found]}
        )

    # -- the listener's life ----------------------------------------------------------------------

    async def drain(self) -> None:
        """Answer readiness probes with 503 from now on."""
        self._readiness.draining = True

    def dead(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        if self._acceptor is None or not self._acceptor.accepting:
            return f"the admin listener on {self._address} has stopped"
        return ""

    async def close(self) -> None:
        """End the requests and the console's streams."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._runner is not None:
            await self._runner.shutdown()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(_GRACE)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._workers is not None:
            await self._workers.close()
        if self._inner is not None:
            await self._inner.cleanup()
        await self._mcp.close()
        self._keeper.streams.close()
        await self._observed.stop()


@web.middleware
async def _in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a parameter that cannot be used with 400."""
    try:
        return await handler(request)
    except InvalidParameter as problem:
        return error(400, str(problem))


__all__ = ["AdminServer"]
