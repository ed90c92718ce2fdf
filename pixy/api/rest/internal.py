"""A worker's listener for the other workers of its daemon: requests about its consumer instances, and acks for its messages."""

from __future__ import annotations

import copy
import logging

from aiohttp import web

from pixy.api.edge.edge import Edge
from pixy.api.edge.proxies import TrustedProxies
from pixy.api.rest.metering import Serve
from pixy.api.rest.server import RestServer
from pixy.api.restv1.app import RestV1
from pixy.api.restv1.workers import FromWorkers
from pixy.api.siblings import ACKS, WorkerSockets, is_worker
from pixy.engine.engine import Engine
from pixy.engine.workers import Stray
from pixy.errors import PixyError

logger = logging.getLogger("pixy.api")


class _Workers(TrustedProxies):
    """Believes every request: only workers can send one, and they say who their client is."""

    @property
    def any(self) -> bool:
        return True

    def trusts(self, _request: web.BaseRequest) -> bool:
        return True


class WorkerServer(RestServer):
    """Serves the other workers. What it answers is logged and counted where the client is.

    Args:
        engine: answers the requests.
        sockets: knows its path, and the secret that proves a request to be a worker's.
        edge: the bounds of connections.
    """

    def __init__(self, engine: Engine, sockets: WorkerSockets, edge: Edge) -> None:
        inner = copy.copy(edge)
        inner.access_log = inner.meter = inner.worker = None
        inner.proxies = _Workers(engine.config)
        secret = sockets.worker.secret
        rest_v1 = RestV1(engine, inner.proxies, lambda *given: FromWorkers(secret, *given))
        super().__init__(engine, sockets.path, rest_v1, inner)
        self._secret = secret
        self._sockets = sockets

    def _serving(self) -> Serve:
        serve = super()._serving()

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if request.path == ACKS:
                return await self._ack(request)
            return await serve(request)

        return answer

    async def _ack(self, request: web.BaseRequest) -> web.Response:
        if not is_worker(request.headers, self._secret):
            return web.Response(status=403)
        asked = request.query
        stray = Stray(
            asked["cluster"],
            asked["identity"],
            asked["topic"],
            asked["group"],
            int(asked["partition"]),
            int(asked["offset"]),
        )
        try:
            await self._engine.ack_here(stray)
        except PixyError as error:
            return web.Response(status=409, text=str(error))
        return web.Response()

    async def close(self) -> None:
        """See :class:`pixy.api.listener.Listener`."""
        await super().close()
        await self._sockets.close()


__all__ = ["WorkerServer"]
