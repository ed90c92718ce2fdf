"""The file that names the daemon's process."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """Write the process id to a file for as long as the context lasts.

    A symbolic link in its place is replaced, not followed: in a folder that others may write to, it could lead to any
    file of the daemon's user. At the end only a file that is still this one is removed.

    Args:
        path: of the file; empty: write none.

    Raises:
        OSError: it cannot be written.
    """
    if not path:
        yield
        return
    inode = _write(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if (found.st_dev, found.st_ino) == inode:
                os.unlink(path)


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
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise OSError(error.errno, f"cannot write the pid file: {error.strerror}", path) from None
    return found.st_dev, found.st_ino


__all__ = ["pid_file"]
