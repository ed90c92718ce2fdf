"""``format("pixy")`` against Spark's own Kafka source: counting by headers, and reading records."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from tests.bench.report import ROOT, Report, console
from tests.kafka.cluster import Cluster

MESSAGES = 1_000_000
PARTITIONS = 4
ROUNDS = 3
COUNT, READ = 2.0, 0.35

_JVM = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)


def fill(bootstrap: str, topic: str) -> None:
    """A million messages of 1 KB in zstd, a quarter of them noise."""
    chance = random.Random(7)
    pool = [
        (chance.randbytes(120).hex().encode() + b" the same again and again" * 40)[:1000] for _ in range(10_000)
    ]
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 20, "compression.type": "zstd",
        "queue.buffering.max.kbytes": 1 << 19,
    })
    for at in range(MESSAGES):
        while True:
            try:
                producer.produce(topic, pool[at % len(pool)], b"%d" % at, at % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _frame(spark: Any, kind: str, bootstrap: str, topic: str, **options: str) -> Any:
    return spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).options(**options)


def count_by_headers(spark: Any, bootstrap: str, topic: str) -> int:
    """The sum of the batches' counts."""
    frame = _frame(spark, "pixy", bootstrap, topic, mode="batches").schema("count int, isControl boolean").load()
    return int(frame.where("not isControl").selectExpr("sum(count)").first()[0])


def count_by_records(spark: Any, bootstrap: str, topic: str) -> int:
    """``count()`` of Spark's source."""
    return int(_frame(spark, "kafka", bootstrap, topic).load().count())


def read_pixy(spark: Any, bootstrap: str, topic: str) -> int:
    """The columns of Spark's source, to nowhere."""
    _frame(spark, "pixy", bootstrap, topic).schema(_JVM).load().write.format("noop").mode("overwrite").save()
    return MESSAGES


def read_kafka(spark: Any, bootstrap: str, topic: str) -> int:
    """The same by Spark's source."""
    _frame(spark, "kafka", bootstrap, topic, includeHeaders="true").load().write.format("noop").mode("overwrite").save()
    return MESSAGES


def rate(work: Callable[[Any, str, str], int], spark: Any, bootstrap: str, topic: str) -> float:
    """Records a second."""
    began = time.monotonic()
    found = work(spark, bootstrap, topic)
    if found != MESSAGES:
        raise RuntimeError(f"{work.__name__}: {found} of {MESSAGES} records")
    return MESSAGES / (time.monotonic() - began)


def alternate(
    ours: Callable[..., int], theirs: Callable[..., int], *args: Any
) -> tuple[list[float], list[float]]:
    """Rates in turn; the first round warms both up."""
    rates: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 1):
        pair = rate(ours, *args), rate(theirs, *args)
        if round_:
            for each, found in zip(rates, pair, strict=True):
                each.append(found)
    return rates


def run(report: Report) -> None:
    """Add the rows."""
    from pixy.pipeline.datasource import register
    from pixy.pipeline.session import open_session

    console.print(f"\nfilling a topic with {MESSAGES:,} messages of 1 KB in zstd ...")
    kafka = Cluster(heap="768m")
    try:
        kafka.create_topic("source", PARTITIONS)
        bootstrap = kafka.bootstrap()[0]
        fill(bootstrap, "source")
        spark = open_session("bench", "local[2]")
        try:
            register(spark)
            report.times(
                "counting 1,000,000 compressed messages by headers, of count() on Spark's source", COUNT,
                *alternate(count_by_headers, count_by_records, spark, bootstrap, "source"),
            )
            report.ratio(
                "reading 1,000,000 compressed messages of 1 KB, of Spark's source", READ,
                *alternate(read_pixy, read_kafka, spark, bootstrap, "source"),
            )
        finally:
            spark.stop()
    finally:
        kafka.close()


if __name__ == "__main__":
    REPORT = Report()
    run(REPORT)
    raise SystemExit(not REPORT.finish(ROOT / "build" / "bench-source.json"))
