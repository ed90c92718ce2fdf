"""A test run that hangs says where, and ends.

pytest-timeout's signal cannot end a test whose main thread is inside C code, such as a ``close()`` of librdkafka
that never returns, and cannot end a run in which nothing reports any more. So a process that is stuck in one test
for :data:`GRACE` seconds longer than the test's own timeout prints the stacks of all its threads and exits, which
fails that test only; and a run in which no test ends for :data:`SILENCE` seconds prints the machine's memory and
processes and exits. What a process has written to stderr before it died is shown, too: an assertion of librdkafka, say.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.effort import LONG

GRACE = 60.0
"""Seconds that a test may take beyond its timeout, in which pytest-timeout ends it."""
SILENCE = 1800.0 if LONG else 600.0
"""Seconds in which some test of a run has to end."""
STUCK = 3
"""The exit code of a run in which no test ends."""


class Stuck:
    """Ends this process when a test takes too long, whatever its main thread does. A pytest plugin."""

    def __init__(self, stderr: IO[str]) -> None:
        self._stderr = stderr

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch one test, with its setup and teardown."""
        if limit := _limit(item):
            faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    value = marker.args[0] if marker and marker.args else (marker and marker.kwargs.get("timeout"))
    return float(value or item.config.getini("timeout") or 0)


class Silence:
    """Ends a run in which no test ends. A pytest plugin of the process that prints.

    Args:
        stderr: where to say so.
        seconds: how long it waits.
        end: ends the process.
    """

    def __init__(
        self, stderr: IO[str], seconds: float = SILENCE, end: Callable[[int], Any] = os._exit
    ) -> None:
        self._stderr, self._seconds, self._end = stderr, seconds, end
        self._over = threading.Event()
        self._heard = time.monotonic()
        self._last = "no test has ended"

    def pytest_sessionstart(self) -> None:
        """Begin."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test has got on."""
        self._heard, self._last = time.monotonic(), f"the last was {report.nodeid} ({report.when})"

    def pytest_unconfigure(self) -> None:
        """End."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(5.0, self._seconds / 4)):
            if time.monotonic() - self._heard > self._seconds:
                print(
                    f"\nno test has ended for {self._seconds:g} s; {self._last}\n{_machine()}",
                    file=self._stderr,
                    flush=True,
                )
                self._end(STUCK)
                return


class Outputs:
    """Lets a test's reports say where the process gathers what is written to stderr. A plugin of pytest-xdist's processes."""

    def __init__(self) -> None:
        self._path = ""

    def pytest_runtest_setup(self) -> None:
        """Find the file, which is descriptor 2 only while a test runs, among the descriptors."""
        if self._path or not stat.S_ISREG(os.fstat(2).st_mode):
            return
        for each in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if each > 2 and os.path.sameopenfile(each, 2):
                    self._path = f"/proc/{os.getpid()}/fd/{each}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Name the file."""
        report = yield
        report.stderr_path = self._path
        return report


class LastWords:
    """Shows what a process of pytest-xdist has written to stderr before it died. A plugin of the process that prints.

    pytest gathers a test's output in a file without a name, which ends with its process unless somebody else has opened it:
    nothing is shown of a process that dies before the report of its first test is read here.
    """

    def __init__(self) -> None:
        self._outputs: dict[Any, IO[bytes]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Open the file of a process that is new."""
        path, node = getattr(report, "stderr_path", ""), getattr(report, "node", None)
        if path and node not in self._outputs:
            with contextlib.suppress(OSError):
                self._outputs[node] = os.fdopen(os.open(path, os.O_RDONLY), "rb")

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Show the file with the failure of the test in which the process died."""
        output = self._outputs.pop(getattr(report, "node", None), None)
        if output is not None:
            with output:
                text = output.read()[-10_000:].decode(errors="replace")
            report.sections.append(("what the process wrote last", text))


def _machine() -> str:
    """The machine's memory and disk, and its processes with children after their parents."""
    commands = (
        ["df", "-h", "."],
        [
            "ps",
            "-ww",
            "--ppid",
            "2",
            "-p",
            "2",
            "-N",
            "-o",
            "pid,ppid,stat,rss,etimes,times,wchan:20,args",
            "--forest",
        ],
    )
    found = [Path("/proc/meminfo").read_text()] if sys.platform == "linux" else []
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
            found.append("".join(f"{line[:200]}\n" for line in done.stdout.splitlines()))
        except (OSError, subprocess.TimeoutExpired) as error:
            found.append(f"{command[0]}: {error}")
    return "\n".join(found)


def register(config: pytest.Config) -> None:
    """Watch this process, and the run if it is the one that prints."""
    # A copy, since a test's capture takes descriptor 2.
    stderr = os.fdopen(os.dup(2), "w")
    config.pluginmanager.register(Stuck(stderr), "stuck")
    if hasattr(config, "workerinput"):
        if sys.platform == "linux":
            config.pluginmanager.register(Outputs(), "outputs")
    else:
        config.pluginmanager.register(Silence(stderr), "silence")
        config.pluginmanager.register(LastWords(), "last words")


__all__ = ["GRACE", "SILENCE", "STUCK", "LastWords", "Outputs", "Silence", "Stuck", "register"]
