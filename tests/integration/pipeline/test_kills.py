"""Killed at any point, an archive or a replay resumes; no record is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.pipeline.archive.batch_writer import BatchWriter
from pixy.pipeline.lake.data_table import DataTable
from pixy.pipeline.lake.ranges_table import RangesTable
from pixy.pipeline.lake.verify import verify
from pixy.pipeline.replay.state import ReplayState
from tests.effort import LONG
from tests.integration.pipeline.delta import read_by_arrow, read_by_spark
from tests.integration.pipeline.support import FAST_START, World, assert_sound, command
from tests.support import ROOT

KILLS = ((0, 3.0, True), (1, 1.0, False), (3, 1.0, False), (5, 0.3, True))
"""Batches to wait for, the most seconds to wait then, and whether the JVM is killed with Python."""
if not LONG:
    KILLS = (KILLS[0], KILLS[1], KILLS[3])  # one for each phase; each starts Spark
REPLAYED = 60_000


class Running:
    """A command to kill; a thread collects its stderr."""

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
        """Wait until a line begins with ``text``, or the command ends."""
        with self._seen:
            assert self._seen.wait_for(
                lambda: any(line.startswith(text) or not line for line in self.lines), timeout
            ), self.lines

    def wait_for_count(self, text: str, count: int, timeout: float = 300.0) -> None:
        """Wait until so many lines begin with ``text``, or the command ends."""
        with self._seen:
            assert self._seen.wait_for(
                lambda: (
                    sum(line.startswith(text) for line in self.lines) >= count
                    or any(not line for line in self.lines)
                ),
                timeout,
            ), self.lines

    def kill(self, *, all_of_it: bool) -> None:
        """Kill -9; without ``all_of_it`` the JVM lives on until it notices."""
        if all_of_it:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def end(self) -> tuple[int, dict[str, object]]:
        """Wait for the end; return exit code and summary."""
        output, _ = self.process.stdout.read(), self.process.wait(300)  # type: ignore[union-attr]
        assert output, self.lines
        return self.process.returncode, json.loads(output)


class Killed(RuntimeError):
    """Ends an archive as a kill does: no code after it changes a file."""


class KillPoints:
    """Kill points of an archive: before and after each step that changes a file.

    From the kill on every step is refused, so that the files stay as a kill leaves them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.visited: list[str] = []
        self._dead = False
        for owner, method in (
            (DataTable, "create"),
            (BatchWriter, "_read_back"),  # Spark has written
            (BatchWriter, "_split"),
            (DataTable, "commit"),
            (RangesTable, "append"),
        ):
            self._wrap(monkeypatch, owner, method)

    def restart(self) -> None:
        """Begin another run: it ends at the first point that no run before it has visited."""
        self._dead = False

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
        original = getattr(owner, method)

        def wrapped(*args: Any, **named: Any) -> Any:
            self._die_once(f"before {owner.__name__}.{method}")
            made = original(*args, **named)
            self._die_once(f"after {owner.__name__}.{method}")
            return made

        monkeypatch.setattr(owner, method, wrapped)

    def _die_once(self, point: str) -> None:
        if self._dead:
            raise Killed(f"killed already: {point}")
        if point not in self.visited:
            self.visited.append(point)
            self._dead = True
            raise Killed(f"killed {point}")


def produce_over_midnight(world: World, topic: str) -> None:
    """Two partitions, one of them with records of two days: its file is split."""
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0], "linger.ms": 5})
    midnight = 1_700_006_400_000
    for number in range(20):
        late = number % 4 == 1
        producer.produce(topic, b"value %d" % number, partition=number % 2, timestamp=midnight - late)
    assert producer.flush(30) == 0


@pytest.mark.timeout(600)
def test_an_archive_killed_at_each_point_resumes(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.create_topic(name, 2, **{"retention.ms": "-1"})
    with monkeypatch.context() as patched:
        points = KillPoints(patched)
        for _ in range(60):
            produce_over_midnight(world, name)
            points.restart()
            try:
                world.archive(name)
            except Killed:
                continue
            else:
                break
        else:
            raise AssertionError(f"there is no end of points: {points.visited}")
    assert len(points.visited) == 10, points.visited
    lake = world.lake()
    assert_sound(lake)
    assert lake.state().partition_stats(name) == world.truth(name)
    assert [each.batch for each in lake.history()] == list(range(lake.state().seq + 1))
    found = [position for position, _ in read_by_spark(world)]
    assert found == sorted(set(found))
    assert verify(lake).unlisted != []
    assert lake.vacuum(0, dry_run=False) != []
    assert verify(lake).unlisted == []
    assert_sound(lake)


@pytest.mark.timeout(1200)
def test_kills_of_an_archive(world: World, name: str) -> None:
    """Kill -9 of real processes: before the first batch, within batches, and at the end.

    The test above has every point in between.
    """
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
        "--job",
        "job",
        "--batch-records",
        "300",
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.memory=512m",
    )
    published = -1
    for line, delay, all_of_it in KILLS:
        killed = False
        while not killed:
            world.produce(name, 1500, 3)
            running = Running(*arguments)
            running.wait_for("archiving")
            if line:
                running.wait_for_count("batch ", line)
            try:
                running.process.wait(chance.uniform(0.0, delay))
            except subprocess.TimeoutExpired:
                running.kill(all_of_it=all_of_it)
                killed = True
            else:
                assert running.process.returncode == 0, running.lines
        if (world.folder / "lake").exists():
            published = world.lake().state().seq
    assert published >= 0, "the kills met nothing"
    assert world.archive(name, batch_records=300).records > 0
    lake = world.lake()
    assert_sound(lake)
    assert lake.state().partition_stats(name) == world.truth(name)
    assert [each.batch for each in lake.history()] == list(range(lake.state().seq + 1))
    rows = read_by_spark(world)
    assert rows == read_by_arrow(world)
    assert (
        len(rows)
        == len({position for position, _ in rows})
        == sum(stats.count for stats in world.truth(name).values())
    )


@pytest.mark.timeout(600)
def test_kills_of_a_replay(world: World, name: str) -> None:
    chance = random.Random(name)
    world.kafka.create_topic(name, 2)
    world.produce(name, REPLAYED, 2)
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
        code, summary, stderr = command(*arguments)
        assert code == 0, stderr
        assert summary["ended"] in ("done", "done before")
        source, target = world.truth(name), world.truth(to)
        assert sum(each.count for each in target.values()) == REPLAYED, summary
        if partitioner == "keep":
            assert {p: each.content_checksum for p, each in target.items()} == {
                p: each.content_checksum for p, each in source.items()
            }
        rows = ReplayState(str(folder)).map()
        assert len(rows) == REPLAYED
        assert (
            len(set(zip(*(rows.column(n).to_pylist() for n in ("new_partition", "new_offset")), strict=True)))
            == REPLAYED
        )
        assert (
            len(set(zip(*(rows.column(n).to_pylist() for n in ("partition", "offset")), strict=True)))
            == REPLAYED
        )


@pytest.mark.timeout(400)
def test_an_archive_asked_to_stop_ends_after_a_batch(world: World, name: str) -> None:
    """From the command line, with metrics and group offsets."""
    world.kafka.create_topic(name, 1)
    world.produce(name, 100)
    world.archive(name)
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
        "--job",
        "job",
        "--trigger",
        "100ms",
        "--max-rate",
        "500",
        "--metrics-file",
        str(metrics),
        "--commit-as",
        f"{name}-lag",
    )
    running.wait_for("batch 1")
    running.process.send_signal(signal.SIGTERM)
    code, summary = running.end()
    assert (code, summary["ended"]) == (0, "asked to stop")
    records = int(str(summary["records"]))
    assert 0 < records < 2000
    assert_sound(world.lake())
    assert f'kafka_pixy_archive_records{{job="job",topic="{name}"}} {float(records)}' in metrics.read_text()
    assert world.view.committed(f"{name}-lag", [(name, 0)])[name, 0][0] == 100 + records
    assert read_by_spark(world) == read_by_arrow(world)
