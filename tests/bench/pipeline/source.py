"""Compare ``format("pixy")`` with Spark's own Kafka source: counting by batch headers, and reading records."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.pipeline.topics import fill
from tests.bench.report import ROOT, Report, console
from tests.kafka.cluster import Cluster

MESSAGES = 1_000_000
PARTITIONS = 4
ROUNDS = 3

_JVM = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)


def values() -> list[bytes]:
    """Return values of 1 KB each, of which a quarter is noise."""
    chance = random.Random(7)
    return [
        (chance.randbytes(120).hex().encode() + b" the same again and again" * 40)[:1000]
        for _ in range(10_000)
    ]


def _frame(spark: Any, kind: str, bootstrap: str, topic: str, **options: str) -> Any:
    return (
        spark.read.format(kind)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**options)
    )


def count_by_headers(spark: Any, bootstrap: str, topic: str) -> int:
    """Sum the record counts in the batch headers."""
    frame = (
        _frame(spark, "pixy", bootstrap, topic, mode="batches").schema("count int, isControl boolean").load()
    )
    return int(frame.where("not isControl").selectExpr("sum(count)").first()[0])


def count_by_records(spark: Any, bootstrap: str, topic: str) -> int:
    """Count with Spark's source and ``count()``."""
    return int(_frame(spark, "kafka", bootstrap, topic).load().count())


def read_pixy(spark: Any, bootstrap: str, topic: str) -> int:
    """Read the columns that Spark's source has, and discard them."""
    _frame(spark, "pixy", bootstrap, topic).schema(_JVM).load().write.format("noop").mode("overwrite").save()
    return MESSAGES


def read_kafka(spark: Any, bootstrap: str, topic: str) -> int:
    """Read the same columns with Spark's source, and discard them."""
    _frame(spark, "kafka", bootstrap, topic, includeHeaders="true").load().write.format("noop").mode(
        "overwrite"
    ).save()
    return MESSAGES


def processor(pid: int) -> float:
    """Return the processor seconds used by a process and its descendants."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task").glob("*/children")
        below = [int(child) for each in children for child in each.read_text().split()]
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(processor(child) for child in below)


def measure(
    work: Callable[[Any, str, str], int], spark: Any, bootstrap: str, topic: str
) -> tuple[float, float]:
    """Measure records per second, and records per processor second of Spark's JVM and its Python workers.

    Args:
        work: reads the topic and returns its number of records.
        spark: the session.
        bootstrap: a broker's address.
        topic: the topic.
    """
    jvm = spark.sparkContext._gateway.proc.pid
    began, before = time.monotonic(), processor(jvm)
    found = work(spark, bootstrap, topic)
    if found != MESSAGES:
        raise RuntimeError(f"{work.__name__}: {found} of {MESSAGES} records")
    return MESSAGES / (time.monotonic() - began), MESSAGES / (processor(jvm) - before)


def row(report: Report, what: str, ours: Callable[..., int], theirs: Callable[..., int], *args: Any) -> None:
    """Measure both functions in turn, after a round that warms both up, and add a row.

    The figure is by the clock; the detail also has the ratio by processor time, which other processes on the
    machine affect less.

    Args:
        report: takes the row.
        what: the measured thing.
        ours: reads with ``format("pixy")``.
        theirs: reads with Spark's source.
        args: the other arguments of :func:`measure`.
    """
    rates: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for round_ in range(ROUNDS + 1):
        pair = measure(ours, *args), measure(theirs, *args)
        if round_:
            rates.append(pair)
    clock, spent = ([pair[0][by] / pair[1][by] for pair in rates] for by in (0, 1))
    mine, other = (statistics.median(pair[side][0] for pair in rates) for side in (0, 1))
    report.add(
        what,
        f"{statistics.median(clock):.2f} x",
        "reported",
        True,
        f"{mine:,.0f} against {other:,.0f} a second, pairs {min(clock):.2f} to {max(clock):.2f}; "
        f"by processor time {statistics.median(spent):.2f} x",
    )


def run(report: Report) -> None:
    """Fill a topic, measure both sources and add the rows."""
    from pixy.pipeline.datasource import register
    from pixy.pipeline.spark.session import open_session

    console.print(f"\nfilling a topic with {MESSAGES:,} messages of 1 KB in zstd ...")
    kafka = Cluster(heap="768m")
    try:
        kafka.create_topic("source", PARTITIONS)
        bootstrap = kafka.bootstrap()[0]
        fill(bootstrap, "source", values(), MESSAGES, PARTITIONS, "zstd")
        spark = open_session("bench", "local[2]")
        try:
            register(spark)
            args = spark, bootstrap, "source"
            row(
                report,
                "count 1,000,000 compressed messages by batch headers, against count() on Spark's source",
                count_by_headers,
                count_by_records,
                *args,
            )
            row(
                report,
                "read 1,000,000 compressed messages of 1 KB, against Spark's source",
                read_pixy,
                read_kafka,
                *args,
            )
        finally:
            spark.stop()
    finally:
        kafka.close()


if __name__ == "__main__":
    REPORT = Report()
    run(REPORT)
    raise SystemExit(not REPORT.finish(ROOT / "build" / "bench-source.json"))
