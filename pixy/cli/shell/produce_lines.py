"""Reads lines, or messages as they are, in a thread: so many ahead, and no line without end."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from pixy.cli.shell import interrupts
from pixy.cli.shell.errors import ShellError

MAX_MESSAGE: Final = 128 * 1024 * 1024
"""Bytes of a line or a file that is read as one message: a hundred times what Kafka and a daemon take if nobody has told them otherwise."""
TOO_LONG: Final = f"longer than {MAX_MESSAGE // 1024**2} MiB, which is no message for Kafka"
_AHEAD: Final = 10_000
"""Lines that are read before they are written."""
_AHEAD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of them, if they are more than one."""

_Item = tuple[bytes, int]
"""A message, and the bytes that it took of the input."""


class Lines:
    """Reads messages ahead.

    Args:
        stream: binary.
        skip: messages to leave out.
        lines: the name of an input of which each line is a message, without its end; empty if messages come as they are.

    Attributes:
        skipped: messages that were left out.
    """

    def __init__(
        self, stream: BinaryIO | Iterable[bytes], skip: int = 0, lines: str = "standard input"
    ) -> None:
        self._read_ahead: queue.Queue[_Item | BaseException | None] = queue.Queue(_AHEAD)
        self._bytes = 0
        self._room = threading.Condition()
        self._name = lines
        self.skipped = 0
        threading.Thread(target=self._read, args=(stream, skip), daemon=True, name="input").start()

    def _read(self, stream: BinaryIO | Iterable[bytes], skip: int) -> None:
        try:
            for number, line in enumerate(_bounded(stream), 1):
                if len(line) > MAX_MESSAGE:
                    raise ShellError(f"{self._name}: line {number}: {TOO_LONG}")
                if self.skipped < skip:
                    self.skipped += 1
                    continue
                message = line.removesuffix(b"\n").removesuffix(b"\r") if self._name else line
                with self._room:
                    self._room.wait_for(lambda: self._bytes < _AHEAD_BYTES)
                    self._bytes += len(line)
                self._read_ahead.put((message, len(line)))
        except OSError as error:
            self._read_ahead.put(ShellError(f"{self._name}: {error.strerror or error}"))
        except BaseException as error:
            self._read_ahead.put(error)
        else:
            self._read_ahead.put(None)

    def next(self, *, block: bool) -> _Item | None:
        """Return the next message, and the bytes that it took of the input; None at the end.

        Args:
            block: wait for one; a signal that came before there is one ends the wait.

        Raises:
            queue.Empty: none has been read yet.
            ShellError: the input failed, or a line has no end.
        """
        found = self._wait() if block else self._read_ahead.get(block=False)
        if isinstance(found, BaseException):
            raise found
        if found is not None:
            with self._room:
                self._bytes -= found[1]
                self._room.notify()
        return found

    def _wait(self) -> _Item | BaseException | None:
        while True:
            interrupts.check()
            with contextlib.suppress(queue.Empty):
                return self._read_ahead.get(timeout=interrupts.LOOK)


def _bounded(stream: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream, one that is too long up to a byte more than the bound; or the messages of anything else."""
    readline = getattr(stream, "readline", None)
    return iter(stream) if readline is None else iter(lambda: bytes(readline(MAX_MESSAGE + 1)), b"")


__all__ = ["MAX_MESSAGE", "TOO_LONG", "Lines"]
