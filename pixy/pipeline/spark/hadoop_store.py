"""Store a lake on any file system of Hadoop, through the JVM of a Spark session."""

from __future__ import annotations

import uuid
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pixy.pipeline.errors import LakeError, Published
from pixy.pipeline.lake.layout import is_inside
from pixy.pipeline.lake.store import LocalStore, Store, is_local, local_path


class HadoopStore:
    """A :class:`pixy.pipeline.lake.store.Store` on a file system of Hadoop.

    Args:
        spark: the session.
        root: URI of the folder.

    Raises:
        LakeError: Hadoop does not know the file system, or cannot open it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        jvm: Any = spark._jvm
        self._jvm = jvm
        path = jvm.org.apache.hadoop.fs.Path(self.root)
        conf = spark._jsc.hadoopConfiguration()
        try:
            self._fs = path.getFileSystem(conf)
            self._context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), conf)
        except Py4JJavaError as error:
            raise LakeError(f"cannot open {root}: {_text(error)}") from error

    def _at(self, path: str) -> Any:
        if not is_inside(path):
            raise LakeError(f"{path!r} leads out of {self.root}")
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{path}" if path else self.root)

    def read(self, path: str) -> bytes:
        """See Store."""
        if self.size(path) is None:
            raise FileNotFoundError(f"{self.root}/{path}")
        try:
            stream = self._fs.open(self._at(path))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise self._failed("read", path, error) from error

    def size(self, path: str) -> int | None:
        """See Store."""
        try:
            return int(self._fs.getFileStatus(self._at(path)).getLen())
        except Py4JJavaError as error:
            if "FileNotFound" in error.java_exception.getClass().getName():
                return None
            raise self._failed("look at", path, error) from error

    def names(self, path: str) -> list[str]:
        """See Store."""
        if self.size(path) is None:
            return []
        try:
            return sorted(each.getPath().getName() for each in self._fs.listStatus(self._at(path)))
        except Py4JJavaError as error:
            raise self._failed("list", path, error) from error

    def walk(self, path: str) -> list[str]:
        """See Store."""
        if self.size(path) is None:
            return []
        found = []
        base = self._fs.makeQualified(self._at("")).toString().rstrip("/") + "/"
        each = self._fs.listFiles(self._at(path), True)
        while each.hasNext():
            found.append(each.next().getPath().toString().removeprefix(base))
        return sorted(found)

    def publish(self, path: str, data: bytes) -> None:
        """See Store. FileContext's rename fails if the target exists."""
        self._put(path, data, exclusive=True)

    def replace(self, path: str, data: bytes) -> None:
        """See Store."""
        self._put(path, data, exclusive=False)

    def _put(self, path: str, data: bytes, *, exclusive: bool) -> None:
        folder, _, name = path.rpartition("/")
        draft = self._at(f"{folder}/.{name}.{uuid.uuid4().hex}" if folder else f".{name}.{uuid.uuid4().hex}")
        try:
            stream = self._fs.create(draft)
            stream.write(data)
            if hasattr(stream, "hsync"):
                stream.hsync()
            stream.close()
            self._rename(draft, self._at(path), overwrite=not exclusive)
        except Py4JJavaError as error:
            self._fs.delete(draft, False)
            if "FileAlreadyExists" in error.java_exception.getClass().getName():
                raise Published(
                    f"{self.root}/{path} exists already: another process writes to this lake"
                ) from error
            raise self._failed("write", path, error) from error

    def _rename(self, source: Any, target: Any, *, overwrite: bool) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._array(rename.OVERWRITE if overwrite else rename.NONE)
        self._context.rename(source, target, options)

    def _array(self, option: Any) -> Any:
        gateway: Any = SparkContext._gateway
        array = gateway.new_array(self._jvm.org.apache.hadoop.fs.Options.Rename, 1)
        array[0] = option
        return array

    def move(self, source: str, target: str) -> None:
        """See Store."""
        try:
            self._fs.mkdirs(self._at(target).getParent())
            self._rename(self._at(source), self._at(target), overwrite=True)
        except Py4JJavaError as error:
            raise self._failed("move a file to", target, error) from error

    def remove(self, path: str) -> None:
        """See Store."""
        try:
            self._fs.delete(self._at(path), True)
        except Py4JJavaError as error:
            raise self._failed("remove", path, error) from error

    def _failed(self, what: str, path: str, error: Py4JJavaError) -> LakeError:
        return LakeError(f"cannot {what} {self.root}/{path}: {_text(error)}")


def _text(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString())


def store_for(uri: str, spark: SparkSession | None) -> Store:
    """Open the store of a lake, on this machine or elsewhere.

    Args:
        uri: a path, or a URI of a Hadoop file system.
        spark: the session; None is enough for a lake on this machine.

    Raises:
        LakeError: the lake is elsewhere and there is no session, or Hadoop cannot open it.
    """
    if is_local(uri):
        return LocalStore(local_path(uri))
    if spark is None:
        raise LakeError(f"{uri} is not on this machine: only a job with Spark can open it")
    return HadoopStore(spark, uri)
