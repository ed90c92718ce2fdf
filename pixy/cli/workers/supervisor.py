"""Start workers, pass signals on, replace those that crash, and end when they end: one process for whoever manages the daemon.

A worker's life, as it is seen here::

    started -> serving -> ended                 a crash: another one is started after a pause, at most `server.worker_restarts` times in a row
    started -> serving -> retiring -> ended     SIGUSR2: another one serves already
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from pixy.api.edge import sockets
from pixy.api.listener import split_address
from pixy.api.siblings import ADMIN
from pixy.cli.leftovers import Leftovers
from pixy.cli.logs import ON_STDERR, configured
from pixy.cli.pid_file import PidFile
from pixy.cli.processes.channel import Host
from pixy.cli.processes.child import SIGNAL, Child, check_addresses, failure_of, on_signals, tcp_addresses
from pixy.cli.workers.pauses import Pauses
from pixy.cli.workers.place import ADMIN_KEY, shared_addresses
from pixy.config import App
from pixy.errors import ConfigError, StartError
from pixy.escaping import escaped

logger = logging.getLogger("pixy")

PROGRAM: list[str] = ["-m", "pixy.cli.workers.worker"]
"""The arguments of Python that make a worker."""
_NOT_DRAINED: Final = 3
_BROKEN: Final = 4
_MARGIN: Final = 10.0
"""Seconds that a worker may take beyond ``shutdown_timeout``; then it is killed."""
_START: Final = 120.0
"""Seconds in which a worker must serve that is to replace another one."""


class _Worker:
    """One process of a worker."""

    def __init__(self, number: int, child: Child) -> None:
        self.number = number
        self.child = child
        self.pid = child.process.pid
        self.serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the reason why it does not start."""
        self.since = 0.0
        self.retiring = False
        self.code: int | None = None
        """What it has said about its end."""
        self.ended: asyncio.Task[None]


class Supervisor:
    """Supervises the workers.

    Args:
        app: the daemon's configuration.
        args: its command line.
        pid_file: written once all workers serve; the caller removes it.
    """

    def __init__(self, app: App, args: Sequence[str], pid_file: PidFile) -> None:
        self._app = app
        self._args = list(args)
        self._pid_file = pid_file
        self._leftovers = Leftovers(pid_file, app.unix_addr)
        self._count = app.server.processes
        self._folder = ""
        self._secret = secrets.token_hex(32)
        self._addresses = shared_addresses(app)
        self._kept: list[socket.socket] = []
        self._unix: socket.socket | None = None
        self._admin: socket.socket | None = None
        self._workers: list[_Worker] = []
        self._pauses = [Pauses(app.server.worker_restarts) for _ in range(self._count)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._replacing: asyncio.Task[None] | None = None
        self._once_more = False
        """Whether all workers are to be replaced again, once they have been."""
        self._stopping = False
        self._serving = False
        self._code = 0
        self._over: asyncio.Future[None]

    async def run(self) -> int:
        """Run until the workers have ended; return the exit code.

        Raises:
            StartError: one of them does not start.
            ConfigError: the pid file cannot be written.
        """
        self._over = asyncio.get_running_loop().create_future()
        self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="kafka-pixy-")
        try:
            await asyncio.to_thread(self._take_addresses)
            on_signals(self._stop, self._pass)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._replace_all)
            try:
                await self._start_all()
                await self._over
            finally:
                await self._end_all()
        finally:
            self._give_back()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        return self._code

    # -- addresses --------------------------------------------------------------------------------

    def _take_addresses(self) -> None:
        """See to it that nobody else has the addresses, and keep them. Blocks. Raises StartError."""
        check_addresses(
            {**tcp_addresses(self._app), "admin": self._app.admin_addr}
            if self._app.admin_addr
            else tcp_addresses(self._app)
        )
        for key, address in self._addresses.items():
            host, port = split_address(address)
            try:
                if key == ADMIN_KEY:
                    kept = self._admin = sockets.listen_tcp(host, port)
                else:
                    kept = sockets.reserve_tcp(host, port)
            except OSError as error:
                raise StartError(
                    f"{key} {address}: {sockets.refusal(error, sockets.tcp_hint(error))}"
                ) from error
            self._kept.append(kept)
            name = f"[{host}]" if host and ":" in host else host or ""
            self._addresses[key] = f"{name}:{kept.getsockname()[1]}"
        path = self._app.unix_addr
        if not path or ":" in path:
            return
        try:
            self._unix = sockets.listen_unix(path, int(self._app.unix_mode, 8))
        except OSError as error:
            raise StartError(
                "failed to start Unix socket based HTTP API server: failed to create listener: "
                f"listen unix {path}: {sockets.refusal(error, sockets.socket_hint(path, error))}"
            ) from error
        self._unix_inode = sockets.inode(path)

    def _give_back(self) -> None:
        for kept in self._kept:
            kept.close()
        if self._unix is not None:
            self._unix.close()
            sockets.unlink(self._app.unix_addr, self._unix_inode)

    # -- workers ----------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        """Start all workers, and wait until they serve. Raises StartError or ConfigError."""
        started = [await self._start(number + 1) for number in range(self._count)]
        await asyncio.wait([each.serving for each in started], return_when=asyncio.FIRST_EXCEPTION)
        for each in started:
            if each.serving.done() and not self._stopping:
                each.serving.result()
        if self._stopping or self._over.done():
            return
        self._serving = True
        self._leftovers.made()
        self._pid_file.write()

    async def _start(self, number: int, *, waits: bool = False) -> _Worker:
        unix, admin = (-1 if each is None else each.fileno() for each in (self._unix, self._admin))
        host = Host(
            -1,
            self._args,
            self._folder,
            worker={
                "number": number,
                "count": self._count,
                "folder": self._folder,
                "secret": self._secret,
                "unix": unix,
                "admin": admin,
            },
            addresses=self._addresses,
            waits=waits,
        )
        inherited = [each for each in (unix, admin) if each >= 0]
        child = await Child.start([sys.executable, *PROGRAM], host, {}, inherited)
        worker = _Worker(number, child)
        self._workers.append(worker)
        worker.ended = asyncio.create_task(self._attend(worker))
        if self._stopping:
            worker.child.channel.say("signal", int(signal.SIGTERM))
        return worker

    async def _attend(self, worker: _Worker) -> None:
        """Hear a worker until it has ended, and see to what follows."""
        hearing = asyncio.create_task(self._hear(worker))
        await worker.child.process.wait()
        await asyncio.wait((hearing,), timeout=1.0)  # what it has said before its end
        hearing.cancel()
        worker.child.channel.close()
        self._workers.remove(worker)
        for end in ("", ADMIN):
            with contextlib.suppress(OSError):
                os.unlink(self._socket_of(worker) + end)
        self._tell_all()
        if not worker.serving.done():
            if worker.code == 0 or self._stopping:
                worker.serving.set_result(None)
            else:
                worker.serving.set_exception(StartError(self._reason(worker)))
                worker.serving.exception()  # whoever waits for it hears it
        self._note_end(worker)

    async def _hear(self, worker: _Worker) -> None:
        while (message := await worker.child.channel.hear()) is not None:
            kind, value = message
            if kind == "serving":
                worker.since = asyncio.get_running_loop().time()
                if not worker.serving.done():
                    worker.serving.set_result(None)
                self._tell_all()
            elif kind == "failed" and not worker.serving.done():
                worker.serving.set_exception(failure_of(value))
                worker.serving.exception()
            elif kind == "ended":
                worker.code = value

    def _tell_all(self) -> None:
        """Tell the workers who is there."""
        everybody = [
            (
                each.number,
                each.pid,
                self._socket_of(each),
                each.retiring,
            )
            for each in self._workers
            if each.since
        ]
        for each in self._workers:
            each.child.channel.say("workers", everybody)

    def _socket_of(self, worker: _Worker) -> str:
        return os.path.join(self._folder, f"{worker.number}-{worker.pid}.sock")

    def _reason(self, worker: _Worker) -> str:
        return f"worker {worker.number} (pid {worker.pid}) has ended ({worker.child.how_it_ended()})"

    def _note_end(self, worker: _Worker) -> None:
        """Decide what follows from the end of a worker."""
        drained = worker.code if worker.code is not None else _NOT_DRAINED
        if self._stopping:
            self._code = max(self._code, drained)
        if self._stopping or not self._serving:
            if not self._workers and not self._over.done():
                self._over.set_result(None)
            return
        if worker.retiring:
            logger.info("worker %d (pid %d) was replaced and has ended", worker.number, worker.pid)
            return
        failed = worker.serving.exception()
        if failed is not None and self._replacing is not None and self._has_current(worker.number):
            return  # it was to replace one that serves on
        served = asyncio.get_running_loop().time() - worker.since if worker.since else 0.0
        pauses = self._pauses[worker.number - 1]
        pause = pauses.ended(served)
        reason = self._reason(worker) + (f": {failed}" if isinstance(failed, ConfigError) else "")
        if pause is None:
            self._give_up(f"{reason}, {pauses.ends} times in a row")
            return
        self._say(f"{reason}; another one is started in {pause:g} s", logging.ERROR)
        self._begin(self._start_again(worker.number, pause))

    def _has_current(self, number: int) -> bool:
        return any(each.number == number and each.since and not each.retiring for each in self._workers)

    async def _start_again(self, number: int, pause: float) -> None:
        await asyncio.sleep(pause)
        if self._stopping or any(each.number == number and not each.retiring for each in self._workers):
            return  # another one has come meanwhile: all are being replaced
        try:
            # As any worker it would fail without Kafka; then it would be given up while the others wait.
            await self._start(number, waits=True)
        except OSError as error:
            self._give_up(f"worker {number} cannot be started: {error}")

    def _give_up(self, reason: str) -> None:
        """Stop all workers: one of them cannot be kept running."""
        self._say(f"stopping: {reason}", logging.ERROR)
        self._code = _BROKEN
        self._stop_all(signal.SIGTERM)

    def _say(self, text: str, level: int) -> None:
        print(escaped(f"kafka-pixy: {text}"), file=sys.stderr, flush=True)
        logger.log(level, "%s", text, extra={ON_STDERR: True})

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- signals ----------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        if self._stopping:
            for each in self._workers:
                each.child.kill()
            self._give_back()
            self._leftovers.remove()
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(SIGNAL + number)
        self._stop_all(number)

    def _stop_all(self, number: int) -> None:
        self._stopping = True
        if self._admin is not None:
            self._admin.close()  # else whoever connects once no worker takes more would wait for the end of this process
        self._pass(number)
        for each in self._workers:
            if not each.serving.done():
                each.serving.set_result(None)  # nobody waits for it any more
        self._begin(self._kill_late())
        if not self._workers and not self._over.done():
            self._over.set_result(None)

    async def _kill_late(self) -> None:
        await asyncio.sleep(self._app.shutdown_timeout + _MARGIN)
        for each in self._workers:
            each.child.kill()

    def _pass(self, number: int) -> None:
        for each in self._workers:
            each.child.channel.say("signal", int(number))

    def _replace_all(self) -> None:
        """Replace all workers, one after the other; once more after that, if they are being replaced already."""
        if self._stopping or not self._serving:
            logger.warning(
                "SIGUSR2 replaces no workers: they are about to %s", "end" if self._stopping else "serve"
            )
        elif self._replacing is None or self._replacing.done():
            self._replacing = asyncio.create_task(self._replace_each())
        else:
            self._once_more = True
            logger.info("workers are being replaced already, all will be replaced once more after that")

    async def _replace_each(self) -> None:
        logger.info("replacing %d workers, one after the other", self._count)
        try:
            for number in range(1, self._count + 1):
                # Each has an end. There are never more than three times as many processes.
                while (
                    len(retiring := [each.ended for each in self._workers if each.retiring])
                    >= 2 * self._count
                ):
                    await asyncio.wait(retiring, return_when=asyncio.FIRST_COMPLETED)
                old = [each for each in self._workers if each.number == number and not each.retiring]
                await self._replace(number, old)
        except (StartError, ConfigError, OSError, TimeoutError) as error:
            text = str(error) or f"a worker does not serve within {_START:g} s"
            logger.error("replacing workers ends here, the others go on as they are: %s", text)
        else:
            logger.info(
                "replaced %d workers; those before them end with their connections, within %.0f s",
                self._count,
                self._app.moving_time,
            )
        finally:
            self._replacing = None
            if self._once_more and not self._stopping:
                self._once_more = False
                self._replace_all()

    async def _replace(self, number: int, old: list[_Worker]) -> None:
        """Start a worker, and let the one that it replaces end. Raises StartError, ConfigError, OSError or TimeoutError."""
        new = await self._start(number)
        try:
            await asyncio.wait_for(asyncio.shield(new.serving), _START)
        except TimeoutError:
            new.retiring = True  # its end is no crash
            new.child.kill()
            raise
        within = self._app.moving_time
        for each in old:
            each.retiring = True
            each.child.channel.say("retire", within)
            self._begin(self._kill_after(each, within + self._app.shutdown_timeout + 2 * _MARGIN))
        self._tell_all()

    async def _kill_after(self, worker: _Worker, within: float) -> None:
        done, _ = await asyncio.wait((worker.ended,), timeout=within)
        if not done:
            logger.error(
                "worker %d (pid %d) was replaced and does not end, it is killed", worker.number, worker.pid
            )
            worker.child.kill()

    async def _end_all(self) -> None:
        """End what still runs."""
        self._stopping = True
        for task in [*self._tasks, *([self._replacing] if self._replacing is not None else [])]:
            task.cancel()
        ended = [each.ended for each in self._workers]
        self._pass(signal.SIGTERM)
        if ended:
            _, late = await asyncio.wait(ended, timeout=self._app.shutdown_timeout + _MARGIN)
            if late:
                for each in self._workers:
                    each.child.kill()
                await asyncio.wait(late)


def supervise(app: App, args: Sequence[str], pid_file: PidFile) -> int:
    """Run the daemon as workers, with the log of what happens to them; return the exit code. Raises as :meth:`Supervisor.run`."""
    with configured(app.logging):
        return asyncio.run(Supervisor(app, args, pid_file).run())


__all__ = ["PROGRAM", "Supervisor", "supervise"]
