"""The worked set-ups of docs/security.md do what they show.

In each section "NAME, worked", ``sh`` blocks prepare files, the ``yaml`` block is the configuration of a daemon on the
sandbox, and ``console`` blocks are commands with their output. Only the ports are others.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.cluster import free_port
from tests.support import Program

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/security.md"
_SECTION = re.compile(r"^## ([^\n]*), worked\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SET_UPS: dict[str, str] = dict(_SECTION.findall(PAGE.read_text()))


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with its output."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert found, block
    return [(command, output) for command, output in found]


def answers(port: int) -> bool:
    """Whether the REST listener is there; it is the last one that the daemon opens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


class Shell:
    """Runs commands in a folder where ``kafka-pixy`` is a program."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder = folder
        self.ports = ports
        program = folder / "bin" / "kafka-pixy"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pixy.cli.main "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "no_proxy": "*"}

    def text(self, text: str) -> str:
        for shown, real in self.ports.items():
            text = text.replace(shown, str(real))
        return text

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", self.text(script)],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SET_UPS)
def test_a_worked_set_up(name: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"19091": free_port(), "19092": free_port()})
    blocks = _FENCE.findall(SET_UPS[name])
    for kind, block in blocks:
        if kind == "sh":
            output = shell.run(block)
            assert not output, output
        if kind == "yaml":
            (tmp_path / "kafka-pixy.yaml").write_text(shell.text(block))
    arguments = ("--config", "kafka-pixy.yaml", "--sandbox")
    with Program(*arguments, env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path) as program:
        deadline = time.monotonic() + 60
        while not answers(shell.ports["19092"]):
            assert program.process.poll() is None, program.wait()
            assert time.monotonic() < deadline, "the daemon does not answer"
            time.sleep(0.05)
        for kind, block in blocks:
            for command, output in commands(block) if kind == "console" else ():
                # A REST answer has no newline at its end.
                assert shell.run(command).strip() == shell.text(output).strip(), command


def test_there_is_one_for_each_kind_of_credential() -> None:
    assert set(SET_UPS) == {"API keys", "JWT", "mTLS"}
