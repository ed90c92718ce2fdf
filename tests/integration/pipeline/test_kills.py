"""Killed at any point, an archive or a replay goes on and nothing is lost or there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pixy.pipeline.replay.state import ReplayState
from tests.integration.pipeline.support import FAST_START, World, assert_sound, command
from tests.support import ROOT

KILLS = 10


class Running:
    """A command that is going to be killed; its stderr is watched."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pixy.cli.main", "pipeline", *arguments, "--json"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **FAST_START},
        )
        self.lines: list[str] = []
        self._seen = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._seen:
                self.lines.append(line)
                self._seen.notify_all()
        with self._seen:
            self.lines.append("")
            self._seen.notify_all()

    def wait_for(self, text: str, timeout: float = 300.0) -> None:
        """Until a line begins with ``text``, or the command ends."""
        with self._seen:
            assert self._seen.wait_for(
                lambda: any(line.startswith(text) or not line for line in self.lines), timeout
            ), self.lines

    def kill(self, *, all_of_it: bool) -> None:
        """Kill -9; without ``all_of_it`` the JVM lives on until it notices."""
        if all_of_it:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def end(self) -> tuple[int, dict[str, object]]:
        """Exit code and summary."""
        output, _ = self.process.stdout.read(), self.process.wait(300)  # type: ignore[union-attr]
        assert output, self.lines
        return self.process.returncode, json.loads(output)


@pytest.mark.timeout(1200)
def test_ten_kills_of_an_archive(world: World, name: str) -> None:
    chance = random.Random(name)
    world.kafka.create_topic(name, 3)
    arguments = (
        "archive",
        "--config",
        world.config(),
        "--topics",
        name,
        "--lake",
        str(world.folder / "lake"),
        "--batch-records",
        "300",
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.memory=512m",
    )
    killed = 0
    while killed < KILLS:
        world.produce(name, 1500, 3)
        running = Running(*arguments)
        running.wait_for("archiving")
        try:
            running.process.wait(chance.uniform(0.0, 6.0))
        except subprocess.TimeoutExpired:
            running.kill(all_of_it=chance.random() < 0.5)
            killed += 1
        else:
            assert running.process.returncode == 0, running.lines
    code, summary = Running(*arguments).end()
    assert (code, summary["ok"]) == (0, True)
    lake = world.lake()
    assert_sound(lake)
    assert lake.state().partition_stats(name) == world.truth(name)
    manifests = list(lake.manifests())
    assert len(manifests) > KILLS, "the kills met nothing"
    assert [each.batch for each in manifests] == list(range(len(manifests)))
    # A reader that knows nothing of manifests sees each record once as well, now that all is done.
    assert world.spark.read.parquet(str(world.folder / "lake" / "data")).count() == sum(
        stats.count for stats in world.truth(name).values()
    )


@pytest.mark.timeout(600)
def test_kills_of_a_replay(world: World, name: str) -> None:
    chance = random.Random(name)
    world.kafka.create_topic(name, 2)
    world.produce(name, 60_000, 2)
    world.archive(name)
    for to, partitioner in ((f"{name}-keep", "keep"), (f"{name}-moved", "murmur2_random")):
        folder = Path(world.folder, to)
        arguments = (
            "replay",
            "--config",
            world.config(),
            "--lake",
            str(world.folder / "lake"),
            "--topic",
            name,
            "--to",
            to,
            "--create",
            "--state",
            str(folder),
            "--partitioner",
            partitioner,
        )
        for _ in range(4):
            running = Running(*arguments)
            running.wait_for("replaying")
            try:
                running.process.wait(chance.uniform(0.1, 0.8))
            except subprocess.TimeoutExpired:
                running.kill(all_of_it=True)
        code, summary, said = command(*arguments)
        assert code == 0, said
        assert summary["ended"] in ("done", "done before")
        source, target = world.truth(name), world.truth(to)
        assert sum(each.count for each in target.values()) == 60_000, summary
        if partitioner == "keep":
            assert {p: each.content_checksum for p, each in target.items()} == {
                p: each.content_checksum for p, each in source.items()
            }
        rows = ReplayState(str(folder)).map()
        assert len(rows) == 60_000
        assert (
            len(set(zip(*(rows.column(n).to_pylist() for n in ("new_partition", "new_offset")), strict=True)))
            == 60_000
        )
        assert (
            len(set(zip(*(rows.column(n).to_pylist() for n in ("partition", "offset")), strict=True)))
            == 60_000
        )


@pytest.mark.timeout(400)
def test_asked_to_stop_it_ends_after_a_batch(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1)
    world.produce(name, 2000)
    metrics = world.folder / "metrics.prom"
    running = Running(
        "archive",
        "--config",
        world.config(),
        "--topics",
        name,
        "--lake",
        str(world.folder / "lake"),
        "--trigger",
        "100ms",
        "--max-rate",
        "500",
        "--metrics-file",
        str(metrics),
        "--commit-as",
        f"{name}-lag",
    )
    running.wait_for("batch 0")
    running.process.send_signal(signal.SIGTERM)
    code, summary = running.end()
    assert (code, summary["ended"]) == (0, "asked to stop")
    assert 0 < int(str(summary["records"])) < 2000
    assert_sound(world.lake())
    assert (
        f'kafka_pixy_archive_records{{job="{summary["job"]}",topic="{name}"}} {float(str(summary["records"]))}'
        in metrics.read_text()
    )
    assert world.view.committed(f"{name}-lag", [(name, 0)])[name, 0][0] == summary["records"]
