"""The pipeline's examples as a user runs them: the demo, and queries of a lake that was killed and compacted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from pixy.pipeline.archive.compact import Compactor
from pixy.pipeline.lake.lake import Lake
from tests.integration.pipeline.support import FAST_START, World
from tests.support import ROOT

MESSAGES = 20_000
ENVIRONMENT = {**os.environ, **FAST_START, "PYTHONPATH": str(ROOT)}


def example(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=ENVIRONMENT,
    )


@pytest.fixture
def lake(world: World, name: str) -> Path:
    """A lake of 30 records in two partitions, with files beside them that its log does not list."""
    world.kafka.create_topic(name, 2)
    world.produce(name, 20, 2)
    world.archive(name)
    world.produce(name, 10, 2)
    world.archive(name)
    # Compacted: what was replaced is still on disk.
    Compactor(world.spark, world.lake(), keep=3600).run("2099-01-01")
    folder = world.folder / "lake"
    live = next(iter(world.lake().state().files))
    # Killed: a file that nobody published.
    shutil.copy(folder / live, (folder / live).with_name("job-00000000-00000009-0000.parquet"))
    assert len(list((folder / "data").rglob("*.parquet"))) > len(world.lake().state().files) + 1
    return folder


@pytest.mark.timeout(600)
def test_the_queries_read_what_the_log_lists_and_nothing_else(lake: Path, name: str) -> None:
    done = example("pipeline_query_pyarrow.py", str(lake), name)
    assert done.returncode == 0, done.stderr
    assert f"{name}: 30 records, " in done.stdout
    assert "  partition 0: offsets 0 to 14, " in done.stdout
    assert "  offset 0: key b'key 0', value b'value 0', headers None" in done.stdout

    done = example("pipeline_query_spark.py", str(lake), name)
    assert done.returncode == 0, done.stderr
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in done.stdout.splitlines()
        if line.startswith("|")
    ]
    assert rows[0][:5] == ["partition", "records", "first", "last", "bytes"]
    assert [row[:4] for row in rows[1:]] == [["0", "15", "0", "14"], ["1", "15", "0", "14"]]

    done = example(
        "pipeline_query_spark.py",
        str(lake),
        name,
        "SELECT count(*) AS c FROM records WHERE cast(value AS string) = 'value 17'",
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("|")][1].strip("|").strip() == "1"

    for program in ("pipeline_query_pyarrow.py", "pipeline_query_spark.py"):
        done = example(program, str(lake), "nothing")
        assert (done.returncode, f"has no records of nothing; it has {name}" in done.stderr) == (1, True)


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
    """Command lines of the processes that a demo started, whoever their parent is now."""
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


@pytest.mark.usefixtures("kafka")  # skips without Java or Maven, as all that needs a broker
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
@pytest.mark.parametrize(("said", "number"), [("2. ", signal.SIGINT), ("  | archiving", signal.SIGTERM)])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, said: str, number: int) -> None:
    mark = uuid.uuid4().hex
    process = demo(tmp_path / "demo", mark, 5000)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(said):
            break
    else:
        raise AssertionError("".join(lines))
    assert len(running(mark)) >= 2, "Kafka at least"
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "interrupted: stopping what was started" in output
    deadline = time.monotonic() + 20  # a JVM that was killed takes a moment to go
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(mark) == []
    assert not (tmp_path / "demo").exists()


def test_the_demo_keeps_off_other_people_s_folders(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    process = demo(tmp_path, messages=1000)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, "is not empty and not of an earlier demo" in output) == (2, True), output
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
