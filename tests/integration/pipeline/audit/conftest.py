"""One Spark for all the audit's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pixy.pipeline.errors import SetupError
from pixy.pipeline.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    try:
        session = open_session("tests", "local[2]", settings=["spark.sql.shuffle.partitions=2"])
    except SetupError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"!!! NOT TESTED with Spark: {error} !!!")
    yield session
    session.stop()
