"""Plan ranges of offsets: the share of each partition in a trigger, and the division into tasks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from pixy.wire.types import TopicPartition


@dataclass(frozen=True)
class Range(InputPartition):
    """Offsets ``[start, end)`` of a partition, read by one task.

    Attributes:
        topic_id: Kafka's UUID of the topic when the range was planned; empty if the broker does not send it.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int | None
) -> dict[TopicPartition, int]:
    """Return the end of a trigger: each partition gets its share of ``limit`` offsets, but at least one.

    This is the rule of Spark's Kafka source; with many small partitions the sum exceeds ``limit`` by up to
    one offset per partition.

    Args:
        start: next offset of each partition.
        end: end of each partition.
        limit: number of offsets; None for no limit.
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(end)
    # Integers, because a float's share of 2^60 offsets is not exact.
    return {
        tp: min(until, start[tp] + max(1, limit * sizes[tp] // total)) if tp in sizes else until
        for tp, until in end.items()
    }


def split(ranges: Iterable[Range], least: int | None) -> list[Range]:
    """Divide ranges into about ``least`` tasks; empty ranges are left out.

    This is the rule of Spark's Kafka source (``minPartitions``): a partition's share of the tasks is its
    share of the offsets; small ranges stay whole and do not count for the shares of the others.

    Args:
        ranges: the ranges to divide.
        least: number of tasks; None leaves ranges whole.
    """
    found = [each for each in ranges if each.size > 0]
    if least is None or len(found) >= least:
        return found
    total = sum(each.size for each in found)
    whole = {id(each) for each in found if _parts(each.size, total, least) == 1}
    rest = sum(each.size for each in found if id(each) not in whole)
    tasks = max(least - len(whole), 1)
    divided: list[Range] = []
    for each in found:
        divided += _divide(each, 1 if id(each) in whole else _parts(each.size, rest, tasks))
    return divided


def _parts(size: int, total: int, least: int) -> int:
    return max(math.floor(size / total * least + 0.5), 1)


def _divide(whole: Range, parts: int) -> list[Range]:
    found, start = [], whole.start
    for part in range(parts):
        end = start + (whole.end - start) // (parts - part)
        if end > start:
            found.append(replace(whole, start=start, end=end))
        start = end
    return found


__all__ = ["Range", "limit_offsets", "split"]
