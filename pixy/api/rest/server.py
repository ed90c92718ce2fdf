"""The REST listeners: TCP, with TLS if configured, or a unix socket."""

from __future__ import annotations

import asyncio
import errno
import html
import logging
import os
import socket
import ssl
import stat
from typing import Protocol

from aiohttp import web

from pixy.api.listener import Listener, split_address
from pixy.api.rest import router
from pixy.api.rest.endpoints import Endpoints, respond, respond_error
from pixy.api.rest.render import to_json
from pixy.engine.engine import Engine
from pixy.errors import StartError, TooManyRequests

logger = logging.getLogger("pixy.api")

_MAX_LINE = 64 * 1024
_GRACE = 1.0
_SOCKET_MODE = 0o777


def is_unix(address: str) -> bool:
    """Return whether an address is a path: one with a colon is TCP (the original's rule)."""
    return ":" not in address


class OtherApi(Protocol):
    """Another API behind the same listener."""

    def own_path(self, raw_path: str) -> str | None:
        """The path below that API's prefix; None for a path that is not."""

    def takes(self, request: web.BaseRequest, raw_path: str, endpoint: str) -> bool:
        """Whether it answers a request for which this router found ``endpoint``."""

    async def serve(self, request: web.BaseRequest, raw_path: str) -> web.StreamResponse:
        """Answer."""

    def busy(self, request: web.BaseRequest) -> web.Response:
        """Answer that too much is under way."""

    async def close(self) -> None:
        """A listener stops."""


_BOTH_MAY_HAVE = frozenset({"", "!", "topic", "topics"})


class RestServer(Listener):
    """Listens on one address, for the original's API and, beside it or alone, another one."""

    only_other = False

    def __init__(self, engine: Engine, address: str, other: OtherApi) -> None:
        super().__init__()
        self._engine = engine
        self._address = address
        self._other = other
        self._endpoints = Endpoints(engine)
        self._active = 0
        self._runner: web.ServerRunner | None = None
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None

    async def bind(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        server = web.Server(
            self._serve,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_GRACE)
        await self._runner.setup()
        unix = is_unix(self._address)
        kind, network = ("Unix socket", "unix") if unix else ("TCP", "tcp")
        try:
            if unix:
                shown = await self._bind_unix()
            else:
                shown = await self._bind_tcp()
        except OSError as error:
            reason = (
                "bind: address already in use"
                if error.errno == errno.EADDRINUSE
                else f"bind: {(error.strerror or str(error)).lower()}"
            )
            raise StartError(
                f"failed to start {kind} based HTTP API server: failed to create listener: "
                f"listen {network} {self._address}: {reason}"
            ) from error
        return shown

    async def _bind_tcp(self) -> str:
        assert self._runner is not None
        host, port = split_address(self._address)
        tls = self._engine.config.tls
        context: ssl.SSLContext | None = None
        if tls.certificate_path:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            await asyncio.to_thread(context.load_cert_chain, tls.certificate_path, tls.key_path)
        # The socket is ours and not asyncio's list of several: its number is known, and its death
        # is seen.
        self._socket = await asyncio.to_thread(_listen_tcp, host, port)
        await web.SockSite(self._runner, self._socket, ssl_context=context).start()
        return f"{host or '0.0.0.0'}:{self._socket.getsockname()[1]}"

    async def _bind_unix(self) -> str:
        assert self._runner is not None
        self._socket = await asyncio.to_thread(_listen_unix, self._address)
        self._inode = await asyncio.to_thread(_inode, self._address)
        await web.SockSite(self._runner, self._socket).start()
        return self._address

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        raw_path = request.raw_path.partition("?")[0].partition("#")[0]
        other = self._other
        own_path = raw_path if self.only_other else other.own_path(raw_path)
        if own_path is not None:
            return await self._serve_other(request, own_path)
        match = router.route(request.method, raw_path)
        if (
            isinstance(match, router.Match)
            and match.endpoint in _BOTH_MAY_HAVE
            and other.takes(request, raw_path, match.endpoint)
        ):
            return await self._serve_other(request, raw_path)
        if isinstance(match, router.Redirect):
            return _redirect(request, match.path)
        if match is router.NOT_FOUND:
            return web.Response(
                body=b"404 page not found\n",
                status=404,
                headers={
                    "Content-Type": "text/plain; charset=utf-8",
                    "X-Content-Type-Options": "nosniff",
                },
            )
        if match is router.METHOD_NOT_ALLOWED:
            return web.Response(status=405)
        if self._active >= self._engine.config.max_concurrent_requests:
            return respond_error(TooManyRequests("max_concurrent_requests"))
        self._active += 1
        try:
            with self._engine.diagnostics.context(request.headers.get("traceparent")):
                return await self._endpoints.serve(request, match)
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client is gone
        except Exception as error:
            logger.exception("%s %s failed", request.method, raw_path)
            return respond(to_json({"error": f"internal error: {error!r}"}), 500)
        finally:
            self._active -= 1

    async def _serve_other(self, request: web.BaseRequest, raw_path: str) -> web.StreamResponse:
        if self._active >= self._engine.config.max_concurrent_requests:
            return self._other.busy(request)
        self._active += 1
        try:
            return await self._other.serve(request, raw_path)
        finally:
            self._active -= 1

    def dead(self) -> str:
        """See :class:`pixy.api.listener.Listener`."""
        if self._socket is None or self._socket.fileno() == -1:
            return f"HTTP API server on {self._address} has lost its socket"
        if self._runner is None or not self._runner.sites:
            return f"HTTP API server on {self._address} has stopped"
        return ""

    async def close(self) -> None:
        """Let requests finish for a moment, then end them; the socket's file goes too."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self._other.close()
        if self._inode is not None:
            await asyncio.to_thread(_unlink, self._address, self._inode)


class OnlyOther(RestServer):
    """Listens for the other API alone."""

    only_other = True


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


def _listen_tcp(host: str | None, port: int) -> socket.socket:
    infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = infos[0]
    listener = socket.create_server(
        address[:2] if family == socket.AF_INET else address, family=family, backlog=1024
    )
    listener.setblocking(False)
    return listener


def _listen_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.bind(path)
        os.chmod(path, _SOCKET_MODE)
        listener.listen(1024)
    except BaseException:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _remove_stale(path: str) -> None:
    """A socket file that nobody listens on is left over from a crash."""
    if not (os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode)):
        return  # bind will say what is wrong with it, if anything is
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1.0)
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    finally:
        probe.close()


def _inode(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _unlink(path: str, inode: tuple[int, int]) -> None:
    try:
        if _inode(path) == inode:
            os.unlink(path)
    except OSError:
        pass


__all__ = ["OnlyOther", "OtherApi", "RestServer", "is_unix"]
