"""Store a lake's files: read, list, publish atomically. Paths are relative to the lake, with ``/``."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from pixy.pipeline.errors import LakeError, Published
from pixy.pipeline.lake.layout import is_inside


class Store(Protocol):
    """A folder on some file system. Its errors are LakeError and name the path."""

    root: str
    """Path or URI of the folder, as Spark and pyarrow open it."""

    def read(self, path: str) -> bytes:
        """Read a file; raises FileNotFoundError."""

    def size(self, path: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; empty if it does not exist."""

    def walk(self, path: str) -> list[str]:
        """Sorted paths of all files below a folder."""

    def publish(self, path: str, data: bytes) -> None:
        """Create a file whole or not at all, synced to disk before others see it.

        Args:
            path: the file.
            data: its content.

        Raises:
            Published: the file exists.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file, whole or not at all."""

    def move(self, source: str, target: str) -> None:
        """Rename a file; replace an older one, and create missing folders."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its contents; ignore a missing one."""


class LocalStore:
    """A folder of this machine's file systems."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).resolve())

    def _at(self, path: str) -> Path:
        if not is_inside(path):
            raise LakeError(f"{path!r} leads out of {self.root}")
        return Path(self.root, path)

    def read(self, path: str) -> bytes:
        """See Store."""
        try:
            return self._at(path).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LakeError(f"cannot read {self._at(path)}: {error.strerror}") from error

    def size(self, path: str) -> int | None:
        """See Store."""
        try:
            return self._at(path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, path: str) -> list[str]:
        """See Store."""
        try:
            return sorted(os.listdir(self._at(path)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LakeError(f"cannot list {self._at(path)}: {error.strerror}") from error

    def walk(self, path: str) -> list[str]:
        """See Store."""
        found = []
        for folder, _, names in os.walk(self._at(path)):
            found += [os.path.relpath(os.path.join(folder, name), self.root) for name in names]
        return sorted(found)

    def publish(self, path: str, data: bytes) -> None:
        """See Store."""
        self._put(path, data, exclusive=True)

    def replace(self, path: str, data: bytes) -> None:
        """See Store."""
        self._put(path, data, exclusive=False)

    def _put(self, path: str, data: bytes, *, exclusive: bool) -> None:
        target = self._at(path)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if exclusive:
                os.link(draft, target)  # as atomic as a rename, and fails if the target exists
            else:
                os.replace(draft, target)
            _sync_folder(target.parent)
        except FileExistsError as error:
            raise Published(f"{target} exists already: another process writes to this lake") from error
        except OSError as error:
            raise _failed("write", target, error) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def move(self, source: str, target: str) -> None:
        """See Store. The file's bytes are synced to disk first."""
        at = self._at(target)
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            with self._at(source).open("rb") as file:
                os.fsync(file.fileno())
            os.replace(self._at(source), at)
            _sync_folder(at.parent)
        except OSError as error:
            raise _failed("move a file to", at, error) from error

    def remove(self, path: str) -> None:
        """See Store."""
        at = self._at(path)
        try:
            if at.is_dir():
                shutil.rmtree(at, ignore_errors=True)
            else:
                at.unlink(missing_ok=True)
        except OSError as error:
            raise _failed("remove", at, error) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failed(what: str, path: Path, error: OSError) -> LakeError:
    hint = {
        errno.ENOSPC: ": the disk is full",
        errno.EDQUOT: ": the disk's quota is used up",
        errno.EFBIG: ": files may not be that large here",
    }.get(error.errno or 0, "")
    return LakeError(f"cannot {what} {path}{hint} ({error.strerror})")


def is_local(uri: str) -> bool:
    """Tell whether a lake's name is a path on this machine."""
    return urlsplit(uri).scheme in ("", "file")


def local_path(uri: str) -> str:
    """Return the path of a local lake's name, which may be a ``file:`` URI."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri
