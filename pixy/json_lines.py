"""Records as lines of JSON, written by a thread from a bounded queue.

Whoever has a record never waits. What finds the queue full, or cannot be written, is dropped and counted, and the next
line that is written says how many.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import stat
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

logger = logging.getLogger("pixy")

FLUSH_TIME: Final = 5.0
"""Seconds that a stop waits for the last lines."""
_FILE_MODE: Final = 0o600
_STOP: Final = None

Record = dict[str, Any]


class Target(Protocol):
    """A destination of lines. One thread calls its methods, but for :meth:`open`."""

    def open(self) -> None:
        """Begin to take lines. Raises OSError."""

    def reopen(self) -> None:
        """Go on in a new file of the same name, if it is a file. Any thread may call."""

    def write(self, line: bytes, count: int) -> bool:
        """Take a line; return whether it was taken.

        Args:
            line: without its end.
            count: how many records are lost with it.
        """

    def patience(self) -> float | None:
        """Return the seconds until :meth:`look` is to be called if there is no other line; None: for ever."""

    def look(self) -> None:
        """Learn what has become of lines that were taken."""

    @property
    def lost(self) -> int:
        """Records in lines that were taken, and not written after all."""

    def close(self) -> None:
        """Write what was taken, within :data:`FLUSH_TIME`, and end."""


class File:
    """Appends to a file that nobody else may read. Workers of one daemon append to the same file.

    A disk that is full takes a part of a line, and another worker's line may be the first one that fits again: whoever could not
    write looks how the file ends before he goes on.

    Args:
        path: of the file.
        key: names it in the configuration.
    """

    lost = 0

    def __init__(self, path: str, key: str) -> None:
        self._path = path
        self._key = key
        self._file = -1
        self._reopen = False
        self._failing = False
        self._cut = False
        """True if the last bytes that this process has written are no whole line."""
        self._unsure = True
        """True if the file may end within a line."""

    def open(self) -> None:
        """See :class:`Target`."""
        self._file = self._opened()

    def reopen(self) -> None:
        """See :class:`Target`."""
        self._reopen = True

    def write(self, line: bytes, count: int) -> bool:
        """See :class:`Target`."""
        try:
            if self._reopen:
                self._reopen = False
                opened = self._opened()
                os.close(self._file)
                self._file, self._unsure, self._cut = opened, True, False
            data = (b"\n" if self._unsure and self._ends_within_a_line() else b"") + line + b"\n"
            while data:
                written = os.write(self._file, data)
                self._cut = written < len(data)
                data = data[written:]
        except OSError as error:
            self._unsure = True
            if not self._failing:
                logger.error(
                    "%s: %s: %s; records are dropped", self._key, self._path, error.strerror or error
                )
            self._failing = True
            return False
        self._failing = self._unsure = False
        return True

    def patience(self) -> None:
        """See :class:`Target`."""

    def look(self) -> None:
        """See :class:`Target`."""

    def close(self) -> None:
        """See :class:`Target`."""
        os.close(self._file)

    def _ends_within_a_line(self) -> bool:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            return self._cut
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return self._cut  # renamed, or not to be read
        try:
            size = os.fstat(file).st_size
            return size > 0 and os.pread(file, 1, size - 1) != b"\n"
        except OSError:
            return self._cut
        finally:
            os.close(file)

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags, _FILE_MODE)
        except OSError as error:
            if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(self._path).st_mode):
                error.strerror = "a FIFO that nobody reads: start its reader first"
            raise
        # Opening a FIFO waits for nobody. Writing may wait for its reader: that is the thread's, whose queue is bounded.
        os.set_blocking(file, True)
        return file


class JsonLines:
    """Writes records to one target. :meth:`put` and :meth:`drop` are for one thread.

    Args:
        target: where lines go.
        most: records that wait at most.
        wall: seconds since 1970.
    """

    def __init__(self, target: Target, most: int, wall: Callable[[], float] = time.time) -> None:
        self.target = target
        self._wall = wall
        self._queue: queue.Queue[Record | None] = queue.Queue(most)
        self._dropped = 0  # counted by the caller of this object
        self._lost = 0  # counted by the thread
        self._reported = 0  # by the thread, of all
        self._thread = threading.Thread(target=self._write_all, name="json-lines", daemon=True)

    def start(self) -> None:
        """Begin to write. Raises OSError."""
        self.target.open()
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end. Blocks, for some seconds at most."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put(_STOP, timeout=FLUSH_TIME)
        except queue.Full:
            return
        self._thread.join(2 * FLUSH_TIME)

    def put(self, record: Record) -> None:
        """Write a record, whose ``time`` is seconds since 1970; or drop it."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def drop(self) -> None:
        """Count a record that is not written."""
        self._dropped += 1

    # -- the thread -------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            try:
                record = self._queue.get(timeout=self.target.patience())
            except queue.Empty:
                self.target.look()
                continue
            self._write_count()
            if record is _STOP:
                break
            self._write(record, 1)
        self.target.close()

    def _write_count(self) -> None:
        """Say how many records were dropped since this was last said."""
        news = self._dropped + self._lost + self.target.lost - self._reported
        if news:
            self._reported += news
            self._write({"result": "dropped", "count": news, "time": self._wall()}, news)

    def _write(self, record: Record, count: int) -> None:
        if not self.target.write(line_of(record), count):
            self._lost += count


def line_of(record: Record) -> bytes:
    """Return a record as a line, without its end; values that are None or empty are left out."""
    moment = datetime.fromtimestamp(record["time"], UTC)
    shown = {"time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    shown |= {name: value for name, value in record.items() if name != "time" and value not in (None, "")}
    # JSON in ASCII: no text of a client can look like anything else in a terminal.
    return json.dumps(shown, separators=(",", ":")).encode()


__all__ = ["FLUSH_TIME", "File", "JsonLines", "Record", "Target", "line_of"]
