"""Unit tests need neither Java nor Kafka, and Spark's package for these few modules only."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEED_PYSPARK = [
    "pipeline/archive/test_batch.py",
    "pipeline/archive/test_delta.py",
    "pipeline/archive/test_full.py",
    "pipeline/audit/test_sequences.py",
    "pipeline/datasource/test_options.py",
    "pipeline/datasource/test_plan.py",
    "pipeline/datasource/test_reading.py",
    "pipeline/datasource/test_stream_planner.py",
    "pipeline/test_jobs.py",
]
WITHOUT_SPARK = importlib.util.find_spec("pyspark") is None
collect_ignore = NEED_PYSPARK if WITHOUT_SPARK else []


def pytest_report_header() -> list[str]:
    """Say what is left out, so that nobody takes the part for the whole."""
    if not WITHOUT_SPARK:
        return []
    return [f"pyspark is not installed: {len(NEED_PYSPARK)} modules left out; `make test` runs them"]


def pytest_configure(config: pytest.Config) -> None:
    """A name that does not exist would hide a module that is collected by another name."""
    missing = [name for name in NEED_PYSPARK if not (HERE / name).exists()]
    if missing:
        raise pytest.UsageError(f"tests/unit/conftest.py names modules that do not exist: {missing}")
