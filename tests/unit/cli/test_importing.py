"""Ctrl-C at any time before a command runs: exit code 130, and nothing on stdout and stderr."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

PROGRAM = """
import os, signal, sys

library = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore it

class Library:
    # Somebody types Ctrl-C while it is imported, and it swallows what happens, as some do with optional parts.

    def find_spec(self, name, *_):
        if name == library:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(100_000):
                    pass
            except BaseException:
                print("swallowed", name)

sys.meta_path.insert(0, Library())
from pixy.cli.main import main
sys.exit(main())
"""


def python(program: str, *arguments: str) -> tuple[int, str, str]:
    """Run a program; return its exit code and what it has written. The bound is for one that never ends."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("argparse", "serve"),
        ("msgspec", "serve --sandbox"),
        ("click", "produce foo"),
        ("grpc", "topic list"),
        ("argparse", "config check"),
        ("rich.console", "tap --sandbox"),
        ("argparse", "wire decode"),
        ("rich.console", "pipeline verify --lake x"),
        ("pyarrow", "pipeline verify --lake x"),
        ("argparse", "keys list"),
        ("argparse", "rules explain"),
    ],
)
def test_ctrl_c_during_imports_is_silent(library: str, command: str) -> None:
    assert python(PROGRAM, library, *command.split()) == (130, "", "")


def test_ctrl_c_while_python_ends_is_silent() -> None:
    """Python waits for threads then, and would say where it was."""
    program = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from pixy.cli.main import main

def at_the_end():
    threading.main_thread().join()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

threading.Thread(target=at_the_end).start()
sys.argv[:] = ["kafka-pixy", "version"]
sys.exit(main())
"""
    code, out, error = python(program)
    assert (code, out.startswith("kafka-pixy "), error) == (-2, True, "")


def test_a_program_that_ignores_ctrl_c_stays_so() -> None:
    """As a shell starts it in the background."""
    program = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from pixy.cli.main import main
sys.argv[:] = ["kafka-pixy", "version"]
main()
sys.exit(0 if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else 9)
"""
    assert python(program)[0] == 0
