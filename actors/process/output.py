"""Write what a worker prints and logs to the parent's log.

A filter or handler of the program's own logging may raise. That must end neither the connection to the worker nor
the pipes of its output: the worker would end with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from actors._core.log_safely import log_safely
from actors.process.frames import Frame, NotPicklable, decode

logger = logging.getLogger("actors.worker")

LINE = 16 * 1024
"""Bytes after which a line of output is logged in pieces."""


LINES_AT_ONCE = 100
"""Lines that are logged before the loop goes on with its other callbacks; the worker waits for room in the pipe meanwhile."""


class Lines(asyncio.Protocol):
    """Splits a stream into lines for the log, some at a time: a worker that prints without end must not keep the loop.

    Args:
        on_line: gets each line, with ``level``.
        level: the log level of the lines.
        on_end: called when the stream has ended.
    """

    def __init__(self, on_line: Callable[[int, str], None], level: int, on_end: Callable[[], None]) -> None:
        self._on_line, self._level, self._on_end = on_line, level, on_end
        self._rest = b""
        self._waiting: deque[bytes] = deque()
        self._transport: Any = None
        self._paused = self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take the lines that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LINE:
            lines.append(self._rest[:LINE])
            self._rest = self._rest[LINE:]
        self._waiting.extend(lines)
        if not self._paused:
            self._log()

    def connection_lost(self, exc: Exception | None) -> None:
        """Log what is left."""
        self._ended = True
        if self._rest:
            self._waiting.append(self._rest)
        if not self._paused:
            self._log()

    def _log(self) -> None:
        """Log some lines, and have the rest logged in the loop's next turns; read on when there is none."""
        try:
            for _ in range(min(LINES_AT_ONCE, len(self._waiting))):
                self._on_line(self._level, self._waiting.popleft().decode(errors="backslashreplace"))
        finally:  # also after Ctrl-C
            self._go_on()

    def _go_on(self) -> None:
        paused, self._paused = self._paused, bool(self._waiting)
        if self._waiting:
            if not paused and not self._ended:
                self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._log)
        elif self._ended:
            self._on_end()
        elif paused:
            self._transport.resume_reading()


def log_line(level: int, line: str, path: str, pid: int | None) -> None:
    """Log a line that a worker has printed.

    Args:
        level: the log level.
        line: the line.
        path: the actor's path.
        pid: the worker's process.
    """
    log_safely(logger.log, level, "%s (pid %s): %s", path, pid, line)


def log_record(frame: Frame, path: str, pid: int | None) -> None:
    """Log a record of a worker's logging, by the logger of the same name; the arguments are those of :func:`log_line`."""
    try:
        fields = decode(frame, "a log record")
    except NotPicklable as error:
        log_safely(logger.warning, "%s (pid %s): %s", path, pid, error)
    else:
        log_safely(_handle, fields)


def _handle(fields: dict[str, Any], **_: int) -> None:
    record = logging.makeLogRecord(fields)
    target = logging.getLogger(record.name)
    if target.isEnabledFor(record.levelno):
        target.handle(record)
