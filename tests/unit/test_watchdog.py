"""A run that hangs says where, and ends: runs of pytest in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

CONFTEST = """
from tests import watchdog

watchdog.GRACE = 1.0


def pytest_configure(config):
    watchdog.register(config)
    if silence := config.pluginmanager.get_plugin("silence"):
        silence._seconds = SILENCE
"""
BLOCKED = """
import ctypes, signal, pytest


@pytest.mark.timeout(1)
def test_blocked():
    '''Signals of Python are handled between two bytecodes only.'''
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.CDLL(None).sleep(60)


def test_next():
    pass
"""
ABORTED = """
import os, time


def test_first():
    pass


def test_aborts():
    folder, until = f"/proc/{os.getppid()}/fd", time.monotonic() + 30

    def is_read():
        files = [os.path.join(folder, each) for each in os.listdir(folder)]
        return any(os.path.exists(file) and os.path.samestat(os.stat(file), os.fstat(2)) for file in files)

    while not is_read() and time.monotonic() < until:
        time.sleep(0.01)
    os.write(2, b"rdkafka.c:1: assert: all is well")
    os.abort()
"""
SILENT = """
import time, pytest


def test_passes():
    pass


@pytest.mark.timeout(0)
def test_sleeps():
    time.sleep(60)
"""


def run(folder: Path, text: str, silence: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.replace("SILENCE", str(silence)))
    (folder / "test_it.py").write_text(text)
    plugins = ("-p", "no:schemathesis", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(folder), *arguments, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_a_test_that_is_stuck_in_c_fails_with_its_stack(tmp_path: Path) -> None:
    done = run(tmp_path, BLOCKED, 100.0, "-n", "1")
    assert "test_it.py::test_blocked" in done.stdout and "1 failed" in done.stdout, done.stdout
    assert "in test_blocked" in done.stderr + done.stdout, done.stderr


@pytest.mark.slow
def test_a_process_that_aborts_has_said_why(tmp_path: Path) -> None:
    done = run(tmp_path, ABORTED, 100.0, "-n", "1")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "rdkafka.c:1: assert: all is well" in done.stdout


@pytest.mark.slow
def test_a_run_in_which_nothing_ends_says_what_the_machine_does(tmp_path: Path) -> None:
    done = run(tmp_path, SILENT, 3.0)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "no test has ended for 3 s; the last was test_it.py::test_sleeps (setup)" in done.stderr
    assert "MemAvailable" in done.stderr and "-m pytest" in done.stderr
