"""The files of a daemon that ends without unwinding: its pid file and its unix socket."""

from __future__ import annotations

import contextlib
import os

Inode = tuple[int, int]


class Leftovers:
    """Removes the files, if they are still this process's.

    Args:
        pid_file: a path, or empty.
        unix_socket: a path, or empty.
    """

    def __init__(self, pid_file: str, unix_socket: str) -> None:
        self._paths = [path for path in (pid_file, unix_socket) if path]
        self._inodes: dict[str, Inode] = {}

    def made(self) -> None:
        """The files are there and this process's from now on; another's at the same path stays."""
        self._inodes = {path: inode for path in self._paths if (inode := _inode(path)) is not None}

    def remove(self) -> None:
        """Remove the files. It waits for nothing."""
        for path, inode in self._inodes.items():
            with contextlib.suppress(OSError):
                if _inode(path) == inode:
                    os.unlink(path)


def _inode(path: str) -> Inode | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


__all__ = ["Leftovers"]
