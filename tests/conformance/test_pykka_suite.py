"""Run pykka's own test suite on both kinds of actors.

The test downloads pykka's source distribution; none of its code is kept here. The suite's ``conftest.py``
takes the runtimes from a table, and a plugin (``tests_runtime``) replaces them with ours. Only the three
tests of thread names are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "4.5.0"
SUITE = ROOT / "build" / f"pykka-{VERSION}"

THREAD_NAMES = (
    "test_actor_thread_is_named_after_pykka_actor_class",
    "test_actor_thread_is_not_daemonic_by_default",
    "test_actor_thread_is_daemonic_if_use_daemon_thread_flag_is_set",
)


@pytest.fixture(scope="module")
def suite() -> Path:
    """The unpacked source distribution, fetched once."""
    if not (SUITE / "tests" / "conftest.py").exists():
        SUITE.parent.mkdir(exist_ok=True)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--no-binary",
                "pykka",
                "-d",
                str(SUITE.parent),
                f"pykka=={VERSION}",
            ],
            check=False,
            timeout=300,
            capture_output=True,
        )
        archive = SUITE.parent / f"pykka-{VERSION}.tar.gz"
        with tarfile.open(archive) as packed:
            packed.extractall(SUITE.parent, filter="data")
    return SUITE


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["Actor", "ThreadedActor"])
def test_the_suite_passes(suite: Path, kind: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests_runtime",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            f"--rootdir={suite}",
            "--timeout=60",
            "--deselect",
            "tests/test_threading_actor.py",
            "tests",
        ],
        cwd=suite,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{suite}{os.pathsep}{ROOT}",
            "ACTORS_KIND": kind,
            "PYTEST_ADDOPTS": "",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 149, done.stdout
    assert "skipped" not in done.stdout, done.stdout


def test_only_the_thread_name_tests_are_left_out(suite: Path) -> None:
    left_out = (suite / "tests" / "test_threading_actor.py").read_text()
    assert sorted(re.findall(r"^def (test_\w+)", left_out, re.MULTILINE)) == sorted(THREAD_NAMES)
