"""Each reason of missing offsets, produced on a real broker and recognized."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit.gaps import Gap, PartitionLog, Reason, explain_gaps
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.log_scan import scan_log
from pixy.pipeline.datasource.access import from_proxy
from pixy.pipeline.errors import SourceError
from tests.integration.pipeline.support import await_markers
from tests.kafka.cluster import Cluster


class Topic:
    """A topic with one partition, written and read with confluent-kafka."""

    def __init__(self, kafka: Cluster, name: str, **config: str) -> None:
        self.kafka, self.name = kafka, kafka.create_topic(name, 1, **config)
        self.proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
        self.view = ClusterView(settings.admin(self.proxy))

    def producer(self, **more: str) -> Producer:
        return Producer({"bootstrap.servers": self.kafka.bootstrap()[0], "linger.ms": 50, **more})

    def produce(self, count: int, key: Callable[[int], str] = str, **more: str) -> None:
        producer = self.producer(**more)
        for at in range(count):
            producer.produce(self.name, b"v" * 20, key(at))
        producer.flush()

    def transaction(self, count: int, *, commit: bool) -> None:
        producer = self.producer(**{"transactional.id": f"{self.name}-{commit}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for at in range(count):
            producer.produce(self.name, b"t", str(at))
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        await_markers(self.view, (self.name, 0))

    @property
    def bounds(self) -> tuple[int, int]:
        return self.view.bounds([(self.name, 0)])[self.name, 0]

    def read(self) -> set[int]:
        """Return the offsets that a read_committed consumer gets."""
        start, _ = self.bounds
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap()[0],
                "group.id": "unused",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(self.name, 0, start)])
        found = set()
        while True:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                break
            found.add(message.offset())
        consumer.close()
        return found

    def log(self, missing: Intervals) -> PartitionLog:
        start, end = self.bounds
        config = self.view.configs([self.name])[self.name]
        return PartitionLog(
            start,
            end,
            scan_log(from_proxy(self.proxy), self.name, 0, missing, start),
            compacted="compact" in config["cleanup.policy"],
            deleting="delete" in config["cleanup.policy"],
            retention_ms=int(config["retention.ms"]),
            retention_bytes=int(config["retention.bytes"]),
            now=time.time_ns() // 1_000_000,
        )

    def gaps(self, *lost: int) -> list[Gap]:
        """Explain the offsets that a consumer does not get, and those in ``lost``."""
        missing = Intervals.span(0, self.bounds[1]) - Intervals.offsets(self.read() - set(lost))
        return explain_gaps(missing, self.log(missing))


def until(check: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)


def reasons(gaps: list[Gap]) -> list[tuple[int, int, Reason]]:
    return [(gap.start, gap.end, gap.reason) for gap in gaps]


def test_transactions_leave_markers_and_aborted_records(kafka: Cluster, name: str) -> None:
    topic = Topic(kafka, name)
    topic.produce(3)  # 0 1 2
    topic.transaction(4, commit=True)  # 3 to 6, marker 7
    topic.transaction(5, commit=False)  # 8 to 12, marker 13
    topic.produce(2)  # 14 15
    assert reasons(topic.gaps()) == [
        (7, 8, Reason.MARKER),
        (8, 13, Reason.ABORTED),
        (13, 14, Reason.MARKER),
    ]


def test_records_that_only_the_broker_has_are_lost(kafka: Cluster, name: str) -> None:
    topic = Topic(kafka, name)
    began = time.time_ns() // 1_000_000
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic.produce(10, **{"compression.type": codec})
    topic.transaction(2, commit=False)
    gaps = topic.gaps(4, 17, 18, 33, 49)
    assert reasons(gaps) == [
        (4, 5, Reason.LOSS),
        (17, 19, Reason.LOSS),
        (33, 34, Reason.LOSS),
        (49, 50, Reason.LOSS),
        (50, 52, Reason.ABORTED),
        (52, 53, Reason.MARKER),
    ]
    missing = Intervals.offsets([4, 33])
    timestamps = dict(pair for span in topic.log(missing).spans for pair in span.timestamps)
    assert set(timestamps) == {4, 33}
    ended = time.time_ns() // 1_000_000
    assert all(began <= timestamp <= ended for timestamp in timestamps.values())


def test_compaction_removes_older_records(kafka: Cluster, name: str) -> None:
    topic = Topic(
        kafka,
        name,
        **{
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": "100",
        },
    )
    topic.produce(40, key=lambda at: f"k{at % 4}")
    until(lambda: _rolled_and_cleaned(topic), "nothing was compacted")
    gaps = topic.gaps(39)
    assert gaps[0].start == 0, "compaction removed the older records of each key"
    assert [each for each in reasons(gaps) if each[2] is not Reason.COMPACTION] == [(39, 40, Reason.LOSS)]


def _rolled_and_cleaned(topic: Topic) -> bool:
    topic.produce(1, key=lambda _at: "roll")  # Kafka rolls a segment only when it appends to it
    return 0 not in topic.read()


def test_retention_removes_old_segments(kafka: Cluster, name: str) -> None:
    topic = Topic(kafka, name, **{"retention.ms": "1000", "segment.ms": "200"})
    topic.produce(10)
    until(lambda: _expired(topic), "nothing has expired")
    gaps = topic.gaps()
    assert (gaps[0].start, gaps[0].reason) == (0, Reason.RETENTION)
    assert 10 <= gaps[0].end <= topic.bounds[0]


def _expired(topic: Topic) -> bool:
    topic.produce(1)  # Kafka rolls a segment only when it appends to it
    return topic.bounds[0] >= 10


def test_delete_records_cuts_inside_a_batch_or_between_batches(kafka: Cluster, name: str) -> None:
    inside, between = Topic(kafka, name), Topic(kafka, f"{name}-b", **{"retention.ms": "-1"})
    for topic, at in ((inside, 7), (between, 10)):
        for _ in range(2):
            topic.produce(10)
        kafka.delete_records(topic.name, 0, at)
        until(lambda topic=topic, at=at: topic.bounds[0] == at, "the log's start does not move")
        gaps = topic.gaps(15)
        assert reasons(gaps) == [(0, at, Reason.DELETED), (15, 16, Reason.LOSS)]
    assert (
        "inside the batch of 0"
        in explain_gaps(Intervals.span(0, 5), inside.log(Intervals.span(0, 5)))[0].evidence
    )


def test_a_topic_that_does_not_exist_is_an_error(kafka: Cluster, name: str) -> None:
    proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
    with pytest.raises(SourceError, match=f"{name}/0: the log cannot be scanned"):
        scan_log(from_proxy(proxy), name, 0, Intervals.span(0, 5), 0)
