"""Names of a lake's folder for the programs that open it: delta-rs, pyarrow and Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.fs
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.layout import is_inside

_FOR_SPARK: Final = {"s3": "s3a", "az": "abfss", "gcs": "gs"}
_FOR_DELTA: Final = {"s3a": "s3", "s3n": "s3"}
_UNSAFE: Final = "aws_s3_allow_unsafe_rename"
_LOCKS: Final = ("aws_conditional_put", "aws_s3_locking_provider")
"""What makes a commit on S3 a compare-and-set: a conditional put, or a table of DynamoDB."""


def is_local(uri: str) -> bool:
    """Tell whether a lake's name is a path on this machine."""
    return urlsplit(uri).scheme in ("", "file")


def local_path(uri: str) -> str:
    """Return the path of a local lake's name, which may be a ``file:`` URI."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


class Location:
    """A folder on this machine or on a store.

    Args:
        uri: a path, or a URI: ``s3a://``, ``abfss://``, ``gs://``, ``hdfs://``.
        options: of delta-rs for the store; it also reads the store's usual variables of the environment.

    Attributes:
        root: the folder as people name it, and delta-rs opens it.
        local: whether it is a path of this machine.

    Raises:
        LakeError: the name is empty, or neither a path nor a URI.
    """

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        _check_name(uri)
        self.local = is_local(uri)
        self.options = dict(options or {})
        if self.local:
            self.root = str(Path(local_path(uri)).resolve())
        else:
            scheme, _, rest = uri.rstrip("/").partition("://")
            self.root = f"{_FOR_DELTA.get(scheme, scheme)}://{rest}"
            if self.root.startswith("s3://"):
                self.options = _with_conditional_put(self.options)
        self._filesystem: Any = None

    def at(self, path: str) -> str:
        """Name a file for people and for delta-rs; raises LakeError if the path leads out of the folder."""
        if not is_inside(path):
            raise LakeError(f"{path!r} leads out of {self.root}")
        return f"{self.root}/{path}" if path else self.root

    def check_writable(self) -> None:
        """Raise LakeError if the folder cannot be created, or not be written. A store is not asked."""
        if not self.local:
            return
        folder = Path(self.root)
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir():
            raise LakeError(f"cannot write to {self.root}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise LakeError(f"cannot write to {self.root}: {there} may not be written")

    def for_spark(self, path: str) -> str:
        """Name a file for Spark. A local one without a scheme would be one of the cluster's default file system."""
        if self.local:
            return f"file://{self.at(path)}"
        scheme, _, rest = self.at(path).partition("://")
        return f"{_FOR_SPARK.get(scheme, scheme)}://{rest}"

    @property
    def filesystem(self) -> Any:
        """The file system for pyarrow's readers; None for this machine's files."""
        if not self.local and self._filesystem is None:
            try:
                self._filesystem = pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.root, self.options))
            except TableNotFoundError as error:  # delta-rs's word for a scheme that it does not know
                raise LakeError(
                    f"cannot open {self.root}: there is no store for {self.root.partition('://')[0]}://"
                ) from error
            except (OSError, ValueError, DeltaError) as error:
                raise LakeError(f"cannot open {self.root}: {error}") from error
        return self._filesystem

    def for_arrow(self, path: str) -> str:
        """Name a file for pyarrow, within :attr:`filesystem`."""
        return self.at(path) if self.local else path

    def read(self, path: str) -> bytes:
        """Read a file; raises FileNotFoundError, or LakeError if the store does not answer."""
        try:
            with self._any_filesystem().open_input_stream(self.for_arrow(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LakeError(f"cannot read {self.at(path)}: {error}") from error

    def move(self, source: str, target: str) -> None:
        """Rename a file; replace an older one."""
        try:
            self._any_filesystem().move(self.for_arrow(source), self.for_arrow(target))
        except OSError as error:
            raise LakeError(f"cannot move {self.at(source)} to {self.at(target)}: {error}") from error

    def _any_filesystem(self) -> Any:
        return self.filesystem or pyarrow.fs.LocalFileSystem()

    def files(self, path: str) -> list[tuple[str, int]]:
        """List the files below a folder, with their sizes; empty if it does not exist.

        Raises:
            LakeError: the store does not answer.
        """
        base = self.for_arrow(path)
        try:
            found = self._any_filesystem().get_file_info(
                pyarrow.fs.FileSelector(base, recursive=True, allow_not_found=True)
            )
        except OSError as error:
            raise LakeError(f"cannot list {self.at(path)}: {error}") from error
        prefix = f"{self.root}/" if self.local else ""
        return sorted(
            (info.path.removeprefix(prefix), int(info.size or 0))
            for info in found
            if info.type == pyarrow.fs.FileType.File
        )

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        try:
            info = self._any_filesystem().get_file_info(self.for_arrow(path))
        except OSError as error:
            raise LakeError(f"cannot look at {self.at(path)}: {error}") from error
        return int(info.size or 0) if info.type == pyarrow.fs.FileType.File else None


def _check_name(uri: str) -> None:
    if not uri:
        raise LakeError("the name of the lake is empty: give a folder or a URI")
    if not is_local(uri):
        if not uri.partition("://")[2].strip("/"):
            raise LakeError(f"{uri} is neither a folder nor a URI such as s3a://bucket/lake")
    elif urlsplit(uri).netloc not in ("", "localhost"):
        raise LakeError(
            f"{uri} names a host, not a folder: the URI of a folder has three slashes, as in file:///lake"
        )


def _with_conditional_put(options: dict[str, str]) -> dict[str, str]:
    """Add the option that lets one of two writers fail; refuse the one that lets both succeed."""
    given = {name.lower(): value for name, value in (*os.environ.items(), *options.items())}
    if given.get(_UNSAFE, "").lower() in ("1", "true"):
        raise LakeError(
            f"{_UNSAFE.upper()} lets two writers of a lake overwrite each other's commits: remove it; stores "
            "with conditional puts need nothing in its place"
        )
    return options if any(name in given for name in _LOCKS) else {**options, "aws_conditional_put": "etag"}
