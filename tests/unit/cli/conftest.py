"""What tests of commands share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pixy.cli.shell import interrupts


@pytest.fixture
def signals() -> Iterator[None]:
    """Watches for signals as a command does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interrupts.remembered():
            yield
    finally:
        signal.signal(signal.SIGINT, before)
