"""Topics with every odd record, batch and log that Kafka allows."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from tests.integration.pipeline.support import World, await_markers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T = 1_700_000_000_123
"""A timestamp with milliseconds other than zero."""

RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, None, []),  # neither key nor value
    (b"", b"", []),  # both empty
    (None, b"value", []),
    (b"", b"value", []),
    (b"key", None, []),  # a tombstone
    (b"key", b"", [("h", b"")]),
    (b"key", b"v", [("h", None), ("h", b""), ("h", b"1"), ("h", None)]),  # repeated, null, empty
    (b"key", b"v", [("b", b"2"), ("a", b"1")]),  # order
    (b"key", b"v", [("", b"no name"), ("\u00e9\u4e2d\U0001f600", b"\xff\xfe")]),
    (bytes(range(256)), b"\x00" * 1000, []),
    (b"k" * 300, b"big " * 20_000, [("n" * 300, b"v" * 3000)]),
]


def _producer(world: World, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": world.kafka.bootstrap()[0], "linger.ms": 5, **config})


def _write(producer: Producer, topic: str, partition: int, start: int) -> None:
    for number, (key, value, headers) in enumerate(RECORDS):
        # Days apart and out of order: late records go to their own day.
        timestamp = start + number + (number % 3) * 86_400_000
        producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers or None)
    assert producer.flush(30) == 0


def everything(world: World, topic: str) -> None:
    """Three partitions: every oddity in every codec; transactions, one of them aborted."""
    world.kafka.create_topic(topic, 3, **{"retention.ms": "-1"})
    for number, codec in enumerate(CODECS):
        producer = _producer(world, **{"compression.type": codec})
        _write(producer, topic, number % 3, T + number * 1000)
    transactional = _producer(world, **{"transactional.id": f"{topic}-tx"})
    transactional.init_transactions(30)
    for number, commit in enumerate((True, False, True)):
        transactional.begin_transaction()
        _write(transactional, topic, 2, T + number * 7777)
        if commit:
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)
        await_markers(world.view, (topic, 2))


def appended(world: World, topic: str) -> None:
    """Timestamps of the broker's clock."""
    world.kafka.create_topic(topic, 1, **{"message.timestamp.type": "LogAppendTime"})
    _write(_producer(world), topic, 0, T)


def more(world: World, topic: str) -> None:
    """Write the same records again, to one partition."""
    _write(_producer(world), topic, 0, T)


def compacted(world: World, topic: str) -> None:
    """A log with gaps: 5 keys, whose older values are compacted away."""
    world.kafka.create_topic(
        topic,
        1,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
            "delete.retention.ms": "100000",
        },
    )
    producer = _producer(world)
    deadline = time.monotonic() + 60
    number = 0
    while True:
        for _ in range(20):
            number += 1
            producer.produce(topic, b"value %d" % number, b"key %d" % (number % 5), 0, timestamp=T + number)
        assert producer.flush(30) == 0
        [(start, end)] = world.view.bounds([(topic, 0)]).values()
        count = world.truth(topic)[0].count
        if count < end - start - 20:
            return
        assert time.monotonic() < deadline, "the log cleaner does not run"
        time.sleep(0.3)
