"""A disk that is full: told so, and nothing half is left."""

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


def test_an_entry_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("said", ["No space left on device", "Disk quota exceeded", "File too large"])
def test_spark_s_words_for_it(said: str) -> None:
    job = Job("main", Proxy(), "/lake", Subscription(("t",)), "job")
    text = f"Job aborted.\n\tat x\nCaused by: java.io.IOException: {said}\n\tat y\n"
    assert "the disk of /lake (or Spark's temporary folder) is full" in str(explain(text, job))
    assert cause(text) == f"java.io.IOException: {said}"
