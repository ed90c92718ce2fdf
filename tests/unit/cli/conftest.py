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
    # The time limit of tests uses the alarm, too: a test with this fixture has tests/watchdog.py alone.
    left = signal.setitimer(signal.ITIMER_REAL, 0)
    alarm = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        with interrupts.remembered():
            yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, *left)
