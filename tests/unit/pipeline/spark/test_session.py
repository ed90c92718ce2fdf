"""Settings of a Spark session."""

from __future__ import annotations

from pixy.pipeline.spark.session import _with_delta


def test_settings_of_delta_are_added_to_the_given_ones() -> None:
    found = _with_delta({"spark.sql.extensions": "a.B", "spark.databricks.delta.snapshotPartitions": "9"})
    assert found["spark.sql.extensions"] == "a.B,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.databricks.delta.snapshotPartitions"] == "9"
    assert found["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    assert _with_delta(found)["spark.sql.extensions"] == found["spark.sql.extensions"]
