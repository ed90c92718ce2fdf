"""Gaps and repeats of sequence numbers, and duplicate contents, planted in a real log.

A broker refuses sequence numbers out of order as long as it knows the producer. The broker of these tests
expires producers at once, so it accepts batches like a broker that lost its producers' state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.job import audit
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.summary import summarize
from pixy.wire.batch import Builder
from pixy.wire.client import PartitionProducer
from tests.kafka.cluster import Cluster

pytestmark = pytest.mark.timeout(600)

T = 1_700_000_000_123
OUT_OF_ORDER, DUPLICATE = 45, 46


@pytest.fixture(scope="module")
def expiring() -> Iterator[Cluster]:
    """A broker that expires producers after a moment."""
    cluster = Cluster(
        brief=True,
        properties={"producer.id.expiration.ms": 1, "producer.id.expiration.check.interval.ms": 50},
    )
    try:
        yield cluster
    finally:
        cluster.close()


class Log:
    """A topic with one partition."""

    def __init__(self, kafka: Cluster, name: str, **config: str) -> None:
        self.kafka, self.name = kafka, kafka.create_topic(name, 1, **{"retention.ms": "-1", **config})
        self.proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))

    def numbered(self, producer: int, sequence: int, values: list[bytes], stamp: int) -> int:
        """Write a batch of an idempotent producer; returns its offset."""
        builder = Builder(producer_id=producer, producer_epoch=0, base_sequence=sequence)
        for value in values:
            builder.add(b"k", value, timestamp=stamp)
        deadline = time.monotonic() + 60
        with PartitionProducer(self.kafka.bootstrap()[0], self.name, 0) as client:
            while True:
                end = client.list_offsets().offset
                found = client.produce(builder.build())
                # A broker that still knows the batch answers with its offset and writes nothing.
                if not found.error_code and found.base_offset >= end:
                    return found.base_offset
                assert found.error_code in (0, 3, 6, OUT_OF_ORDER, DUPLICATE), found
                assert time.monotonic() < deadline, "the broker does not expire the producer"
                time.sleep(0.05)

    def produce(self, *values: bytes, stamp: int = T, **config: Any) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap()[0], "linger.ms": 5, **config})
        for value in values:
            producer.produce(self.name, value, b"k", timestamp=stamp)
        assert producer.flush(30) == 0

    def audit(self, spark: Any, folder: Path, **more: Any) -> dict[str, Any]:
        given = {"proxy": self.proxy, "topics": (self.name,), "settle": 0.1, **more}
        return summarize(audit(spark, AuditRequest(str(folder / "audit"), **given), lambda _line: None))


def found(summary: dict[str, Any], kind: str) -> list[tuple[str, int, int, str]]:
    return sorted(
        (row["severity"], row["start"], row["end"], row["why"])
        for row in summary["findings"]
        if row["kind"] == kind
    )


def values(count: int, prefix: bytes = b"v") -> list[bytes]:
    return [b"%s%d" % (prefix, at) for at in range(count)]


def test_a_gap_and_a_repeat_of_sequence_numbers(
    expiring: Cluster, spark: Any, name: str, tmp_path: Path
) -> None:
    log = Log(expiring, name)
    log.numbered(4242, 0, values(5), T)  # 0 to 4
    log.numbered(4242, 5, values(5), T + 1)  # 5 to 9
    log.numbered(4243, 0, values(3, b"w"), T + 2)  # 10 to 12
    log.numbered(4242, 20, values(5), T + 3)  # 13 to 17; 10 to 19 never came
    log.numbered(4243, 0, values(3, b"w"), T + 2)  # 18 to 20: repeats a batch
    log.numbered(4243, 3, values(3, b"w"), T + 4)  # 21 to 23: continues in order
    summary = log.audit(spark, tmp_path)
    assert summary["verdict"] == "loss"
    assert found(summary, "sequence missing") == [
        (
            "loss",
            10,
            13,
            "producer 4242, epoch 0, sequence 10 to 19: sent but never written before offset 13",
        ),
    ]
    assert found(summary, "sequence repeated") == [
        (
            "fault",
            18,
            21,
            "producer 4243, epoch 0, sequence 0 to 2: a retry was written again",
        ),
    ]
    assert found(summary, "written twice") == [
        (
            "fault",
            18,
            21,
            f"same content as {name}/0 from offset 10: the sequence number repeats; a retry was written again",
        ),
    ]
    without = log.audit(spark, tmp_path / "without", sequences=False, contents=False)
    assert (without["verdict"], without["findings"]) == ("clean", [])


def test_duplicate_contents_are_explained_or_not(
    expiring: Cluster, spark: Any, name: str, tmp_path: Path
) -> None:
    from pixy.pipeline.archive.archive import Archive
    from pixy.pipeline.archive.job import Job
    from pixy.pipeline.archive.subscription import Subscription

    log = Log(expiring, name)
    log.produce(b"a", b"b", b"c")  # 0 to 2, not idempotent
    log.produce(b"b", b"c", b"d")  # 3 to 5: b and c again, with the same timestamp
    log.produce(b"b", stamp=T + 1)  # 6: another timestamp makes another message
    log.produce(b"e", b"e", **{"enable.idempotence": True})  # 7 and 8: two messages, numbered
    expected = [
        (
            "explained",
            8,
            9,
            f"same content as {name}/0 from offset 7: sent twice; each has its own sequence number",
        ),
        (
            "fault",
            3,
            5,
            f"same content as {name}/0 from offset 1: the producer is not idempotent, so a retry may have been written again",
        ),
    ]
    summary = log.audit(spark, tmp_path)
    assert found(summary, "written twice") == expected
    assert summary["verdict"] == "fault"

    view, lake = ClusterView(settings.admin(log.proxy)), str(tmp_path / "lake")
    Archive(
        spark, Job("default", log.proxy, lake, Subscription((name,), ""), "job"), view, lambda *_: None
    ).run()
    log.produce(b"d", b"z")  # 9 and 10, above the lake's end; the lake has d
    assert found(log.audit(spark, tmp_path / "lake-and-log", lake=lake), "written twice") == [
        *expected,
        (
            "fault",
            9,
            10,
            f"same content as {name}/0 from offset 5: the producer is not idempotent, so a retry may have been written again",
        ),
    ]
    alone = log.audit(spark, tmp_path / "alone", lake=lake, proxy=None)
    assert [(severity, start, end) for severity, start, end, _ in found(alone, "written twice")] == [
        ("unknown", 3, 5),
        ("unknown", 8, 9),
    ]


def test_compaction_and_real_producers_leave_no_unexplained_gap(
    kafka: Cluster, spark: Any, name: str, tmp_path: Path
) -> None:
    log = Log(
        kafka,
        name,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        },
    )
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap()[0],
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    view = ClusterView(settings.admin(log.proxy))
    producer.produce(name, b"stays", b"the only record of its key")
    deadline, sent = time.monotonic() + 60, 0
    while True:
        for _ in range(20):
            sent += 1
            producer.produce(name, b"%d" % sent, b"key %d" % (sent % 3))
            producer.flush(30)
        summary = log.audit(spark, tmp_path / str(sent), contents=False)
        if found(summary, "sequence missing"):
            break
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.3)
    assert {severity for severity, *_ in found(summary, "sequence missing")} == {"explained"}
    gaps = Intervals.of((start, end) for _, start, end, _ in found(summary, "sequence missing"))
    [(start, end)] = view.bounds([(name, 0)]).values()
    assert gaps and gaps.start >= start and gaps.end <= end
    assert summary["verdict"] == "clean"

    # Transactions, epochs and several producers in one partition are no faults.
    other = Log(kafka, f"{name}-tx")
    transactional = Producer({"bootstrap.servers": kafka.bootstrap()[0], "transactional.id": name})
    transactional.init_transactions(30)
    for number in range(4):
        transactional.begin_transaction()
        for at in range(5):
            transactional.produce(other.name, b"%d-%d" % (number, at))
        (transactional.abort_transaction if number == 2 else transactional.commit_transaction)(30)
        other.produce(b"i%d" % number, stamp=T + number, **{"enable.idempotence": True})
    assert other.audit(spark, tmp_path / "tx")["findings"] == []
