"""The table of ``make test-times``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.times import Times, main, read, spent, table

PRINTED = """\
E   0.5s is no time of a test
==== slowest 20 durations ====
211.32s call     tests/chaos/test_kit.py::test_two_minutes_of_faults
51.47s call     tests/integration/test_demo.py::test_it[  | archiving-15]
> 19.73s setup    tests/chaos/test_kit.py::test_two_minutes_of_faults
==== 1 passed in 925.27s (0:15:25) ====
"""


def test_phases_of_a_test_are_added_up() -> None:
    found = read(PRINTED)
    assert found.slowest == [
        ("tests/chaos/test_kit.py::test_two_minutes_of_faults", pytest.approx(231.05)),
        ("tests/integration/test_demo.py::test_it[  | archiving-15]", 51.47),
    ]
    assert found.processes == {}


def test_a_run_is_compared_with_an_earlier_one() -> None:
    now = read(
        "3.00s call [gw1] tests/a.py::test_a\n2.00s call [gw0] tests/a.py::test_new\n"
        "processors busy for 9.5 of 20.0 s\n"
    )
    before = Times({"tests/a.py::test_a": 9.0, "tests/a.py::test_gone": 4.0})
    assert table(now, before) == [
        "    9.0 s      3.0 s  tests/a.py::test_a",
        "    4.0 s    not run  tests/a.py::test_gone",
        "   13.0 s      3.0 s  the slowest 2 of before",
        "   13.0 s      5.0 s  the slowest 2 of each run",
        "    2.0 s  in process gw0",
        "    3.0 s  in process gw1",
        "processors busy for 9.5 of 20.0 s",
    ]


def test_the_processor_time_of_the_dearest_tests_is_listed() -> None:
    now = read(
        "3.00s call [gw1] tests/a.py::test_a\n0.00s teardown [gw1] tests/a.py::test_a\n4.25s processor tests/a.py::test_a\n"
        "9.00s processor tests/a.py::test_b[1 or 2]\n"
    )
    assert now.tests == {"tests/a.py::test_a": 3.0}
    assert table(now)[-3:] == [
        "    9.0 s  tests/a.py::test_b[1 or 2]",
        "    4.2 s  tests/a.py::test_a",
        "   13.2 s  all 2 tests",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_cost_of_a_test_has_that_of_its_processes() -> None:
    """Of those that run, and of those that have ended."""
    work = "sum(range(20_000_000))"
    before = spent(os.getpid())
    subprocess.run([sys.executable, "-c", work], check=True)
    ended = spent(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", f"{work}; print(1, flush=True); input()"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        running = spent(os.getpid())
        child.kill()
    assert ended - before > 0.1 and running - ended > 0.1


@pytest.mark.slow
def test_pytest_writes_what_the_table_reads(tmp_path: Path) -> None:
    times = tmp_path / "times.txt"
    test = "tests/unit/test_times.py::test_phases_of_a_test_are_added_up"
    quiet = ("-q", "-p", "no:schemathesis", "-p", "no:anyio")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", *quiet, test],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PIXY_TEST_TIMES": str(times)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(times.read_text())
    assert (list(found.tests), list(found.processes)) == ([test], ["gw0"])
    assert list(found.costs) == ([test] if sys.platform == "linux" else [])
    assert found.processors.startswith("processors busy for ") == Path("/proc/stat").exists()


def test_a_file_without_times_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").touch()
    assert main([str(tmp_path / "empty")]) == 1
    assert main([str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/empty: no times of tests",
        f"{tmp_path}/missing: No such file or directory; make test writes it",
    ]
