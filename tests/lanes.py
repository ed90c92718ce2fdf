"""How ``make test`` deals out test files to its processes (pytest-xdist).

The pipeline's tests compute, on a Spark session that takes seconds to start; the other tests on real Kafka wait
most of the time; unit tests are short. So one process begins with the pipeline, one with the tests that share three brokers
or Kafka 3.9 with ZooKeeper (:mod:`tests.kafka.shared`), one with those that share a broker that creates topics, the other with
the rest, and there is always something to compute. Unit tests come last, so that all processes end at about the same time.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]
PIPELINE = "tests/integration/pipeline/"
DEMO = f"{PIPELINE}test_demo.py"
"""Starts a Spark of its own, so any process may have it."""
LONGEST = (
    DEMO,
    "tests/chaos/test_kit.py",
    f"{PIPELINE}test_kills.py",
    f"{PIPELINE}audit/test_audit.py",
    f"{PIPELINE}datasource/test_stream.py",
    f"{PIPELINE}datasource/test_faults.py",
    f"{PIPELINE}test_bad_input.py",  # both share the broker with TLS
    PIPELINE,
    "tests/integration/tap/test_rebalances.py",
    "tests/integration/restv1/test_contract.py",
    "tests/integration/test_program.py",
    "tests/integration/test_consume.py",
    "tests/chaos/test_faults.py",
    "tests/integration/",
    "tests/chaos/",
    "tests/model/",
)
"""Files and folders whose tests run first, in this order."""
PREFERENCES = (
    ("pipeline", "waiting", "creating", "brokers", "unit"),
    ("waiting", "creating", "pipeline", "brokers", "unit"),
    ("brokers", "waiting", "creating", "unit", "pipeline"),
    ("creating", "waiting", "unit", "pipeline", "brokers"),
)
"""Which kind of files the first, the second, the third and any other process takes first, and what then."""


def rank(nodeid: str) -> int:
    """Return a test's place in the order; the lowest is the first."""
    return next((at for at, path in enumerate(LONGEST) if nodeid.startswith(path)), len(LONGEST))


@functools.cache
def shared(path: str) -> int:
    """Return which clusters a file shares: 1 for three brokers, 3 for Kafka 3.9, 2 for both, 0 for none. In this order each is started once."""
    text = (ROOT / path).read_text()
    return {(True, False): 1, (True, True): 2, (False, True): 3}.get(
        ("kafka3: Cluster" in text, "old_kafka" in text), 0
    )


@functools.cache
def kind(path: str) -> str:
    """Return a file's kind, as :data:`PREFERENCES` names it."""
    if shared(path):
        return "brokers"
    if path.startswith(PIPELINE) and path != DEMO:
        return "pipeline"
    if "creating_kafka: Cluster" in (ROOT / path).read_text():
        return "creating"
    return "unit" if rank(path) == len(LONGEST) else "waiting"


class Lanes(LoadFileScheduling):  # type: ignore[misc]
    """Deals out whole files in their order, to each process of the kind that it prefers."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        preference = PREFERENCES[min(self.nodes.index(node), len(PREFERENCES) - 1)]
        first = min(self.workqueue, key=lambda path: (preference.index(kind(path)), shared(path)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """Make the scheduler of ``--dist loadfile``; None leaves it to pytest-xdist."""
    return Lanes(config, log) if config.getvalue("dist") == "loadfile" else None


__all__ = ["Lanes", "kind", "rank", "scheduler", "shared"]
