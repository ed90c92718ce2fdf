"""The file that names the daemon's process."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pixy.cli import COMMANDS, PROGRAMS
from pixy.errors import ConfigError

_MOST: Final = 64
"""Bytes that are read of a file in its place: a process id and an end of line are fewer."""


class PidFile:
    """The process id of the running daemon, in a file that belongs to it.

    The daemon checks the path before it starts, writes once it serves, and removes the file at its end. So a daemon that fails to start
    changes nothing, and neither another program's file nor a running daemon's is replaced.

    Args:
        path: of the file; empty for none.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: tuple[int, int] | None = None

    def check(self, *, daemons: bool = True) -> None:
        """Look whether the file can be written, and whether what is in its place may be replaced.

        Args:
            daemons: also look for another daemon that runs.

        Raises:
            ConfigError: the folder does not exist or may not be written to; the path is no regular file; its content is neither empty nor
                one number; it names another daemon that runs.
        """
        if problem := self._path and (
            _folder_problem(self._path) or _taken(self._path, _is_daemon if daemons else lambda _: False)
        ):
            raise ConfigError(f"pidFile {self._path}: {problem}")

    def write(self) -> None:
        """Check again, and write the process id. Nobody sees a half-written file.

        Raises:
            ConfigError: as :meth:`check`, and if it cannot be written.
        """
        if not self._path:
            return
        self.check()
        try:
            self._inode = _write(self._path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"pidFile {self._path}: cannot be written: {why}: choose another path"
            ) from None

    def remove(self) -> None:
        """Remove the file if it is still the one that was written, with this process's id. It waits for nothing."""
        with contextlib.suppress(OSError, ValueError):
            found = os.lstat(self._path)
            if (found.st_dev, found.st_ino) == self._inode and int(_content(self._path)) == os.getpid():
                os.unlink(self._path)


def _folder_problem(path: str) -> str:
    folder = os.path.dirname(path) or "."
    if not os.path.exists(folder):
        return f"the directory {folder} does not exist: create it, or choose another path"
    if not os.path.isdir(folder):
        return f"{folder} is no directory: choose another path"
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"no right to write to {folder}: choose a path in a directory of the daemon's user"
    return ""


def _taken(path: str, is_daemon: Callable[[int], bool]) -> str:
    """Say why what is in the file's place may not be replaced; empty if it may, or nothing is there."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return "something that is no regular file is there: choose another path"
        content = _content(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"a file is there and cannot be read: {(error.strerror or str(error)).lower()}: choose another path"
    number = content.strip()
    if not number:
        return ""
    if not number.isdigit() or len(content) >= _MOST:
        return "a file is there that holds no process id: remove it, or choose another path"
    if int(number) != os.getpid() and is_daemon(int(number)):
        return f"another daemon runs with it, process {int(number)}: stop that one, or choose another path"
    return ""


def _content(path: str) -> bytes:
    # A pipe that takes the file's place meanwhile must not hold up the daemon.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(handle, _MOST)
    finally:
        os.close(handle)


def _is_daemon(pid: int) -> bool:
    """Return whether a process is a daemon of this program. A file outlives its process, and another program may get the id.

    One whose command line is not shown counts as another program. A thread is no process, though Linux shows the command line for its id, too:
    in a container, where a daemon has the same ids at each start, an old file may name one of its own threads.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_bytes().splitlines()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if b"Tgid:\t%d" % pid not in status:
        return False
    names = (b"kafka-pixy", b"pixy.cli.main")
    at = next((at for at, word in enumerate(words[:6]) if os.path.basename(word) in names), None)
    if at is None:
        at = next((at for at, word in enumerate(words[:6]) if word.endswith(b"pixy/cli/main.py")), None)
    if at is None:
        return False
    command = words[at + 1] if at + 1 < len(words) else b""
    return os.fsdecode(command) not in {*COMMANDS, *PROGRAMS, "help"}


def _write(path: str) -> tuple[int, int]:
    """Create the file beside its place, under a name that nobody knows, and rename it."""
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(8)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            os.fchmod(handle, 0o644)
            os.write(handle, str(os.getpid()).encode())
            found = os.fstat(handle)
        finally:
            os.close(handle)
        os.rename(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    return found.st_dev, found.st_ino


__all__ = ["PidFile"]
