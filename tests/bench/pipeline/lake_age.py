"""Compare a batch's fixed cost in a young lake with that in one of a million commits, which a year of one every 30 s makes.

The old lake is made, not grown: the table of ranges has all entries, Delta's log a checkpoint and a week of commits.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pixy.config import Kafka, Proxy
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import describe_file
from pixy.pipeline.lake.entry import BATCH
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.ranges_table import APP, SCHEMA
from tests.bench.pipeline.topics import fill
from tests.bench.report import Report, console
from tests.kafka.cluster import Cluster

YOUNG, OLD = 100, 1_000_000
PARTITIONS = 4
WEEK = 20_160
"""Commits that Delta's log still has."""
LIVE_FILES = 2000
RATIO = 1.5
BATCHES, RECORDS = 12, 200
_STEP = 100_000


def rows(first: int, end: int) -> pa.Table:
    """Make the rows of entries of an archived topic."""
    seq = np.repeat(np.arange(first, end), PARTITIONS)
    known: dict[str, Any] = {
        "seq": seq,
        "previous": [f"sha256:{each - 1:064x}" for each in seq],
        "digest": [f"sha256:{each:064x}" for each in seq],
        "version": seq + 1,
        "kind": [BATCH] * len(seq),
        "published": seq,
        "job": ["bench"] * len(seq),
        "batch": seq,
        "isolation": ["read_committed"] * len(seq),
        "events": [[]] * len(seq),
        "row": np.tile(np.arange(PARTITIONS), end - first),
        "topic": ["old"] * len(seq),
        "topic_id": ["id"] * len(seq),
        "partition": np.tile(np.arange(PARTITIONS), end - first),
        "start": seq * 10,
        "end": seq * 10 + 10,
        "checksum": [f"{each:016x}" for each in seq],
        "content_checksum": [f"{each:016x}" for each in seq],
        "skipped": [""] * len(seq),
    }
    filled = [pa.array(known.get(each.name, [1] * len(seq)), each.type) for each in SCHEMA]
    return pa.table(filled, schema=SCHEMA)


def make_lake(folder: Path, commits: int, cluster_id: str) -> None:
    """Make a lake that looks as if it had so many commits."""
    lake = Lake.open_or_create(str(folder), "main", cluster_id)
    DeltaTable.create(str(folder / "ranges"), SCHEMA)
    for first in range(0, commits, _STEP):
        end = min(commits, first + _STEP)
        done = CommitProperties(app_transactions=[Transaction(APP, end)])
        write_deltalake(
            DeltaTable(str(folder / "ranges")), rows(first, end), mode="append", commit_properties=done
        )
    stats = {0: Stats(10, 100, 0, 9, 1, 2, 3, 4)}
    files = [
        describe_file(f"bench/x/{number}.parquet", "old", "2023-11-14", 1000, stats, "id")
        for number in range(min(commits, LIVE_FILES))
    ]
    app = f"kafka-pixy-lake-{lake.identity.id}"
    last = {app: commits - 1, f"{app}-bench": commits - 1}
    lake.table.commit(files, [], "", last, published=1, changes=True)
    DeltaTable(str(folder / "data")).create_checkpoint()
    log = folder / "data" / "_delta_log"
    (log / f"{1:020d}.checkpoint.parquet").rename(log / f"{commits:020d}.checkpoint.parquet")
    pointer = json.loads((log / "_last_checkpoint").read_text())
    (log / "_last_checkpoint").write_text(json.dumps({**pointer, "version": commits}))
    commit = (log / f"{1:020d}.json").read_text().splitlines()[0]
    for path in log.glob("*.json"):
        path.unlink()
    for version in range(max(0, commits - WEEK) + 1, commits + 1):
        (log / f"{version:020d}.json").write_text(f"{commit}\n")


def batch_seconds(spark: Any, proxy: Proxy, folder: Path, topic: str) -> tuple[float, float]:
    """Archive batches of a few records; return the time to open the lake, and the median of a batch, in seconds."""
    from pixy.pipeline.archive.archive import Archive, admin_view
    from pixy.pipeline.archive.job import Job
    from pixy.pipeline.archive.subscription import Subscription

    began = time.monotonic()
    Lake.open(str(folder)).ledger()
    opened = time.monotonic() - began
    ends: list[float] = []

    def note(*_: Any) -> None:
        ends.append(time.monotonic())

    job = Job("main", proxy, str(folder), Subscription((topic,)), "bench", batch_records=RECORDS)
    Archive(spark, job, admin_view(proxy), note).run()
    return opened, statistics.median(after - before for before, after in pairwise(ends[1:]))


def run(report: Report) -> None:
    """Measure both lakes, the young one before and after the old one, and add the row."""
    from pixy.pipeline.archive.archive import admin_view
    from pixy.pipeline.spark.session import open_session

    folder = Path(tempfile.mkdtemp(prefix="bench-age-"))
    kafka = Cluster(heap="512m")
    try:
        proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
        cluster_id = admin_view(proxy).cluster_id()
        console.print(f"\nmaking lakes of {YOUNG:,} and {OLD:,} commits ...")
        for commits in (YOUNG, OLD):
            make_lake(folder / str(commits), commits, cluster_id)
        spark = open_session("bench", "local[2]")
        try:
            found: dict[int, list[tuple[float, float]]] = {YOUNG: [], OLD: []}
            for round_, commits in enumerate((YOUNG, YOUNG, OLD, YOUNG, OLD)):
                topic = f"age-{round_}"
                kafka.create_topic(topic, 1)
                fill(kafka.bootstrap()[0], topic, [b"value"], BATCHES * RECORDS, 1)
                measured = batch_seconds(spark, proxy, folder / str(commits), topic)
                if round_:  # the first round warms up the JVM
                    found[commits].append(measured)
        finally:
            spark.stop()
        young, old = (statistics.mean(each for _, each in found[commits]) for commits in (YOUNG, OLD))
        report.add(
            f"a batch's fixed cost at {OLD:,} commits, against that at {YOUNG:,}",
            f"{old / young:.2f} x",
            f"<= {RATIO:g} x",
            old / young <= RATIO,
            f"{old:.2f} s against {young:.2f} s; a job opens the old lake in {max(each for each, _ in found[OLD]):.0f} s",
        )
    finally:
        kafka.close()
        shutil.rmtree(folder, ignore_errors=True)
