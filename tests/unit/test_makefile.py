"""What ``make`` says to a person who interrupts it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

INTERRUPTS = """
import os, signal, sys

class Typed:
    # Somebody types Ctrl-C when the environment is begun.

    def find_spec(self, name, *_):
        if name == "venv":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Typed())
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_an_interrupted_environment_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m venv`` printed one of fifteen lines."""
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    options = [f"VENV={tmp_path}/venv", f"PYTHON={sys.executable}"]
    planned = subprocess.run(
        ["make", "-n", *options, f"{tmp_path}/venv/.installed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    [line] = [line for line in planned.stdout.splitlines() if "venv" in line and " || " in line]
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(
        shlex.split(line.partition(" || ")[2], comments=True),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and (done.stdout, done.stderr) == ("", "")
    assert not (tmp_path / "venv").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_a_fresh_clone_is_linted_and_tested_after_one_run_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run resolves and builds anew, and all of them together took longer than the linters."""
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    planned = subprocess.run(
        ["make", "-n", f"VENV={tmp_path}/venv", "lint", "test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    [line] = [line for line in planned.stdout.splitlines() if "pip install" in line]
    assert "--no-compile" in line and ".[test,lint,pipeline,release]" in line
