"""The final picture, read by plain consumers: what the topics hold, and every commit ever made.

| file | a line is |
|---|---|
| ``log`` | a partition: ``topic``, ``partition``, ``low``, ``high``, and by record ``offsets``, ``ids``, ``times`` |
| ``commits`` | a committed offset: ``t``, ``group``, ``topic``, ``partition``, ``offset``, ``metadata`` |
| ``groups`` | a change of a group's members or assignment: ``t``, ``group`` |
| ``final`` | ``group``, ``topic``, and by partition what is ``committed`` |

Commits come from ``__consumer_offsets``, with the time at which the broker wrote them. The decoder below is
written for this, from Kafka's schemas, and shares nothing with the product.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.chaos.kit.brokers import insisting
from tests.chaos.kit.consumers import name_of
from tests.chaos.kit.record import Recorder

OFFSETS = "__consumer_offsets"
_OFFSET_KEYS = (0, 1)


def read_partition(bootstrap: str, topic: str, partition: int) -> tuple[int, int, Iterator[Message]]:
    """Read all that a partition holds, without aborted transactions.

    Args:
        bootstrap: brokers.
        topic: its name.
        partition: its number.

    Returns:
        Its first offset, its next offset, and its records.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-snapshot",
            "log_level": 0,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    low, high = insisting(consumer.get_watermark_offsets)(TopicPartition(topic, partition), timeout=30)

    def records() -> Iterator[Message]:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        try:
            while True:
                for message in consumer.consume(5000, 1.0):
                    if message.error() is None:
                        yield message
                    elif message.error().name() == "_PARTITION_EOF":
                        return
                    else:
                        raise RuntimeError(f"{topic}/{partition}: {message.error()}")
        finally:
            consumer.close()

    return low, high, records()


def write_log(records: Recorder, bootstrap: str, partitions: Iterable[tuple[str, int]]) -> dict[Any, int]:
    """Write the contents of partitions down; return the offset after the last record of each."""
    ends: dict[Any, int] = {}
    for topic, partition in partitions:
        low, high, messages = read_partition(bootstrap, topic, partition)
        offsets, ids, times = [], [], []
        for message in messages:
            offsets.append(message.offset())
            ids.append(name_of(message.value() or b"", message.headers() or ()))
            times.append(message.timestamp()[1] / 1000)
        records.write(
            "log",
            topic=topic,
            partition=partition,
            low=low,
            high=high,
            offsets=offsets,
            ids=ids,
            times=times,
        )
        ends[topic, partition] = offsets[-1] + 1 if offsets else low
    return ends


def write_commits(records: Recorder, bootstrap: str, partitions: int) -> None:
    """Write every commit, and every change of a group, down.

    Args:
        records: get them.
        bootstrap: brokers.
        partitions: of ``__consumer_offsets``.
    """
    for partition in range(partitions):
        for message in read_partition(bootstrap, OFFSETS, partition)[2]:
            key, value = message.key(), message.value()
            if key is None:
                continue
            t = message.timestamp()[1] / 1000
            (version,) = struct.unpack_from(">h", key)
            group, at = _text(key, 2)
            if version not in _OFFSET_KEYS:
                records.write("groups", t=t, group=group)
                continue
            topic, at = _text(key, at)
            (number,) = struct.unpack_from(">i", key, at)
            offset, metadata = (-1, "") if value is None else _offset(value)
            records.write(
                "commits", t=t, group=group, topic=topic, partition=number, offset=offset, metadata=metadata
            )


def _offset(value: bytes) -> tuple[int, str]:
    """The offset and the metadata of an OffsetCommitValue."""
    version, offset = struct.unpack_from(">hq", value)
    at = 14 if version >= 3 else 10
    if version < 4:
        return offset, _text(value, at)[0]
    length, shift = 0, 0
    while True:
        byte = value[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return offset, value[at : at + length - 1].decode(errors="replace")


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    at += 2
    return data[at : at + length].decode(errors="replace"), at + length


__all__ = ["OFFSETS", "write_commits", "write_log"]
