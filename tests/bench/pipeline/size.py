"""Measure how an archive scales: its rate, its memory and the lake's size on disk.

``python -m tests.bench.pipeline.size`` prints the tables of docs/pipeline-at-size.md. They have no targets;
those of the archive are in :mod:`tests.bench.pipeline.archive_replay`.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.table import Table

from pixy.config import Kafka, Proxy
from pixy.pipeline.lake import Lake
from tests.bench.pipeline.archive_replay import pad, values
from tests.bench.pipeline.topics import fill
from tests.bench.report import ROOT, console
from tests.kafka.cluster import Cluster

PARTITIONS = (1, 2, 4, 8, 16)
MESSAGES = 400_000
ROUNDS = 3
SIZES = (100, 1_000, 10_000, 100_000)
VOLUME = 200_000_000
"""Bytes of values in each topic of :data:`SIZES`."""
BATCHES = (25_000, 100_000, 400_000)


def archive(spark: Any, proxy: Proxy, topic: str, folder: Path) -> float:
    """Measure records per second of a new archive in a warm Spark session.

    Args:
        spark: the session.
        proxy: the cluster's configuration.
        topic: the topic to archive.
        folder: the lake; its former contents are removed.
    """
    from pixy.pipeline.archive.archive import Archive, admin_view
    from pixy.pipeline.archive.job import Job
    from pixy.pipeline.archive.subscription import Subscription

    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    job = Archive(spark, Job("main", proxy, str(folder), Subscription((topic,)), "bench"), admin_view(proxy))
    job.run()
    return job.progress.records / (time.monotonic() - began)


def rates(kafka: Cluster, proxy: Proxy, folder: Path) -> None:
    """Print the archive's rate by number of partitions, measured in turn."""
    from pixy.pipeline.spark.session import open_session

    pool = [pad(value) for value in values()]
    for partitions in PARTITIONS:
        kafka.create_topic(f"parts-{partitions}", partitions)
        fill(kafka.bootstrap()[0], f"parts-{partitions}", pool, MESSAGES, partitions)
    spark = open_session("bench", "local[2]")
    found: dict[int, list[float]] = {partitions: [] for partitions in PARTITIONS}
    try:
        archive(spark, proxy, "parts-4", folder / "warm")
        for _ in range(ROUNDS):
            for partitions in PARTITIONS:
                found[partitions].append(
                    archive(spark, proxy, f"parts-{partitions}", folder / f"lake-{partitions}")
                )
    finally:
        spark.stop()
    table = Table(
        "partitions",
        "records/s",
        "of 1 partition",
        "files a batch",
        "MB/s",
        title=f"archive of {MESSAGES:,} records of 1 KB, local[2]",
    )
    for partitions, each in found.items():
        rate = statistics.median(each)
        state = Lake.open(str(folder / f"lake-{partitions}")).state()
        table.add_row(
            str(partitions),
            f"{rate:,.0f}",
            f"{rate / statistics.median(found[1]):.2f} x",
            f"{len(state.files)}",
            f"{rate / 1e3:,.0f}",
        )
    console.print(table)


def command(config: Path, topic: str, lake: Path, *more: str) -> tuple[float, float, float]:
    """Run the archive command as users run it.

    Args:
        config: the daemon's configuration.
        topic: the topic to archive.
        lake: the lake.
        more: further options of the command.

    Returns:
        Seconds with Spark's start, and the peaks of the JVM's and of Python's resident memory in MiB.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pixy.cli.main",
            "pipeline",
            "archive",
            "--config",
            str(config),
            "--topics",
            topic,
            "--lake",
            str(lake),
            "--master",
            "local[2]",
            *more,
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    java = python = 0.0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            python = max(python, watched.memory_info().rss / 2**20)
            for each in watched.children(recursive=True):
                # Count only java: a process that the JVM forks has the JVM's size for a moment.
                java = max(java, each.memory_info().rss / 2**20 if each.name() == "java" else 0.0)
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"the archive of {topic} ended with {process.returncode}")
    return time.monotonic() - began, java, python


def memory(kafka: Cluster, config: Path, folder: Path) -> None:
    """Print the peak memory by size of records, and by size of batches."""
    table = Table(
        "record",
        "records",
        "batch",
        "peak JVM, MiB",
        "peak Python, MiB",
        "s with start",
        title="memory, driver's heap of 1 GiB",
    )
    for size in SIZES:
        topic, count = f"size-{size}", VOLUME // size
        kafka.create_topic(topic, 4)
        pool = [(value * (size // len(value) + 1))[:size] for value in values()[:200]]
        fill(kafka.bootstrap()[0], topic, pool, count, 4)
        took, java, python = command(
            config, topic, folder / f"mem-{size}", "--conf", "spark.driver.memory=1g"
        )
        table.add_row(f"{size:,} B", f"{count:,}", "all", f"{java:,.0f}", f"{python:,.0f}", f"{took:.0f}")
    for batch in BATCHES:
        took, java, python = command(
            config,
            "parts-4",
            folder / f"batch-{batch}",
            "--batch-records",
            str(batch),
            "--conf",
            "spark.driver.memory=1g",
        )
        table.add_row(
            "1,000 B", f"{MESSAGES:,}", f"{batch:,}", f"{java:,.0f}", f"{python:,.0f}", f"{took:.0f}"
        )
    console.print(table)


def growth(folder: Path) -> None:
    """Print the sizes on disk of the lakes that :func:`memory` made with batches of different sizes."""
    table = Table(
        "records a batch",
        "batches",
        "files",
        "data, B a record",
        "log, B a batch",
        "table of ranges, B a batch",
        title=f"lake of {MESSAGES:,} records of 1 KB",
    )
    for batch in BATCHES:
        lake = folder / f"batch-{batch}"
        batches = Lake.open(str(lake)).ledger().seq + 1

        def size(what: str, lake: Path = lake) -> int:
            return sum(path.stat().st_size for path in (lake / what).rglob("*") if path.is_file())

        table.add_row(
            f"{batch:,}",
            str(batches),
            str(len(list((lake / "data").rglob("*.parquet")))),
            f"{size('data') / MESSAGES:.1f}",
            f"{size('data/_delta_log') / batches:,.0f}",
            f"{size('ranges') / batches:,.0f}",
        )
    console.print(table)


def main() -> None:
    """Print all tables."""
    folder = Path(tempfile.mkdtemp(prefix="bench-size-"))
    kafka = Cluster(heap="768m")
    try:
        config = folder / "pixy.yaml"
        config.write_text(yaml.safe_dump({"proxies": {"main": {"kafka": {"seed_peers": kafka.bootstrap()}}}}))
        rates(kafka, Proxy(kafka=Kafka(seed_peers=kafka.bootstrap())), folder)
        memory(kafka, config, folder)
        growth(folder)
    finally:
        kafka.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
