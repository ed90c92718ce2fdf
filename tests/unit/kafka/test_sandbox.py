"""The embedded sandbox."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from pixy.kafka.sandbox import Sandbox


def _blocked() -> dict[str, int]:
    """The signals that each thread of this process has blocked, as a mask."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            status = (task / "status").read_text().splitlines()
            line = next(line for line in status if line.startswith("SigBlk"))
            found[task.name] = int(line.split()[1], 16)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_signal_reaches_the_sandboxs_threads() -> None:
    """The mock cluster ends when SIGHUP, which reloads, interrupts its thread."""
    before = _blocked()
    sandbox = Sandbox()
    after = _blocked()
    assert sandbox.seed_peers
    started = [mask for thread, mask in after.items() if thread not in before]
    wanted = 1 << (signal.SIGHUP - 1)
    assert started and all(mask & wanted for mask in started), started
    ours = str(threading.get_native_id())
    assert after[ours] == before[ours], "the thread that starts it keeps its own"
