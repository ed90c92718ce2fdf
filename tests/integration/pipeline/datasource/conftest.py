"""Topics that the data source's tests share; tests only read them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.integration.pipeline import oddities
from tests.integration.pipeline.support import World
from tests.kafka.cluster import Cluster


def _world(spark: Any, kafka: Cluster, factory: pytest.TempPathFactory) -> World:
    return World(spark, kafka, factory.mktemp("topics"))


@pytest.fixture(scope="package")
def everything(spark: Any, kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic with every oddity, see :func:`oddities.everything`."""
    name = f"t{uuid.uuid4().hex[:12]}"
    oddities.everything(_world(spark, kafka, tmp_path_factory), name)
    return name


@pytest.fixture(scope="package")
def ten_records(spark: Any, kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic with five records in each of two partitions."""
    name = kafka.create_topic(f"t{uuid.uuid4().hex[:12]}", 2)
    _world(spark, kafka, tmp_path_factory).produce(name, 10, 2)
    return name
