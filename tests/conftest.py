"""Fixtures for all tests: real brokers, and unique names."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import compiling, lanes, times, watchdog
from tests.effort import QUICK, examples, is_in_share
from tests.kafka.cluster import Cluster, Unavailable
from tests.kafka.shared import Shared

settings.register_profile(
    "tests",
    max_examples=examples(settings.default.max_examples),
    # Both would be assertions on wall-clock time.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the objects of imports and of thousands of collected tests out of garbage collections, each of which would visit them."""
    gc.disable()
    compiling.wait_for_first()
    try:
        return (yield)
    finally:
        compiling.done()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave files to the other processes of ``make check``."""
    return True if collection_path.match("test_*.py") and not is_in_share(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put slow tests first: ``--dist loadfile --no-loadscope-reorder`` deals out files in this order. Leave some out in the quick mode."""
    items.sort(key=lambda item: lanes.rank(item.nodeid))
    if QUICK:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> lanes.Lanes | None:
    """Deal out files as :mod:`tests.lanes` says."""
    return lanes.scheduler(config, log)


PROCESSORS = pytest.StashKey[times.Processors]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure, and to watch."""
    compiling.begin(config)
    watchdog.register(config)
    if os.environ.get(times.FILE) and sys.platform == "linux":
        config.pluginmanager.register(times.Costs(), "costs")
    config.stash[PROCESSORS] = times.Processors()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the times of all tests down, if a file is named for them (:mod:`tests.times`)."""
    if path := os.environ.get(times.FILE):
        reports = (report for found in terminalreporter.stats.values() for report in found)
        lines = (*times.lines(reports), config.stash[PROCESSORS].line())
        Path(path).write_text("".join(f"{line}\n" for line in lines))


def _made(**options: Any) -> Cluster:
    try:
        return Cluster(brief=True, **options)
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"!!! NOT TESTED on real Kafka: {error} !!!")


def _cluster(**options: Any) -> Iterator[Cluster]:
    made = _made(**options)
    try:
        yield made
    finally:
        made.close()


KIP_848 = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}
"""A broker's defaults are 45 s, after which it takes the partitions of a dead member, and 5 s."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A single broker that does not create topics automatically; shared by all tests."""
    yield from _cluster(properties=KIP_848)


SHARED = {
    each.fixture: each
    for each in (
        Shared("kafka3", lambda: _made(nodes=3, heap="320m")),
        Shared("old_kafka", lambda: _made(zookeeper=True)),
        Shared("creating_kafka", lambda: _made(auto_create=True, rebalance_delay=3000)),
        Shared("secure_kafka", lambda: _made(secure=True)),
    )
}


@pytest.fixture(scope="module")
def kafka3() -> Cluster:
    """Three brokers; topics have three replicas, of which at least two must be in sync. A test may stop brokers."""
    return SHARED["kafka3"].get()


@pytest.fixture(scope="module")
def old_kafka() -> Cluster:
    """Kafka 3.9 on ZooKeeper."""
    return SHARED["old_kafka"].get()


@pytest.fixture(scope="module")
def creating_kafka() -> Cluster:
    """A broker that creates topics and has the default 3 s of initial rebalance delay."""
    return SHARED["creating_kafka"].get()


@pytest.fixture(scope="module")
def secure_kafka() -> Cluster:
    """A broker with TLS and SASL listeners."""
    return SHARED["secure_kafka"].get()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop clusters after the last module in the row that uses them."""
    for shared in SHARED.values():
        shared.close_unless_next(item.session, nextitem)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"
