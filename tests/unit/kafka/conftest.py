"""A producer that does what a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pixy.kafka import delivery_thread
from tests.unit.kafka.scripted_producer import Library


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Library]]:
    """The class that makes the producers of this test."""

    class Fresh(Library):
        made, refusals, stubborn, destroyed_by, deadly = [], 0, False, [], set()

    monkeypatch.setattr(delivery_thread, "Producer", Fresh)
    monkeypatch.setattr(delivery_thread, "_MAKE_EVERY", 0.01)
    monkeypatch.setattr(delivery_thread, "_HURRIED_PAUSE", 0.01)
    yield Fresh
    Fresh.made.clear()
