"""The files of a daemon that ends without unwinding: its pid file and its unix socket."""

from __future__ import annotations

import contextlib
import os

from pixy.cli.pid_file import PidFile

Inode = tuple[int, int]


class Leftovers:
    """Removes the files, if they are still this process's.

    Args:
        pid_file: it knows whether it was written.
        unix_socket: a path, or empty.
    """

    def __init__(self, pid_file: PidFile, unix_socket: str) -> None:
        self._pid_file = pid_file
        self._socket = unix_socket
        self._inode: Inode | None = None

    def made(self) -> None:
        """Note that the socket is there, and this process's: another one at the same path is not removed."""
        self._inode = _inode(self._socket)

    def remove(self) -> None:
        """Remove the files. It waits for nothing."""
        self._pid_file.remove()
        if self._inode is not None and _inode(self._socket) == self._inode:
            with contextlib.suppress(OSError):
                os.unlink(self._socket)


def _inode(path: str) -> Inode | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


__all__ = ["Leftovers"]
