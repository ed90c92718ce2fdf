"""How long the tests of a run took: ``make test-times`` prints a table, and compares it with an earlier run's.

With the environment variable :data:`FILE` pytest writes a line for each phase of each test to that file, in the
form of ``--durations`` and with the process that ran it, what each test cost in processor time, and for how long the
machine's processors were busy. The table is also made of what ``--durations`` prints.

A test's processor time is that of its process and all below it, brokers and Spark too: what it makes others wait for
on a busy machine. Where two tests share a broker, what it does in the background counts for the one that runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FILE = "PIXY_TEST_TIMES"
SLOWEST = 20
_LINE = re.compile(r"^(?:> ?)?\s*(\d+\.\d+)s (?:setup|call|teardown)\s+(?:\[(gw\d+|main)\] )?(tests/.+)$")
_COST = re.compile(r"^(\d+\.\d+)s processor (tests/.+)$")
_PROPERTY = "processor seconds"
_BUSY = re.compile(r"^processors busy for (\d+\.\d+) of (\d+\.\d+) s$")


class Processors:
    """For how long the machine's processors are busy from now on, whatever keeps them so; Linux only."""

    def __init__(self) -> None:
        self._began, self._busy = time.monotonic(), _busy_seconds()

    def line(self) -> str:
        """What they could have been, too, in processor seconds; empty where Linux does not say."""
        if self._busy is None or (busy := _busy_seconds()) is None:
            return ""
        whole = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return f"processors busy for {busy - self._busy:.1f} of {whole:.1f} s"


def _busy_seconds() -> float | None:
    try:
        fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK")


class Costs:
    """Lets each test's last report say what the test cost in processor time. A plugin of each process of tests; Linux only."""

    def __init__(self) -> None:
        self._before = spent(os.getpid())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Add up since the teardown of the test before."""
        try:
            return (yield)
        finally:
            now = spent(os.getpid())
            item.user_properties.append((_PROPERTY, max(0.0, now - self._before)))
            self._before = now


def spent(process: int) -> float:
    """Return the processor seconds of a process and of all below it; of those that have ended, the ones that somebody waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        tasks = os.listdir(f"/proc/{process}/task")
    except OSError:  # it has just ended
        return 0.0
    below = 0.0
    for task in tasks:
        with contextlib.suppress(OSError):  # so has this thread
            for child in Path(f"/proc/{process}/task/{task}/children").read_text().split():
                below += spent(int(child))
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + below


@dataclass
class Times:
    """Seconds of a run: by test with its setup and teardown, by process (``gw0``, ... or ``main``), of processors."""

    tests: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    costs: dict[str, float] = field(default_factory=dict)
    """Processor seconds by test."""
    processes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    processors: str = ""

    @property
    def slowest(self) -> list[tuple[str, float]]:
        """The slowest tests, the slowest first."""
        return sorted(self.tests.items(), key=lambda each: -each[1])[:SLOWEST]

    @property
    def dearest(self) -> list[tuple[str, float]]:
        """The tests that cost most processor time, the dearest first."""
        return sorted(self.costs.items(), key=lambda each: -each[1])[:SLOWEST]


def lines(reports: Iterable[Any]) -> Iterable[str]:
    """Yield a line for each of pytest's reports.

    Args:
        reports: of tests' phases; pytest-xdist's have a ``node``.
    """
    for report in reports:
        if hasattr(report, "duration"):  # not that of a collection
            node = getattr(report, "node", None)
            process = "main" if node is None else node.gateway.id
            yield f"{report.duration:.2f}s {report.when} [{process}] {report.nodeid}"
            if (
                report.when == "teardown"
                and (cost := dict(report.user_properties).get(_PROPERTY)) is not None
            ):
                yield f"{cost:.2f}s processor {report.nodeid}"


def read(text: str) -> Times:
    """Read the times in a text; lines of another form are left out."""
    found = Times()
    for line in text.splitlines():
        if match := _LINE.match(line):
            seconds, process, test = float(match[1]), match[2], match[3].strip()
            found.tests[test] += seconds
            if process:
                found.processes[process] += seconds
        elif match := _COST.match(line):
            found.costs[match[2].strip()] = float(match[1])
        elif _BUSY.match(line):
            found.processors = line
    return found


def table(now: Times, before: Times | None = None) -> list[str]:
    """The slowest tests with what they took before, and the sum of each process.

    Args:
        now: a run.
        before: an earlier run; with it, its slowest tests are listed.
    """
    if before is None:
        found = [f"{seconds:7.1f} s  {test}" for test, seconds in now.slowest]
        found.append(f"{sum(seconds for _, seconds in now.slowest):7.1f} s  the slowest {len(now.slowest)}")
    else:
        rows = [(seconds, now.tests.get(test), test) for test, seconds in before.slowest]
        found = [
            f"{was:7.1f} s  {'not run' if took is None else f'{took:.1f} s':>9}  {test}"
            for was, took, test in rows
        ]
        sums = sum(was for was, _, _ in rows), sum(took or 0.0 for _, took, _ in rows)
        found.append(f"{sums[0]:7.1f} s  {sums[1]:7.1f} s  the slowest {len(rows)} of before")
        sums = sums[0], sum(seconds for _, seconds in now.slowest)
        found.append(f"{sums[0]:7.1f} s  {sums[1]:7.1f} s  the slowest {len(now.slowest)} of each run")
    found += [f"{seconds:7.1f} s  in process {name}" for name, seconds in sorted(now.processes.items())]
    if now.costs:
        found += ["", "Processor time, with that of all processes that tests have started:"]
        found += [f"{cost:7.1f} s  {test}" for test, cost in now.dearest]
        found.append(f"{sum(now.costs.values()):7.1f} s  all {len(now.costs)} tests")
    return found + ([now.processors] if now.processors else [])


def main(args: list[str] | None = None) -> int:
    """Print the table; return 1 if a file has no times."""
    parser = argparse.ArgumentParser(prog="make test-times", description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="file with the times of a run")
    parser.add_argument("--before", type=Path, help="file with the times of an earlier run, or its output")
    options = parser.parse_args(args)
    runs = []
    for path in (options.run, options.before):
        if path is None:
            continue
        try:
            runs.append(read(path.read_text(errors="replace")))
        except OSError as error:
            print(f"{path}: {error.strerror}; make test writes it", file=sys.stderr)
            return 1
        if not runs[-1].tests:
            print(f"{path}: no times of tests", file=sys.stderr)
            return 1
    print("\n".join(table(*runs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
