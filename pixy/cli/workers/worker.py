"""A worker: a daemon that shares its addresses with others. The supervisor starts it: ``python -m pixy.cli.workers.worker``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from functools import partial
from typing import Any, NoReturn

from pixy.api.siblings import Sibling, WorkerSockets
from pixy.cli.leftovers import Leftovers
from pixy.cli.logs import name_worker
from pixy.cli.pid_file import PidFile
from pixy.cli.processes.channel import Channel, Host
from pixy.cli.processes.child import PASSED, STOPS
from pixy.cli.processes.supervised import Life, SupervisedDaemon
from pixy.cli.reloading import Reloader
from pixy.cli.serve import listeners, run_loop
from pixy.cli.workers.place import adapted
from pixy.config import App
from pixy.engine.engine import Engine
from pixy.engine.service import ListenerSpec
from pixy.engine.workers import Worker

logger = logging.getLogger("pixy")


class WorkerDaemon(SupervisedDaemon):
    """A run of the service as one of several.

    Args:
        sockets: connections to the others.
        args: as for the other daemons that are supervised.
        kwargs: likewise.
    """

    def __init__(self, sockets: WorkerSockets, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sockets = sockets
        self._leftovers = Leftovers(PidFile(""), sockets.path)  # unix_addr is the supervisor's
        self._engine: Engine | None = None
        self._retiring: asyncio.Task[None] | None = None

    def engine(self) -> Engine:
        """Make the engine, which hands acks on to the other workers."""
        self._engine = Engine(self._app, self._sockets)
        return self._engine

    def listeners(self, engine: Engine) -> list[ListenerSpec]:
        """List the servers for clients, and the one for the other workers, which is there before them."""
        return listeners(engine, self._app, self._sockets)

    async def serves(self, engine: Engine) -> None:
        """Tell the supervisor."""
        self.channel.say("serving")

    def retire(self, within: float) -> None:
        """Leave the addresses to the worker that replaces this one; then drain and end.

        Args:
            within: seconds that clients may take to move on.
        """
        if self._retiring is None:
            self._retiring = asyncio.ensure_future(self._retire(within))

    async def _retire(self, within: float) -> None:
        if self._engine is not None:
            logger.info("another worker takes over, clients move on within %.0f s", within)
            await self._engine.retire(within)
        if not self._signalled.is_set():  # a second signal would end the process without a drain
            self.signalled(signal.SIGTERM)


class _Process:
    """The process of one worker."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._worker = Worker(**host.worker)
        path = os.path.join(host.folder, f"{self._worker.number}-{os.getpid()}.sock")
        self._sockets = WorkerSockets(self._worker, path)
        self._channel = Channel(socket.socket(fileno=host.descriptor))
        self._life = Life(
            self._channel,
            host.args,
            self._make,
            partial(adapted, number=self._worker.number, addresses=host.addresses),
        )

    def _make(self, options: argparse.Namespace, app: App, reloader: Reloader) -> WorkerDaemon:
        waits = bool(options.waitForKafka) or self._host.waits
        return WorkerDaemon(self._sockets, app, self._channel, reloader, wait_for_kafka=waits)

    async def run(self) -> NoReturn:
        await self._channel.open()
        hearing = asyncio.create_task(self._hear())
        hearing.add_done_callback(self._gone)
        code = await self._life.run()
        os._exit(code)  # as a daemon alone: Python would wait for threads that are in librdkafka

    async def _hear(self) -> None:
        while (message := await self._channel.hear()) is not None:
            kind, value = message
            if kind == "signal":
                self._life.signal(value)
            elif kind == "workers":
                self._sockets.update(Sibling(*each) for each in value)
            elif kind == "retire" and isinstance(self._life.daemon, WorkerDaemon):
                self._life.daemon.retire(value)

    def _gone(self, _hearing: asyncio.Task[None]) -> None:
        """Stop: the supervisor has gone."""
        self._life.signal(signal.SIGTERM)


def main() -> int:
    """Be a worker; return the exit code."""
    host = Host.of_environment()
    for number in (*STOPS, *PASSED):
        # They come from the supervisor over the line. Who signals the whole daemon, as systemd does, would end workers without a drain.
        signal.signal(number, signal.SIG_IGN)
    process = _Process(host)
    name_worker(Worker(**host.worker).number)
    return run_loop(process.run)


if __name__ == "__main__":
    sys.exit(main())
