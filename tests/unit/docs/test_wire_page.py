"""The shell blocks of docs/wire.md, and the examples of the wire library, are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_process import run_file
from tests.support import ROOT

_SHELL = re.compile(
    r"^```sh\n(?!# Not tested: )(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
BLOCKS = [(each[1], each[2]) for each in _SHELL.finditer((ROOT / "docs/wire.md").read_text())]


def test_the_page_has_shell_blocks() -> None:
    assert len(BLOCKS) >= 2 and all("kafka-pixy wire" in program for program, _ in BLOCKS)


@pytest.mark.parametrize(("program", "expected"), BLOCKS)
def test_a_shell_block_prints_what_the_page_says(program: str, expected: str | None) -> None:
    shell = f'kafka-pixy() {{ "{sys.executable}" -m pixy.cli.main "$@"; }}\nset -o pipefail\n{program}'
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    if expected is not None:
        assert done.stdout == expected


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_example_of_a_compressed_batch(codec: str) -> None:
    done = run_file(ROOT / "examples/wire_compressed_batch.py", "--compression", codec)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert f"<- {codec}" in text and text.endswith("1000 records read back\n")


def test_the_example_of_a_captured_joingroup(tmp_path: Path) -> None:
    program = ROOT / "examples/wire_joingroup.py"
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "m-1 of checkout joins as consumer, JoinGroup v7\n"
        "  offers range for orders (subscription v3)\n"
        "  generation 4, range, led by m-1\n"
        "m-1 of checkout, generation 4, SyncGroup v5\n"
        "  as the leader gives m-1: orders [0, 1]\n"
        "  gets orders [0, 1]\n"
    )
    (tmp_path / "bad").write_text("> 00000004 000b0063\n")
    failed = run_file(program, str(tmp_path / "bad"))
    assert failed.returncode == 1 and b"RequestHeader" in failed.stderr and b"Traceback" not in failed.stderr
