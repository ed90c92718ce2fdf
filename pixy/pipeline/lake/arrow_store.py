"""Read a lake elsewhere without Spark, through pyarrow's file systems."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import fs

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.layout import is_inside
from pixy.pipeline.lake.store import LocalStore, Store, is_local, local_path


class ArrowStore:
    """A read-only :class:`pixy.pipeline.lake.store.Store`; methods that write raise LakeError.

    Attributes:
        filesystem: the file system for pyarrow's readers; ``root`` is a path in it.
    """

    def __init__(self, uri: str) -> None:
        try:
            self.filesystem, root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError) as error:
            raise LakeError(f"cannot open {uri}: {error}") from error
        self.root: str = root.rstrip("/")

    def _at(self, path: str) -> str:
        if not is_inside(path):
            raise LakeError(f"{path!r} leads out of {self.root}")
        return f"{self.root}/{path}" if path else self.root

    def _info(self, path: str) -> Any:
        try:
            return self.filesystem.get_file_info(self._at(path))
        except OSError as error:
            raise LakeError(f"cannot look at {self._at(path)}: {error}") from error

    def read(self, path: str) -> bytes:
        """See Store."""
        try:
            with self.filesystem.open_input_stream(self._at(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LakeError(f"cannot read {self._at(path)}: {error}") from error

    def size(self, path: str) -> int | None:
        """See Store."""
        info = self._info(path)
        return int(info.size or 0) if info.type != fs.FileType.NotFound else None

    def _below(self, path: str, *, recursive: bool) -> list[Any]:
        try:
            return list(
                self.filesystem.get_file_info(
                    fs.FileSelector(self._at(path), recursive=recursive, allow_not_found=True)
                )
            )
        except OSError as error:
            raise LakeError(f"cannot list {self._at(path)}: {error}") from error

    def names(self, path: str) -> list[str]:
        """See Store."""
        return sorted(info.base_name for info in self._below(path, recursive=False))

    def walk(self, path: str) -> list[str]:
        """See Store."""
        return sorted(
            info.path.removeprefix(f"{self.root}/")
            for info in self._below(path, recursive=True)
            if info.type == fs.FileType.File
        )

    def publish(self, path: str, data: bytes) -> None:
        """Raise LakeError."""
        raise LakeError(f"{self._at(path)} is opened for reading, it cannot be written")

    def replace(self, path: str, data: bytes) -> None:
        """Raise LakeError."""
        self.publish(path, data)

    def move(self, source: str, target: str) -> None:
        """Raise LakeError."""
        self.publish(target, b"")

    def remove(self, path: str) -> None:
        """Raise LakeError."""
        self.publish(path, b"")


def reading_store(uri: str) -> Store:
    """Open a store to read a lake from, on this machine or elsewhere."""
    return LocalStore(local_path(uri)) if is_local(uri) else ArrowStore(uri)


def filesystem_of(store: Store) -> Any:
    """Return the file system that pyarrow's readers need besides a path; None for this machine's files."""
    return getattr(store, "filesystem", None)
