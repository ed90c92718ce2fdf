"""The daemon within Envoy: an ASGI application whose life is the daemon's. It is Envoy that imports this module."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from typing import Any, Final

from pixy.api.asgi.front import Front, HostedGrpc, HostedRest, HostedRestV1
from pixy.api.asgi.types import Receive, Scope, Send
from pixy.api.grpc.server import GrpcServer
from pixy.api.rest.server import RestServer, RestV1Server, is_unix
from pixy.cli.envoy.bootstrap import write_tls
from pixy.cli.processes.channel import Channel, Host
from pixy.cli.processes.supervised import Life, SupervisedDaemon
from pixy.cli.reloading import Reloader
from pixy.config import App
from pixy.engine.engine import Engine
from pixy.engine.service import ListenerSpec
from pixy.errors import StartError

_OF_PYVOY: Final = "Exception in callback <_pyvoy."
_HOSTED: Final[dict[type[Any], type[Any]]] = {
    GrpcServer: HostedGrpc,
    RestServer: HostedRest,
    RestV1Server: HostedRestV1,
}


class HostedDaemon(SupervisedDaemon):
    """A run of the service whose TCP sockets are Envoy's.

    Args:
        front: gets the listeners.
        args: as for the other daemons that are supervised.
        kwargs: likewise.
    """

    def __init__(self, front: Front, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._front = front

    def listeners(self, engine: Engine) -> list[ListenerSpec]:
        """List the configured servers: those of the APIs on TCP are behind Envoy, others as ever."""
        found: list[ListenerSpec] = []
        for kind, args, name in super().listeners(engine):
            hosted = _HOSTED.get(kind)
            if hosted is None or is_unix(args[1]):
                found.append((kind, args, name))
            else:
                found.append((hosted, (*args, self._front), name))
        return found

    async def serves(self, engine: Engine) -> None:
        """Serve the requests that Envoy has, and tell the supervisor."""
        self._front.serve(engine.addresses)
        self.channel.say("serving")


def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what has failed in a callback, as the loop would, but for what pyvoy (1.3) does to requests that nobody reads any more.

    It sets the result of a ``receive()`` or ``send()`` also if whoever awaited that was cancelled: each body that came too late
    (``body_timeout``), and some clients that went, would be an error with a traceback. Nothing else of it is lost.
    """
    ours = not str(context.get("message")).startswith(_OF_PYVOY)
    if ours or not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class _Hosted:
    """The daemon's life within Envoy's, which ASGI's lifespan protocol tells of."""

    def __init__(self) -> None:
        self.front = Front(self._open_ports, self._publish)
        self._host: Host
        self._channel: Channel
        self._life: Life
        self._opens = asyncio.Event()

    def _open_ports(self) -> None:
        self._opens.set()
        self._channel.say("open")

    def _publish(self, tls: Any) -> None:
        try:
            write_tls(tls, self._host.folder)
        except OSError as error:
            raise StartError(f"tls: Envoy does not get the certificates: {error}") from error

    async def live(self, receive: Receive, send: Send) -> None:
        """Start the daemon, let Envoy open its ports, and stop when either end wants it."""
        asyncio.get_running_loop().set_exception_handler(report)
        await receive()
        self._host = Host.of_environment()
        self._channel = Channel(socket.socket(fileno=self._host.descriptor))
        await self._channel.open()
        self._life = Life(self._channel, self._host.args, self._make)
        running = asyncio.create_task(self._life.run())
        hearing = asyncio.create_task(self._hear())
        hearing.add_done_callback(self._gone)
        opens = asyncio.create_task(self._opens.wait())
        await asyncio.wait((running, opens), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await send({"type": "lifespan.startup.failed", "message": "see the daemon's own error"})
            return
        await send({"type": "lifespan.startup.complete"})
        ending = asyncio.ensure_future(receive())
        await asyncio.wait((ending, running), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():  # somebody has stopped Envoy itself
            self._life.signal(signal.SIGTERM)
        await running
        if hearing.done():
            os._exit(running.result())  # nobody else ends Envoy
        await ending
        hearing.remove_done_callback(self._gone)
        hearing.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    def _make(self, options: argparse.Namespace, app: App, reloader: Reloader) -> HostedDaemon:
        return HostedDaemon(
            self.front,
            app,
            self._channel,
            reloader,
            announce=bool(options.sandbox),
            wait_for_kafka=bool(options.waitForKafka),
        )

    async def _hear(self) -> None:
        while (message := await self._channel.hear()) is not None:
            kind, value = message
            if kind == "signal":
                self._life.signal(value)
            elif kind == "opened":
                self.front.opened(value)

    def _gone(self, _hearing: asyncio.Task[None]) -> None:
        """Stop: the supervisor has gone."""
        self._life.signal(signal.SIGTERM)


_hosted: _Hosted | None = None


def application(scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
    """Serve as ASGI's application."""
    if scope["type"] == "lifespan":
        return _live(receive, send)
    assert _hosted is not None
    return _hosted.front(scope, receive, send)


# pyvoy takes a function that is no coroutine function for an application of ASGI 2 otherwise.
application._asgi_single_callable = True  # type: ignore[attr-defined]


async def _live(receive: Receive, send: Send) -> None:
    global _hosted
    _hosted = _Hosted()
    await _hosted.live(receive, send)


__all__ = ["HostedDaemon", "application", "report"]
