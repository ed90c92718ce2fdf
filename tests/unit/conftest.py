"""Unit tests need neither Java nor Kafka; those of the pipeline's Spark half need Spark's package."""

from __future__ import annotations

import importlib.util

WITHOUT_SPARK = importlib.util.find_spec("pyspark") is None
SPARK_HALF = [f"pipeline/{folder}/*" for folder in ("archive", "audit", "datasource", "replay", "spark")]
collect_ignore_glob = [*SPARK_HALF, "pipeline/test_*.py"] if WITHOUT_SPARK else []


def pytest_report_header() -> list[str]:
    """Say what is left out, so that nobody takes the part for the whole."""
    if not WITHOUT_SPARK:
        return []
    return [
        "pyspark is not installed: only the lake's tests of tests/unit/pipeline run; `make test` runs all"
    ]
