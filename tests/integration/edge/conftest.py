"""A stand-in for Kafka: the edge comes before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pixy.config import App
from pixy.kafka.sandbox import Sandbox
from tests.support import make_config


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One for the tests of a module."""
    yield Sandbox()


@pytest.fixture
def config(sandbox: Sandbox) -> App:
    """A daemon on it."""
    return make_config(sandbox.seed_peers)
