"""One cluster for the test modules that a process runs one after another.

A broker takes 2.6 s of processor to start, and as much for each 90 s in which it only runs; three take 10.6 s, and 10 s in
90 s. So the modules that use three brokers, or Kafka 3.9 with ZooKeeper, run in one process, next to each other
(:mod:`tests.lanes`); what one of them has stopped is started for the next, and a cluster ends with the last module in the
row that uses it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster


class Shared:
    """A cluster that is made for the first test that wants it.

    Args:
        fixture: the name of the fixture that gives it out.
        make: makes it.
    """

    def __init__(self, fixture: str, make: Callable[[], Cluster]) -> None:
        self.fixture, self._make = fixture, make
        self._cluster: Cluster | None = None
        self._modules: frozenset[Path] | None = None

    def get(self) -> Cluster:
        """The cluster, with all of its brokers."""
        if self._cluster is None:
            self._cluster = self._make()
        elif not heal(self._cluster):
            self.close()
            self._cluster = self._make()
        return self._cluster

    def close_unless_next(self, session: pytest.Session, following: pytest.Item | None) -> None:
        """Stop it if the next test of this process is in a module that does not use it."""
        if self._cluster is None:
            return
        if self._modules is None:
            # By the text: some tests get the fixture by request.getfixturevalue.
            self._modules = frozenset(
                path for path in {item.path for item in session.items} if self.fixture in path.read_text()
            )
        if following is None or following.path not in self._modules:
            self.close()

    def close(self) -> None:
        """Stop it."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


def heal(cluster: Cluster) -> bool:
    """Start the brokers that do not run, and let the frozen ones go on; return whether all are members again."""
    try:
        for node in cluster.ports:
            if cluster.running(node):
                cluster.signal(node, signal.SIGCONT)
            else:
                cluster.start(node)
        cluster.wait_ready()
    except RuntimeError:
        return False
    return True


__all__ = ["Shared", "heal"]
