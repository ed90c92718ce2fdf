"""The ASGI application, and its listeners as actors.

A hosting server (Envoy, :mod:`pixy.cli.envoy`) has the sockets. It hands each request to :class:`Front`, which finds the
listener by the port that the request has come to. Requests that come before the daemon serves wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pixy.api.asgi.calls import Calls
from pixy.api.asgi.requests import Requests
from pixy.api.asgi.types import Receive, Scope, Send, Served
from pixy.api.edge.connections import share_of
from pixy.api.edge.edge import Edge
from pixy.api.grpc.server import GrpcServer, add_services, largest_message, make_gate
from pixy.api.rest.server import RestServer, RestV1Server
from pixy.api.restv1.app import RestV1
from pixy.api.tls import ServerTls
from pixy.config.model import Tls
from pixy.engine.engine import Engine

_GRACE: Final = 1.0
_NOBODY: Final = b"no listener has this port\n"
_BUSY: Final = b'{"error": "too many requests from your address wait to be served"}\n'
_BUSY_REQUEST: Final = [(b"content-type", b"application/json; charset=utf-8")]
_BUSY_CALL: Final = [
    (b"content-type", b"application/grpc"),
    (b"grpc-status", b"8"),  # RESOURCE_EXHAUSTED
    (b"grpc-message", b"too many calls from your address wait to be served"),
]
_MOST_WAITING: Final = 1024
"""Requests of one address that have come and not begun. One more is refused at once, which costs a fraction of serving it."""


class HostedTls(ServerTls):
    """The certificates of the hosting server's listeners.

    Args:
        config: the section ``tls``, with a certificate.
        publish: hands the section to the hosting server, once its files have been read and fit. Blocks.

    Raises:
        StartError: the files cannot be read, or do not fit.
    """

    def __init__(self, config: Tls, publish: Callable[[Tls], None]) -> None:
        self._section = config
        self._publish = publish
        super().__init__(config)

    def load(self) -> None:
        """See :class:`pixy.api.tls.ServerTls`."""
        super().load()
        self._publish(self._section)


class Front:
    """The ASGI application.

    Args:
        open_ports: asks the hosting server to open the listeners' ports; :meth:`opened` is called once it has.
        publish_tls: see :class:`HostedTls`.
    """

    def __init__(self, open_ports: Callable[[], None], publish_tls: Callable[[Tls], None]) -> None:
        self._open_ports = open_ports
        self.publish_tls = publish_tls
        self._addresses: asyncio.Future[dict[str, str]] | None = None
        self._served: dict[str, Served] = {}
        self._by_port: dict[int, Served] = {}
        self._serves = asyncio.Event()
        self._waiting: Counter[str] = Counter()
        """Requests by address, from their arrival until the loop's turn has come to them."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Take a request, in the order of arrival; return what serves it, in a task that begins behind those of others."""
        client = scope.get("client")
        caller = share_of(client[0]) if client else ""
        if self._waiting[caller] >= _MOST_WAITING:
            return _refuse_busy(scope, receive, send)
        self._waiting[caller] += 1
        # Not in the task: one that is cancelled before it has begun never runs, and would count for ever.
        asyncio.get_running_loop().call_soon(self._begun, caller)
        return self._serve(scope, receive, send)

    def _begun(self, caller: str) -> None:
        self._waiting[caller] -= 1
        if not self._waiting[caller]:
            del self._waiting[caller]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._by_port.get(scope["server"][1])
        if served is None:
            await self._serves.wait()
            served = self._by_port.get(scope["server"][1], _refuse)
        await served(scope, receive, send)

    async def address(self, listener: str, served: Served) -> str:
        """Return the address of a listener, once the hosting server has bound it.

        Args:
            listener: its name.
            served: answers its requests.
        """
        if self._addresses is None:
            self._addresses = asyncio.get_running_loop().create_future()
            self._open_ports()
        self._served[listener] = served
        return (await asyncio.shield(self._addresses))[listener]

    def opened(self, addresses: dict[str, str]) -> None:
        """Note that the ports are open.

        Args:
            addresses: ``host:port`` by the listener's name.
        """
        assert self._addresses is not None
        if not self._addresses.done():
            self._addresses.set_result(addresses)

    def serve(self, addresses: dict[str, str]) -> None:
        """Serve requests from now on, also those that have waited.

        Args:
            addresses: of all listeners by name, also of others.
        """
        for name, served in self._served.items():
            self._by_port[int(addresses[name].rpartition(":")[2])] = served
        self._serves.set()


async def _refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": _NOBODY})


async def _refuse_busy(scope: Scope, _receive: Receive, send: Send) -> None:
    grpc = any(
        name == b"content-type" and value.startswith(b"application/grpc") for name, value in scope["headers"]
    )
    headers = _BUSY_CALL if grpc else _BUSY_REQUEST
    await send({"type": "http.response.start", "status": 200 if grpc else 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if grpc else _BUSY})


class HostedGrpc(GrpcServer):
    """The gRPC listener behind a hosting server.

    Args:
        engine: answers the calls.
        address: ``host:port``.
        edge: the bounds.
        front: takes the calls.
    """

    def __init__(self, engine: Engine, address: str, edge: Edge, front: Front) -> None:
        super().__init__(engine, address, edge)
        self._front = front
        self._calls = Calls(largest_message(engine.config), edge)

    async def bind(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        gate = self._gate = make_gate(self._engine, self._edge)
        add_services(self._calls, self._engine, self._edge, gate, self._health, self.path.rpartition("/")[2])
        self.tls = await _tls_of(self._engine, self._front)
        return await self._front.address("grpc", self._calls)

    def dead(self) -> str:
        """Return nothing: where the hosting server dies, so does this process."""
        return ""

    async def close(self) -> None:
        """Give calls a moment to finish, then end them."""
        await self._calls.close(_GRACE)


class _HostedRest(RestServer):
    """A REST listener behind a hosting server.

    Args:
        engine: answers the requests.
        address: ``host:port``.
        rest_v1: the REST v1/v2 API, one for all listeners.
        edge: the bounds.
        front: takes the requests.
    """

    def __init__(self, engine: Engine, address: str, rest_v1: RestV1, edge: Edge, front: Front) -> None:
        super().__init__(engine, address, rest_v1, edge)
        self._front = front
        self._requests: Requests

    async def bind(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        self.tls = await _tls_of(self._engine, self._front)
        self._requests = Requests(self._serving(), self._edge, self.tls is not None)
        await self._edge.proxies.start()
        return await self._front.address(self._name, self._requests)

    def dead(self) -> str:
        """Return nothing: where the hosting server dies, so does this process."""
        return ""

    async def close(self) -> None:
        """Let requests finish for a moment, then end them."""
        await self._requests.close(_GRACE)
        await self._rest_v1.close()


class HostedRest(_HostedRest):
    """Serves both REST APIs."""


class HostedRestV1(_HostedRest, RestV1Server):
    """Serves the REST v1/v2 API alone."""


async def _tls_of(engine: Engine, front: Front) -> ServerTls | None:
    config = engine.config.tls
    if not config.certificate_path:
        return None
    return await asyncio.to_thread(HostedTls, config, front.publish_tls)


__all__ = ["Front", "HostedGrpc", "HostedRest", "HostedRestV1", "HostedTls"]
