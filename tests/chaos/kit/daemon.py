"""The daemon's own program, plus a control socket: the product itself has no way in for faults.

``python -m tests.chaos.kit.daemon CONTROL PLANT --config FILE``. On the unix socket CONTROL one line
``crash PATTERN`` makes the actor fail that next handles a message and whose path matches the pattern; the
answer is ``hit PATH`` or ``missed``. PLANT names defects of :mod:`tests.chaos.kit.plants` with ``+`` between, or is ``-``.

Within Envoy the same is done by :mod:`tests.chaos.kit.hosted`, in each worker by :mod:`tests.chaos.kit.worker`, whose socket has the
worker's number at its end.
"""

from __future__ import annotations

import asyncio
import ctypes
import fnmatch
import os
import signal
import sys
from pathlib import Path
from typing import Any

from actors.testing import Crash
from pixy.cli import serve, start
from pixy.cli.envoy import bootstrap
from pixy.cli.workers import supervisor
from pixy.engine.engine import Engine
from tests.chaos.kit import plants

CRASH_WITHIN = 3.0
"""Seconds to wait for a message to the actor."""
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class CrashOnce(Crash):
    """Fails the first matching message, and says which."""

    def __init__(self, pattern: str) -> None:
        super().__init__(path=pattern, times=1)
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hit(self, cell: Any, envelope: Any) -> bool:
        """See :class:`actors.testing.Fault`."""
        found = super().hit(cell, envelope)
        if found and not self.done.done():
            self.done.set_result(f"hit {cell.path} on {type(envelope[0]).__name__}")
        return found

    def matches(self, cell: Any, message: Any) -> bool:
        """See :class:`actors.testing.Fault`; ``*`` stays within one part of the path."""
        ours, theirs = self.path.split("/"), cell.path.split("/")
        return len(ours) == len(theirs) and all(map(fnmatch.fnmatchcase, theirs, ours))


class ControlledEngine(Engine):
    """An engine with a control socket."""

    control = ""

    async def start(self, *args: Any) -> None:
        """See :class:`pixy.engine.engine.Engine`."""
        await super().start(*args)
        Path(self.control).unlink(missing_ok=True)
        self._control = await asyncio.start_unix_server(self._serve, self.control)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command, _, argument = (await reader.readline()).decode().strip().partition(" ")
        assert command == "crash", command
        fault = CrashOnce(argument)
        remove = self.system.instrument(fault)
        try:
            answer = await asyncio.wait_for(fault.done, CRASH_WITHIN)
        except TimeoutError:
            answer = "missed"
        remove()
        writer.write(answer.encode() + b"\n")
        await writer.drain()
        writer.close()


def install(control: str, plant: str) -> None:
    """Give the engines of this process a control socket, and plant defects.

    Args:
        control: path of the socket.
        plant: names of defects with ``+`` between, or ``-``.
    """
    ControlledEngine.control = control
    for name in plant.split("+"):
        if name != "-":
            plants.PLANTS[name]()
    serve.Engine = ControlledEngine  # type: ignore[misc]


def main() -> int:
    """Run the daemon until a signal; return its exit code."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    control, plant, *args = sys.argv[1:]
    install(control, plant)
    supervisor.PROGRAM[:] = ["-m", "tests.chaos.kit.worker"]
    bootstrap.APPLICATION = "tests.chaos.kit.hosted:application"  # type: ignore[misc]
    os.environ.update(CHAOS_CONTROL=control, CHAOS_PLANT=plant, PYTHONPATH=os.getcwd())
    return start.run(args)


if __name__ == "__main__":
    sys.exit(main())
