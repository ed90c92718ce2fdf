"""What all connections of an event loop share for forwarding: the read buffer, and the pipes for ``splice``."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from pixy.tap.queueing import Turns

BUFFER: Final = 256 * 1024
"""Bytes of one read, at most. A direction holds no more than this, except for a response that is being rewritten."""

_PIPE: Final = 1024 * 1024
_MAX_PIPES: Final = 64
"""Pipes of all connections; one is in use only while a receiver has not accepted what is in it. Others copy then."""

Pipe = tuple[int, int]


class SharedBuffer:
    """The read buffer and the pipes that all connections of an event loop share."""

    def __init__(self, size: int = BUFFER) -> None:
        self.view = memoryview(bytearray(size))
        self.turns = Turns()
        self._free: list[Pipe] = []
        self._pipes = 0
        self._splices = hasattr(os, "splice")

    def take_pipe(self) -> Pipe | None:
        """Return an empty pipe; None if there is none, and bytes must be copied."""
        if self._free:
            return self._free.pop()
        if not self._splices or self._pipes >= _MAX_PIPES:
            return None
        try:
            made = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # no file descriptor is left: copying needs none
            return None
        self._pipes += 1
        with contextlib.suppress(OSError):  # more than the user may have
            fcntl.fcntl(made[0], fcntl.F_SETPIPE_SZ, _PIPE)
        return made

    def give_pipe(self, pipe: Pipe, *, empty: bool) -> None:
        """Take a pipe back; close it if something is left in it."""
        if empty and self._splices:
            self._free.append(pipe)
            return
        self._pipes -= 1
        for each in pipe:
            os.close(each)

    def refuse_pipes(self) -> None:
        """Copy from now on, because the kernel refuses to splice these sockets."""
        self.close()

    def close(self) -> None:
        """Close the pipes; those in use when they are given back."""
        self._splices = False
        while self._free:
            self.give_pipe(self._free.pop(), empty=False)


__all__ = ["BUFFER", "Pipe", "SharedBuffer"]
