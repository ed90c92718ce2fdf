"""Measure audits of ten million journal events and of fewer on ``local[2]``: is the cost linear?

An audit has a fixed cost (Spark plans, compiles, starts workers), which could hide a cost that grows too
fast: with it, a quadratic audit could take only 2.2 times as long for twice the events. So the cost of an
audit of few events is measured and subtracted. The comparison uses processor time, because other processes
affect the clock's time more.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from pixy.config import Kafka, Proxy
from pixy.errors import KafkaError
from pixy.journal import HEARTBEAT, Kind, Stream, encode
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.consumer import Commit
from tests.bench.report import ROOT, Report, console
from tests.kafka.cluster import Cluster

EVENTS = 10_000_000
SECONDS = 120.0
FEW = EVENTS // 100
ROUNDS = 5
LINEAR = 2.2
"""Bound on the cost of twice the events, the fixed cost subtracted."""

PARTITIONS = 8
BATCH = 1000
START = 1_790_000_000_000_000


def write_journal(bootstrap: str, journal: str, topic: str, events: int) -> list[int]:
    """Write a journal: each message is produced, offered and acknowledged, each fiftieth is offered again.

    Args:
        bootstrap: a broker's address.
        journal: the journal's topic.
        topic: the topic that the events are about; its messages are not written.
        events: the least number of events.

    Returns:
        The number of messages by partition.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "zstd",
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    produced = [Stream(topic, at) for at in range(PARTITIONS)]
    consumed = [Stream(topic, at, "billing", at + 1) for at in range(PARTITIONS)]
    offsets = [0] * PARTITIONS
    waiting: list[Any] = []
    made = sequence = at = 0
    while made < events:
        partition, now = at % PARTITIONS, START + at * 2600
        offset, stamp = offsets[partition], now // 1000
        offsets[partition] += 1
        group = consumed[partition]
        waiting += (
            (Kind.PRODUCED, now, produced[partition], offset, 0, stamp, 900 + at % 700, 0, 1),
            (Kind.OFFERED, now + 1500, group, offset, 0, stamp, 1500 + at % 3000, 0, 0),
            (Kind.ACKED, now + 5000, group, offset, 0, stamp, 3500 + at % 900, 0, 0),
        )
        if at % 50 == 0:
            waiting.append((Kind.OFFERED, now + 9000, group, offset, 1, stamp, 9500, 0, 0))
        at += 1
        if len(waiting) >= BATCH:
            made += len(waiting)
            producer.produce(journal, _batch(sequence, waiting, now, final=made >= events), "kp_bench")
            producer.poll(0)
            sequence, waiting = sequence + 1, []
    producer.flush()
    return offsets


def _batch(sequence: int, events: list[Any], now: int, *, final: bool) -> bytes:
    return encode(
        "kp_bench", START, sequence, events, time=now, heartbeat=round(HEARTBEAT * 1e6), final=final
    )


def _commit(proxy: Proxy, topic: str, offsets: list[int]) -> None:
    commits = [Commit(topic, at, offset, "") for at, offset in enumerate(offsets)]
    for _ in range(100):
        try:
            return ClusterView(settings.admin(proxy)).commit("billing", commits)
        except KafkaError:  # a new group's coordinator needs some time
            time.sleep(0.2)
    raise RuntimeError("the group's offsets cannot be committed")


def _audit(spark: Any, cluster: Cluster, journal: str, topic: str, folder: str, offsets: list[int]) -> float:
    from pixy.pipeline.audit import output
    from pixy.pipeline.audit.job import audit
    from pixy.pipeline.audit.report import render
    from pixy.pipeline.audit.request import AuditRequest
    from pixy.pipeline.audit.summary import summarize

    proxy = Proxy(kafka=Kafka(seed_peers=cluster.bootstrap()))
    _commit(proxy, topic, offsets)
    request = AuditRequest(
        folder, cluster="default", proxy=proxy, topics=(topic,), journal=journal, log=False, settle=0.0
    )
    began = time.monotonic()
    result = audit(spark, request, lambda _line: None)
    summary = summarize(result)
    output.write(result, summary, render(result, summary))
    took = time.monotonic() - began
    total = sum(offsets)
    (group,) = summary["groups"]
    # The messages were never written to the topic, so the audit must report all of them as lost.
    found = (summary["topics"][0]["log_lost"], group["offered"], group["acked"], group["lost"])
    if found != (total, total, total, 0):
        raise RuntimeError(f"{found}, {total} messages")
    return took


def run(report: Report) -> None:
    """Write the journals, run the audits and add the rows."""
    from pixy.pipeline.spark.session import open_session

    cluster = Cluster()
    folder = tempfile.mkdtemp(prefix="audit-")
    try:
        journals = {}
        for events in (FEW, EVENTS // 2, EVENTS):
            name = f"journal-{events}"
            cluster.create_topic(name, 1)
            cluster.create_topic(f"orders-{events}", PARTITIONS)
            began = time.monotonic()
            journals[events] = write_journal(cluster.bootstrap()[0], name, f"orders-{events}", events)
            console.print(f"  {events:,} events written in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        spark = open_session("bench", "local[2]")
        start = time.monotonic() - began
        took: dict[int, list[float]] = {events: [] for events in journals}
        used: dict[int, list[float]] = {events: [] for events in journals}
        try:
            for number, events in enumerate((EVENTS // 2, *list(journals) * ROUNDS)):
                before = _processor()
                seconds = _audit(
                    spark,
                    cluster,
                    f"journal-{events}",
                    f"orders-{events}",
                    str(Path(folder, str(number))),
                    journals[events],
                )
                if number:  # the first audit warms up the JVM
                    took[events].append(seconds)
                    used[events].append(_processor() - before)
        finally:
            spark.stop()
        _rows(report, start, took, used)
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


def _processor() -> float:
    """Return the processor seconds of this process, Spark's JVM and its Python workers."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = 0.0
    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            # A parent's children_user and children_system count its children that have ended.
            found += times.user + times.system + times.children_user + times.children_system
    return found


def _rows(report: Report, start: float, took: dict[int, list[float]], used: dict[int, list[float]]) -> None:
    whole = max(took[EVENTS])
    # Other processes also raise processor time (caches, the collector), so the minimum is the best estimate.
    few, half, every = (min(used[events]) for events in (FEW, EVENTS // 2, EVENTS))
    growth = (every - few) / (half - few)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.add(
        f"audit of {EVENTS:,} journal events, local[2]",
        f"{whole:.0f} s",
        f"<= {SECONDS:.0f} s",
        whole <= SECONDS,
        f"{EVENTS / whole:,.0f} a second, without Spark's start of {start:.0f} s; {memory:.0f} MiB in the Python driver",
    )
    report.add(
        "the same, against half the events, processor time",
        f"{growth:.2f} x",
        f"<= {LINEAR} x",
        growth <= LINEAR,
        f"{every:.1f} s against {half:.1f} s, of which {few:.1f} s are fixed (as for {FEW:,} events); by the clock "
        f"{min(took[EVENTS // 2]):.0f} s for half",
    )


if __name__ == "__main__":
    REPORT = Report()
    run(REPORT)
    raise SystemExit(not REPORT.finish(ROOT / "build" / "bench-audit.json"))
