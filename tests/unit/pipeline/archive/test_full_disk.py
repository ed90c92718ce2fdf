"""A full disk is named in the error."""

from __future__ import annotations

import pytest

from pixy.config import Proxy
from pixy.pipeline.archive.failures import explain
from pixy.pipeline.archive.job import Job
from pixy.pipeline.archive.subscription import Subscription
from pixy.pipeline.spark.java_errors import cause


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded", "File too large"])
def test_spark_s_texts_are_recognized(text: str) -> None:
    job = Job("main", Proxy(), "/lake", Subscription(("t",)), "job")
    trace = f"Job aborted.\n\tat x\nCaused by: java.io.IOException: {text}\n\tat y\n"
    assert "the disk of /lake (or Spark's temporary folder) is full" in str(explain(trace, job))
    assert cause(trace) == f"java.io.IOException: {text}"
