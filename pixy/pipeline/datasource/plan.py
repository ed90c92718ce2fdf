"""Ranges of offsets: how much a trigger takes of each partition, and which tasks read it. Pure."""

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
        topic_id: Kafka's UUID of the topic when this was planned; empty where the broker tells none.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int | None
) -> dict[TopicPartition, int]:
    """Where a trigger ends: each partition gets its share of ``limit`` offsets, one at least.

    As Spark's Kafka source does it, so up to a partition's one more than ``limit`` may come of many partitions.
    """
    sizes = {place: end[place] - start[place] for place in end if end[place] > start[place]}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(end)
    # Whole numbers: a float's share of 2^60 offsets is not exact.
    return {
        place: min(until, start[place] + max(1, limit * sizes[place] // total)) if place in sizes else until
        for place, until in end.items()
    }


def split(ranges: Iterable[Range], least: int | None) -> list[Range]:
    """Ranges that hold something, divided so that there are about ``least``: large ones into more parts.

    The rule of Spark's Kafka source (``minPartitions``): a partition's share of the offsets is its share of
    the tasks, and small ones are left whole and out of that sum.
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


__all__ = ["Range", "limited", "split"]
