"""Write what a worker prints and logs to the parent's log.

A filter or handler of the program's own logging may raise. That must end neither the connection to the worker nor
the pipes of its output: the worker would end with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from actors._core.log_safely import log_safely
from actors.process.frames import Frame, NotPicklable, decode

logger = logging.getLogger("actors.worker")

LINE = 16 * 1024
"""Bytes after which a line of output is logged in pieces."""


class Lines(asyncio.Protocol):
    """Splits a stream into lines for the log.

    Args:
        on_line: gets each line, with ``level``.
        level: the log level of the lines.
        on_end: called when the stream has ended.
    """

    def __init__(self, on_line: Callable[[int, str], None], level: int, on_end: Callable[[], None]) -> None:
        self._on_line, self._level, self._on_end = on_line, level, on_end
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Log the lines that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LINE:
            lines.append(self._rest[:LINE])
            self._rest = self._rest[LINE:]
        for line in lines:
            self._on_line(self._level, line.decode(errors="backslashreplace"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Log what is left."""
        if self._rest:
            self._on_line(self._level, self._rest.decode(errors="backslashreplace"))
        self._on_end()


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
