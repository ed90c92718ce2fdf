"""Fixtures for all tests: real brokers, and unique names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.effort import QUICK, examples
from tests.kafka.cluster import Cluster, Unavailable

settings.register_profile("quick", max_examples=examples(settings.default.max_examples))
if QUICK:
    settings.load_profile("quick")

LONGEST = ("tests/integration/pipeline/", "tests/integration/restv1/", "tests/integration/", "tests/chaos/")
"""Folders whose tests run first, in this order.

The short tests run last, so all processes end at about the same time.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow tests first: ``-n 2 --dist loadfile --no-loadscope-reorder`` distributes files in this order."""
    items.sort(
        key=lambda item: next(
            (rank for rank, folder in enumerate(LONGEST) if item.nodeid.startswith(folder)), len(LONGEST)
        )
    )


def _cluster(**options: Any) -> Iterator[Cluster]:
    try:
        made = Cluster(**options)
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"!!! NOT TESTED on real Kafka: {error} !!!")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A single broker that does not create topics automatically; shared by all tests."""
    yield from _cluster()


@pytest.fixture(scope="session")
def creating_kafka() -> Iterator[Cluster]:
    """A broker that creates topics and has the default 3 s of initial rebalance delay."""
    yield from _cluster(auto_create=True, rebalance_delay=3000)


@pytest.fixture(scope="session")
def secure_kafka() -> Iterator[Cluster]:
    """A broker with TLS and SASL listeners."""
    yield from _cluster(secure=True)


@pytest.fixture(scope="session")
def old_kafka() -> Iterator[Cluster]:
    """Kafka 3.9 on ZooKeeper."""
    yield from _cluster(zookeeper=True)


@pytest.fixture(scope="module")
def kafka3() -> Iterator[Cluster]:
    """Three brokers; topics have three replicas, of which at least two must be in sync."""
    yield from _cluster(nodes=3, heap="320m")


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"
