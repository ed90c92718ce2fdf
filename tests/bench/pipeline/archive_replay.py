"""Compare the archive with Spark's own Kafka-to-Parquet sink, and the replay with confluent-kafka."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.bulk import bulk_settings
from tests.bench.pipeline.topics import fill, produce
from tests.bench.report import ROOT, Report, console
from tests.kafka.cluster import Cluster

MESSAGES = 1_000_000
SIZE = 1000
PARTITIONS = 4
ROUNDS = 3
ARCHIVE, REPLAY = 0.80, 0.50
MEMORY_MIB = 2600
BYTES = 1.10


def values() -> list[bytes]:
    """Return values of about 1 KB; a quarter of each is noise, the rest compresses as JSON does."""
    chance = random.Random(7)
    return [
        b'{"id": "%s", "name": "%s", "payload": "%s"}'
        % (b"%08d" % at, chance.randbytes(60).hex().encode(), b"the same again and again " * 33)
        for at in range(10_000)
    ]


def pad(value: bytes) -> bytes:
    return value[:SIZE].ljust(SIZE, b".")


# -- archive --------------------------------------------------------------------------------------


def plain_sink(spark: Any, bootstrap: str, topic: str, folder: Path) -> float:
    """Archive with Spark's own sink, with the same columns and codec; return records per second."""
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("compression", "zstd")
        .option("path", str(folder / "data"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    return MESSAGES / (time.monotonic() - began)


def our_archive(spark: Any, proxy: Proxy, topic: str, folder: Path) -> float:
    """Archive a topic into an empty folder; return records per second."""
    from pixy.pipeline.archive.archive import Archive, admin_view
    from pixy.pipeline.archive.job import Job
    from pixy.pipeline.archive.subscription import Subscription

    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    archive = Archive(
        spark, Job("main", proxy, str(folder), Subscription((topic,)), "bench"), admin_view(proxy)
    )
    archive.run()
    if archive.progress.records != MESSAGES:
        raise RuntimeError(f"{archive.progress.records} records archived")
    return MESSAGES / (time.monotonic() - began)


def disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _peak(process: subprocess.Popen[str], found: dict[int, int]) -> None:
    """Watch a process and its descendants until it ends.

    Args:
        process: the process.
        found: takes the peak resident memory in KiB by process id.
    """
    while process.poll() is None:
        for pid in (process.pid, *_children(process.pid)):
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            peak = next((line for line in lines if line.startswith("VmHWM")), "x 0")
            found[pid] = max(found.get(pid, 0), int(peak.split()[1]))
        time.sleep(0.2)


def _children(pid: int) -> Iterator[int]:
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in below:
        yield int(child)
        yield from _children(int(child))


def memory(bootstrap: str, topic: str, folder: Path) -> dict[str, float]:
    """Run the archive command as users run it; return the peaks of Python's and the JVM's resident memory in
    MiB.
    """
    config = folder / "pixy.yaml"
    config.write_text(yaml.safe_dump({"proxies": {"main": {"kafka": {"seed_peers": [bootstrap]}}}}))
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
            str(folder / "memory"),
            "--master",
            "local[2]",
            "--json",
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    found: dict[int, int] = {}
    watch = threading.Thread(target=_peak, args=(process, found))
    watch.start()
    watch.join()
    if process.returncode:
        raise RuntimeError(f"the archive ended with {process.returncode}")
    return {
        "python": found.pop(process.pid) / 1024,
        "jvm": max(found.values()) / 1024,
    }


def bench_archive(report: Report, spark: Any, proxy: Proxy, topic: str, folder: Path) -> None:
    """Archive in turn with our archive and Spark's plain sink, and add the rows of speed and of bytes on disk."""
    bootstrap = proxy.kafka.seed_peers[0]
    theirs, ours = [], []
    for round_ in range(ROUNDS + 1):
        pair = (
            our_archive(spark, proxy, topic, folder / "lake"),
            plain_sink(spark, bootstrap, topic, folder / "plain"),
        )
        if round_:  # the first round warms up the JVM
            ours.append(pair[0])
            theirs.append(pair[1])
    report.ratio("archive of 1,000,000 messages of 1 KB, against Spark's plain sink", ARCHIVE, ours, theirs)
    mine, plain = disk(folder / "lake" / "data"), disk(folder / "plain" / "data")
    report.add(
        "bytes per record on disk, against the plain sink",
        f"{mine / plain:.2f} x",
        f"<= {BYTES:g} x",
        mine / plain <= BYTES,
        f"{mine / MESSAGES:.1f} against {plain / MESSAGES:.1f}; ours include a hash of 8 bytes",
    )


# -- replay ---------------------------------------------------------------------------------------


def own_produce(proxy: Proxy, topic: str) -> float:
    """Produce with confluent-kafka alone and the same settings: no lake, no timestamps, no delivery reports.

    Returns:
        Records per second.
    """
    producer = Producer(bulk_settings(settings.producer(proxy, "consistent_random")))
    pool = [pad(value) for value in values()]
    producer.list_topics(topic, timeout=30)
    began = time.monotonic()
    produce(producer, topic, pool, MESSAGES, PARTITIONS)
    return MESSAGES / (time.monotonic() - began)


def our_replay(proxy: Proxy, lake: Path, topic: str, to: str, state: Path) -> float:
    """Replay an archived topic to another one; return records per second.

    Args:
        proxy: the cluster.
        lake: the folder that has the archive.
        topic: the archived one.
        to: an empty topic.
        state: a folder for the replay's state, which does not exist yet.
    """
    from pixy.pipeline.archive.archive import admin_view
    from pixy.pipeline.lake import Lake
    from pixy.pipeline.lake.selection import Selection
    from pixy.pipeline.replay.job import ReplayJob
    from pixy.pipeline.replay.request import ReplayRequest
    from pixy.pipeline.replay.state import ReplayState

    began = time.monotonic()
    result = ReplayJob(
        Lake.open(str(lake)),
        ReplayRequest(topic, to, Selection()),
        proxy,
        admin_view(proxy),
        ReplayState(str(state)),
    ).run()
    if result.progress.records != MESSAGES:
        raise RuntimeError(f"{result.progress.records} records replayed")
    return MESSAGES / (time.monotonic() - began)


def bench_replay(report: Report, kafka: Cluster, proxy: Proxy, topic: str, folder: Path) -> None:
    """Replay in turn with ours, and produce with confluent-kafka alone, each to a new topic; add the row."""
    theirs, ours = [], []
    for round_ in range(ROUNDS):
        names = [f"replay-{kind}-{round_}" for kind in ("ours", "own")]
        for name in names:
            kafka.create_topic(name, PARTITIONS)
        ours.append(our_replay(proxy, folder / "lake", topic, names[0], folder / f"state-{round_}"))
        theirs.append(own_produce(proxy, names[1]))
        for future in kafka.admin().delete_topics(names).values():
            future.result(30)
    report.ratio(
        "replay of 1,000,000 messages of 1 KB, against confluent-kafka's own produce", REPLAY, ours, theirs
    )


def run(report: Report) -> None:
    """Fill a topic, measure archive and replay and add the rows."""
    from pixy.pipeline.spark.session import open_session

    console.print(f"\nfilling a topic with {MESSAGES:,} messages of {SIZE} bytes ...")
    folder = Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
    kafka = Cluster(heap="768m")
    try:
        proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
        kafka.create_topic("bench", PARTITIONS)
        fill(kafka.bootstrap()[0], "bench", [pad(value) for value in values()], MESSAGES, PARTITIONS)
        peak = memory(kafka.bootstrap()[0], "bench", folder)
        report.add(
            f"peak memory while archiving {MESSAGES:,} messages, driver's JVM",
            f"{peak['jvm']:,.0f} MiB",
            f"<= {MEMORY_MIB} MiB",
            peak["jvm"] <= MEMORY_MIB,
            f"spark.driver.memory is 2g; Python driver {peak['python']:,.0f} MiB",
        )
        spark = open_session("bench", "local[2]")
        try:
            bench_archive(report, spark, proxy, "bench", folder)
        finally:
            spark.stop()
        bench_replay(report, kafka, proxy, "bench", folder)
    finally:
        kafka.close()
        shutil.rmtree(folder, ignore_errors=True)
