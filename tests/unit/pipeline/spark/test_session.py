"""Settings of a Spark session."""

from __future__ import annotations

import os
import sys

import pytest

from pixy.pipeline.spark import session
from pixy.pipeline.spark.session import _with_delta


def test_settings_of_delta_are_added_to_the_given_ones() -> None:
    found = _with_delta({"spark.sql.extensions": "a.B", "spark.databricks.delta.snapshotPartitions": "9"})
    assert found["spark.sql.extensions"] == "a.B,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.databricks.delta.snapshotPartitions"] == "9"
    assert found["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    assert _with_delta(found)["spark.sql.extensions"] == found["spark.sql.extensions"]


@pytest.mark.parametrize(
    ("settings", "python"),
    [([], sys.executable), (["spark.pyspark.python=/opt/pixy/bin/python"], "/opt/pixy/bin/python")],
    ids=["the driver's", "named"],
)
def test_executors_have_the_python_that_is_named_or_the_driver_s(
    monkeypatch: pytest.MonkeyPatch, settings: list[str], python: str
) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(session.jars, "check_java", lambda: 17)
    monkeypatch.setattr(session.jars, "find", lambda _folder: [])
    monkeypatch.setattr(session, "_start", lambda *_: None)
    session.open_session("test", "spark://host:7077", settings=settings)
    assert os.environ["PYSPARK_PYTHON"] == python


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [([], "120s"), (["spark.python.authenticate.socketTimeout=7s"], "7s")],
    ids=["usual", "given"],
)
def test_python_and_java_have_time_to_connect_unless_a_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, settings: list[str], seconds: str
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(session.jars, "check_java", lambda: 17)
    monkeypatch.setattr(session.jars, "find", lambda _folder: [])
    started: list[dict[str, str]] = []
    monkeypatch.setattr(session, "_start", lambda chosen, *_: started.append(chosen))
    session.open_session("test", "local[1]", settings=settings)
    assert started[0]["spark.python.authenticate.socketTimeout"] == seconds
