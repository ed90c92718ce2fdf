"""The final picture, read by plain consumers: what the topics hold, and every commit ever made.

| file | a line is |
|---|---|
| ``lives`` | the same of a topic that is about to be deleted, with ``t``, when it began to be read |
| ``log`` | a partition: ``topic``, ``partition``, ``low``, ``high``, and by record ``offsets``, ``ids``, ``times`` |
| ``commits`` | a committed offset: ``t``, ``group``, ``topic``, ``partition``, ``offset``, ``metadata`` |
| ``groups`` | a change of a group's members or assignment: ``t``, ``group``; of those in ZooKeeper from :mod:`tests.chaos.kit.zookeeper_groups` |
| ``final`` | ``group``, ``topic``, and by partition what is ``committed`` |

Commits come from ``__consumer_offsets``, with the time at which the broker wrote them. The decoder below is
written for this, from Kafka's schemas, and shares nothing with the product.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.chaos.kit.brokers import UNREACHABLE, insisting
from tests.chaos.kit.consumers import name_of
from tests.chaos.kit.record import Recorder

OFFSETS = "__consumer_offsets"
_OFFSET_KEYS = (0, 1)
NO_HURRY = 1e9
LIFE_WITHIN = 10.0
"""Seconds in which a topic must be read before it is deleted."""
WAIT = 0.1
"""Seconds to wait for more records of a batch, and at the end."""


def read_partitions(
    bootstrap: str, partitions: Iterable[tuple[str, int]], within: float | None = None
) -> tuple[dict[tuple[str, int], tuple[int, int]], Iterator[Message]]:
    """Read all that partitions hold, without aborted transactions.

    One consumer reads them all: one that waits for the end of each partition needs a second for each.

    Args:
        bootstrap: brokers.
        partitions: names of topics and numbers of partitions.
        within: seconds, after which it raises TimeoutError, and no look-up is tried again; None to insist.

    Returns:
        The first and the next offset of each, and the records, of each partition in their order.
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
    look = consumer.get_watermark_offsets
    watermarks = insisting(look) if within is None else look
    deadline = time.monotonic() + (NO_HURRY if within is None else within)

    def patience() -> float:
        return max(0.1, min(30.0, deadline - time.monotonic()))

    bounds = {each: watermarks(TopicPartition(*each), timeout=patience()) for each in partitions}

    def records() -> Iterator[Message]:
        consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in bounds])
        left = set(bounds)
        try:
            while left:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not read in time: {left}")
                for message in consumer.consume(5000, WAIT):
                    if message.error() is None:
                        yield message
                    elif message.error().name() == "_PARTITION_EOF":
                        left.discard((message.topic(), message.partition()))
                    else:
                        where = f"{message.topic()}/{message.partition()}"
                        raise RuntimeError(f"{where}: {message.error()}")
        finally:
            consumer.close()

    return bounds, records()


def write_log(records: Recorder, bootstrap: str, partitions: Iterable[tuple[str, int]]) -> dict[Any, int]:
    """Write the contents of partitions down; return the offset after the last record of each.

    Args:
        records: get a line for each.
        bootstrap: addresses of brokers, separated by commas.
        partitions: topic and number of each.
    """
    bounds, messages = read_partitions(bootstrap, partitions)
    found = _contents(bounds, messages)
    # What expired while the others were read is gone from the beginning of its log.
    lows = _lows(bootstrap, bounds)
    ends: dict[Any, int] = {}
    for (topic, partition), (_, high) in bounds.items():
        offsets, ids, times = found[topic, partition]
        low = lows[topic, partition]
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


def _contents(
    partitions: Iterable[tuple[str, int]], messages: Iterable[Message]
) -> dict[Any, tuple[list[int], list[str], list[float]]]:
    """Return the offsets, ids and times of the records of each partition."""
    found: dict[Any, tuple[list[int], list[str], list[float]]] = {each: ([], [], []) for each in partitions}
    for message in messages:
        offsets, ids, times = found[message.topic(), message.partition()]
        offsets.append(message.offset())
        ids.append(name_of(message.value() or b"", message.headers() or ()))
        times.append(message.timestamp()[1] / 1000)
    return found


def write_life(records: Recorder, bootstrap: str, topic: str, partitions: int) -> bool:
    """Write down what a topic holds that is about to be deleted, unless another fault is in the way; return whether.

    Args:
        records: get it.
        bootstrap: brokers.
        topic: its name.
        partitions: how many it has.
    """
    t = time.time()
    try:
        wanted = [(topic, number) for number in range(partitions)]
        bounds, messages = read_partitions(bootstrap, wanted, LIFE_WITHIN)
        found = _contents(bounds, messages)
    except (*UNREACHABLE, RuntimeError, TimeoutError):
        return False
    if any(high > (found[each][0][-1] + 1 if found[each][0] else 0) for each, (_, high) in bounds.items()):
        return False  # a new leader that does not show all yet
    for (_, number), (low, high) in bounds.items():
        offsets, ids, times = found[topic, number]
        about = {"t": t, "topic": topic, "partition": number, "low": low, "high": high}
        records.write("lives", **about, offsets=offsets, ids=ids, times=times)
    return True


def _lows(bootstrap: str, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the first offset of each partition now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "chaos-snapshot", "log_level": 0})
    watermarks = insisting(consumer.get_watermark_offsets)
    try:
        return {each: watermarks(TopicPartition(*each), timeout=30)[0] for each in partitions}
    finally:
        consumer.close()


def write_commits(records: Recorder, bootstrap: str, partitions: int) -> None:
    """Write every commit, and every change of a group, down.

    Args:
        records: get them.
        bootstrap: brokers.
        partitions: of ``__consumer_offsets``.
    """
    _, messages = read_partitions(bootstrap, [(OFFSETS, number) for number in range(partitions)])
    for message in messages:
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
    """Return the offset and the metadata of an OffsetCommitValue."""
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


__all__ = ["OFFSETS", "write_commits", "write_life", "write_log"]
