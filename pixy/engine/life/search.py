"""Finds messages by key or header value: reads the newest part of a topic, within bounds. Blocking."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.errors import KafkaError
from pixy.kafka.log_reader import Budget, LogReader
from pixy.wire.record import Record

MOST_MATCHES: Final = 20
"""Messages in an answer, the newest ones."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: a key, or a header's value.

    Attributes:
        key: None if the key does not matter.
        header: name and value; None if headers do not matter.
    """

    key: bytes | None = None
    header: tuple[str, bytes] | None = None

    def matcher(self) -> Callable[[Record], bool]:
        """Return what tells whether a record is one of these."""
        key, header = self.key, self.header
        if header is None:
            return lambda record: record.key == key
        if key is None:
            return lambda record: header in record.headers
        return lambda record: record.key == key and header in record.headers


@dataclass(slots=True)
class Matches:
    """What was found.

    Attributes:
        found: (timestamp in milliseconds, partition, offset), the newest last.
        total: how many match.
        searched: by partition, the first offset that was read and the one after the last.
        ends: by partition, where the search was to end.
        failed: by partition, why it could not be read.
    """

    found: list[tuple[int, int, int]] = field(default_factory=list)
    total: int = 0
    searched: dict[int, tuple[int, int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return it as JSON, the newest message first."""
        return {
            "matches": [
                {"partition": partition, "offset": offset, "timestamp": None if at < 0 else at / 1000}
                for at, partition, offset in sorted(self.found, reverse=True)
            ],
            "total": self.total,
            "searched": [
                {
                    "partition": partition,
                    "from": start,
                    "to": stop,
                    "complete": stop >= self.ends[partition],
                    "failed": self.failed.get(partition, ""),
                }
                for partition, (start, stop) in sorted(self.searched.items())
            ],
        }


def search(
    reader: LogReader, topic: str, ranges: Mapping[int, tuple[int, int]], wanted: Wanted, budget: Budget
) -> Matches:
    """Search a topic.

    Args:
        reader: reads logs.
        topic: where.
        ranges: first offset, and the one after the last, by partition. If the budget is not enough for a partition,
            the newest part of it is read.
        wanted: what to look for.
        budget: is used up, each partition in turn with an equal share of what is left.
    """
    matches, matching = Matches(), wanted.matcher()
    left = len(ranges)
    # The small ones first: what they leave of their shares is for the large ones.
    for partition, (first, stop) in sorted(ranges.items(), key=lambda each: each[1][1] - each[1][0]):
        share = budget.share(left)
        given = share.records, share.size
        left -= 1
        start = max(first, stop - share.records)
        reached = start
        try:
            for record in reader.scan(topic, partition, start, stop, share):
                reached = record.offset + 1
                if matching(record):
                    matches.total += 1
                    heapq.heappush(matches.found, (record.timestamp, partition, record.offset))
                    if len(matches.found) > MOST_MATCHES:
                        heapq.heappop(matches.found)
            if share.left:
                reached = stop
        except KafkaError as error:
            matches.failed[partition] = str(error)
        budget.spend(share, given)
        matches.searched[partition], matches.ends[partition] = (start, reached), stop
    return matches


__all__ = ["MOST_MATCHES", "Matches", "Wanted", "search"]
