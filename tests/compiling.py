"""In a fresh clone one process of pytest-xdist compiles all test modules and what they import, while the others wait.

Each process collects all tests. Side by side each would compile the same modules: ten seconds of processor more, in each.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCK = "PIXY_TEST_COMPILING"
"""The environment variable with the path of the lock; set in a fresh clone only."""
_held: IO[str] | None = None


def begin(config: pytest.Config, folder: Path = ROOT / "build") -> None:
    """Look, in the process that starts the others, whether the tests are compiled."""
    if hasattr(config, "workerinput"):
        return
    os.environ.pop(LOCK, None)
    if sys.dont_write_bytecode:  # nobody would find what the first compiles
        return
    if not any((ROOT / "tests" / "unit" / "wire" / "__pycache__").glob("test_*.pyc")):
        folder.mkdir(exist_ok=True)
        os.environ[LOCK] = str(folder / "compiling.lock")


def wait_for_first() -> None:
    """Return at once in the first process that comes here; in others when it has called :func:`done`."""
    global _held
    if path := os.environ.get(LOCK):
        lock = Path(path).open("w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _held = lock
        except BlockingIOError:
            with lock:
                fcntl.flock(lock, fcntl.LOCK_SH)


def done() -> None:
    """Let the others go on."""
    global _held
    if _held is not None:
        with contextlib.suppress(OSError):
            _held.close()
        _held = None


__all__ = ["LOCK", "begin", "done", "wait_for_first"]
