"""Run the query examples as a user does, on a lake with unlisted files."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pixy.pipeline.archive.optimize import Optimizer
from tests.integration.pipeline.support import FAST_START, World
from tests.support import ROOT

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
    """A lake of 30 records in two partitions, with files that its table does not list."""
    world.kafka.create_topic(name, 2)
    world.produce(name, 20, 2)
    world.archive(name)
    world.produce(name, 10, 2)
    world.archive(name)
    # Replaced files stay on disk.
    Optimizer(world.spark, world.lake()).run("2099-01-01")
    folder = world.folder / "lake"
    live = next(iter(world.lake().state().files))
    # A killed job leaves an unpublished file.
    shutil.copy(folder / live, (folder / live).with_name("job-00000000-00000009-0000.parquet"))
    assert len(list((folder / "data").rglob("*.parquet"))) > len(world.lake().state().files) + 1
    return folder


@pytest.mark.timeout(600)
def test_the_queries_read_only_the_files_in_the_table(lake: Path, name: str) -> None:
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

    for program in ("pipeline_query_pyarrow.py", "pipeline_query_spark.py"):
        done = example(program, str(lake), "nothing")
        assert (done.returncode, f"has no records of nothing; it has {name}" in done.stderr) == (1, True)


def test_a_query_of_one_s_own(
    world: World, lake: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the running session; the test above starts Spark as a user does."""
    program = runpy.run_path(str(ROOT / "examples" / "pipeline_query_spark.py"))
    monkeypatch.setattr(type(world.spark), "stop", lambda _: None)
    sql = "SELECT count(*) AS c FROM records WHERE cast(value AS string) = 'value 17'"
    program["main"](str(lake), name, sql)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert rows[1].strip("|").strip() == "1"
