"""Run ``make pipeline-demo`` as a user does: to its end, interrupted, and into a folder with other files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from pixy.pipeline.lake import Lake
from tests.effort import LONG
from tests.integration.pipeline.support import FAST_START
from tests.support import ROOT

MESSAGES = 20_000 if LONG else 5_000
ENVIRONMENT = {**os.environ, **FAST_START, "PYTHONPATH": str(ROOT)}


def demo(folder: Path, mark: str = "", messages: int = MESSAGES) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "examples.pipeline_demo",
            "--messages",
            str(messages),
            "--out",
            str(folder),
            "--master",
            "local[2]",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**ENVIRONMENT, "PIPELINE_DEMO": mark},
    )


def running(mark: str) -> list[str]:
    """List the command lines of all processes that a demo started, whatever their parent is now."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"PIPELINE_DEMO={mark}".encode() in (
                folder / "environ"
            ).read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120])
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("kafka")  # skips without Java or Maven, as every test with a broker does
@pytest.mark.timeout(1200)
def test_the_demo(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = demo(tmp_path / "demo", mark)
    output, _ = process.communicate(timeout=1100)
    assert process.returncode == 0, output
    assert f"Counts and checksums are equal: {MESSAGES:,} messages" in output, output
    assert "kill -9 with" in output
    assert (tmp_path / "demo" / "audit" / "report.html").as_uri() in output
    lake = Lake.open(str(tmp_path / "demo" / "lake"))
    counts = {
        topic: sum(stats.count for stats in lake.state().partition_stats(topic).values())
        for topic in ("orders", "orders-replayed")
    }
    assert counts == {"orders": MESSAGES, "orders-replayed": MESSAGES}
    assert running(mark) == []


@pytest.mark.usefixtures("kafka")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("line_start", "number"),
    [("  | archiving", signal.SIGINT), ("2. ", signal.SIGTERM), ("2. ", signal.SIGINT)],
)
def test_an_interrupted_demo_leaves_no_process_and_no_folder(
    tmp_path: Path, line_start: str, number: int
) -> None:
    mark = uuid.uuid4().hex
    process = demo(tmp_path / "demo", mark, 1000)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(line_start):
            break
    else:
        raise AssertionError("".join(lines))
    assert len(running(mark)) >= 2, "at least the demo and Kafka"
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "interrupted: stopping all processes" in output
    assert "Warning" not in output, output
    deadline = time.monotonic() + 20  # a killed JVM takes a moment to end
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(mark) == []
    assert not (tmp_path / "demo").exists()


def test_the_demo_refuses_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    process = demo(tmp_path, messages=1000)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, "has files that no earlier demo has written" in output) == (2, True), output
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
