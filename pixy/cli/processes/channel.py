"""The line between a supervisor and a daemon in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass, field
from typing import Any, Final

VARIABLE: Final = "PIXY_HOSTED"
"""The environment variable that tells the daemon of its supervisor."""
MOST: Final = 1024 * 1024
"""Bytes of the longest message."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a supervised daemon must know of its supervisor.

    Attributes:
        descriptor: of its end of the line.
        args: the daemon's command line.
        folder: a private folder, for files that Envoy reads and for sockets of workers.
        environment: values that variables had before Envoy needed others; None: there was none.
        worker: the fields of :class:`pixy.engine.workers.Worker`; empty: it is none.
        addresses: the addresses that a worker serves, by their keys.
        waits: wait for Kafka as with ``--waitForKafka``.
    """

    descriptor: int
    args: list[str]
    folder: str
    environment: dict[str, str | None] = field(default_factory=dict)
    worker: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    waits: bool = False

    def variable(self) -> str:
        """Return the value of :data:`VARIABLE`."""
        return json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> Host:
        """Read :data:`VARIABLE`, and undo what the program needed in the environment."""
        found = cls(**json.loads(os.environ.pop(VARIABLE)))
        for name, value in found.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return found


class Channel:
    """One end of the line.

    Args:
        end: of the pair of sockets.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Begin to use it in this loop."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._end, limit=MOST)

    def say(self, kind: str, value: Any = None) -> None:
        """Send a message at once. A few short ones are all that is ever sent, so they fit into the socket; nothing is said to one who has gone."""
        with contextlib.suppress(OSError):
            self._end.send(json.dumps([kind, value]).encode() + b"\n")

    async def hear(self) -> tuple[str, Any] | None:
        """Return the next message of the other end; None: it has gone."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        if not line.endswith(b"\n"):
            return None
        kind, value = json.loads(line)
        return kind, value

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


__all__ = ["MOST", "VARIABLE", "Channel", "Host"]
