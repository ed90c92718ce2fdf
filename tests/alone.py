"""Runs a program in an interpreter of its own: what may crash it, or needs an end of the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_alone(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program, for two minutes at most; a crash shows its stacks on stderr.

    Args:
        program: the text.
    """
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", program],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
