"""A full disk is named in the error, and leaves no partial file."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pixy.config import Proxy
from pixy.pipeline.archive.failures import explain
from pixy.pipeline.archive.job import Job
from pixy.pipeline.archive.subscription import Subscription
from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark.java_errors import cause


@contextmanager
def small_files(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_entry_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.replace("kept", b"old")
    for write in (store.publish, store.replace):
        with (
            small_files(1000),
            pytest.raises(LakeError, match=rf"cannot write {tmp_path}/.*: files may not be that large here"),
        ):
            write("new" if write == store.publish else "kept", b"x" * 5000)
    assert store.walk("") == ["kept"]
    assert store.read("kept") == b"old"


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded", "File too large"])
def test_spark_s_texts_are_recognized(text: str) -> None:
    job = Job("main", Proxy(), "/lake", Subscription(("t",)), "job")
    trace = f"Job aborted.\n\tat x\nCaused by: java.io.IOException: {text}\n\tat y\n"
    assert "the disk of /lake (or Spark's temporary folder) is full" in str(explain(trace, job))
    assert cause(trace) == f"java.io.IOException: {text}"
