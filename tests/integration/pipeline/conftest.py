"""Real Spark on real Kafka: the tests of all folders below share one session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pipeline.support import FAST_START, World
from tests.kafka.cluster import Cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pixy.pipeline.errors import SetupError
    from pixy.pipeline.spark import jars
    from pixy.pipeline.spark.session import open_session

    try:
        jars.install()
        jars.install_delta()
    except SetupError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"!!! NOT TESTED on real Spark: {error} !!!")
    for key, value in FAST_START.items():
        os.environ.setdefault(key, value)
    session = open_session(
        "tests",
        "local[2]",
        delta="",  # as readers of the table, and to read tables of other programs
        settings=[
            "spark.driver.memory=1g",
            "spark.sql.shuffle.partitions=2",
            "spark.default.parallelism=2",
        ],
    )
    yield session
    session.stop()


@pytest.fixture
def world(spark: Any, kafka: Cluster, tmp_path: Path) -> World:
    """A cluster, a Spark session, and a folder for lakes."""
    return World(spark, kafka, tmp_path)
