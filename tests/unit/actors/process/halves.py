"""Both halves of a process actor in one process and on one loop: the worker's frames come over a socket pair.

All but the process itself is the product's: the host, the frames, the worker's half. ``in_this_process`` puts it in
the place of the worker processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from actors.process.frames import FrameReader, Part
from actors.process.link import Link
from actors.process.main import Worker
from actors.process.spec import Spec
from actors.process.worker import WorkerProcess


class HereLink(Link):
    """Does not end the process when the parent's end is closed."""

    def _write(self, part: memoryview) -> None:
        with contextlib.suppress(OSError):
            assert os.write(self.fd, part) == part.nbytes, "small frames only: nobody reads meanwhile"


class HereWorker(Worker):
    """Leaves this process as it is."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._link = HereLink(sock.fileno())

    def _prepare(self, spec: Spec) -> None:
        pass


class Here(WorkerProcess):
    """A worker without a process: it "exits" when its connection is closed."""

    made: list[Here]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made.append(self)
        self.pid = os.getpid()
        self.killed = False
        self.wait_for: Callable[[], Awaitable[Any]] | None = None
        """What the parent's notice of its exit waits for."""

    async def start(self, spec: list[Part]) -> None:
        """Begin to serve the actor on this loop."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._open += 1
        self._transport, _ = await self._loop.create_unix_connection(
            lambda: FrameReader(self._read, self._closed, self._limit), sock=ours
        )
        self.worker = HereWorker(theirs)
        self._serving = self._loop.create_task(self._serve())
        self._write(spec)
        await self.ready

    async def _serve(self) -> None:
        await self.worker.serve()
        self.worker._link.fd = -1  # closed: the number may be another file's
        if self.worker._cell is not None:
            await self.worker._stop(self.worker._cell)
        if self.wait_for is not None:
            await self.wait_for()
        self._ended(-signal.SIGKILL if self.killed else 0)

    def kill(self) -> None:
        """Close the connection, at which it ends."""
        self.killed = True
        self.close()

    @property
    def actor(self) -> Any:
        """The user's actor."""
        assert self.worker._cell is not None
        return self.worker._cell.actor


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[Here]:
    """Have process actors run in this process; return the list of their workers, in the order of their starts."""
    made: list[Here] = []
    monkeypatch.setattr("actors.process.host.WorkerProcess", type("Here", (Here,), {"made": made}))
    return made


async def settled(turns: int = 50) -> None:
    """Let the loop take some turns: frames are read in them."""
    for _ in range(turns):
        await asyncio.sleep(0)
