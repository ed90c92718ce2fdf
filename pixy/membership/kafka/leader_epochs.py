"""The leader epochs of a partition's messages, for its commits (KIP-320). Pure.

A commit names the epoch of the last message below its offset. When the group comes back after an unclean election, the epoch tells that
other messages have this offset now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

UNKNOWN: Final = -1
"""Kafka's number for no epoch."""
_MOST = 64
"""Ranges that are kept, the last ones: a new one begins with each election."""


class LeaderEpochs:
    """Knows the epochs of the offsets that have come last.

    Args:
        committed: the offset that the group has committed; None if there is none.
        epoch: that the commit named.
    """

    __slots__ = ("_ranges",)

    def __init__(self, committed: int | None = None, epoch: int = UNKNOWN) -> None:
        # First offset, last offset, epoch: in order, and no two of them overlap.
        self._ranges: deque[tuple[int, int, int]] = deque(maxlen=_MOST)
        if committed is not None and epoch != UNKNOWN:
            self._ranges.append((committed - 1, committed - 1, epoch))

    def note(self, records: Sequence[Any]) -> None:
        """Note the epochs of messages.

        Args:
            records: confluent-kafka's, of one partition, in order; at least one.
        """
        first, last = records[0], records[-1]
        begin, epoch = first.offset(), _epoch(first)
        self._cut(begin)
        if epoch == _epoch(last):  # nearly always
            self._extend(begin, last.offset(), epoch)
            return
        for record in records:
            self._extend(record.offset(), record.offset(), _epoch(record))

    def before(self, offset: int) -> int:
        """Return the epoch of the message before an offset; :data:`UNKNOWN` if no message is known there.

        Behind the last message of a range there may be transaction markers of a later epoch.
        """
        for first, last, epoch in reversed(self._ranges):
            if first < offset <= last + 1:
                return epoch
        return UNKNOWN

    def _cut(self, begin: int) -> None:
        """Forget what was known from an offset on: it is fetched again."""
        ranges = self._ranges
        while ranges and ranges[-1][1] >= begin:
            first, _, epoch = ranges.pop()
            if first < begin:
                ranges.append((first, begin - 1, epoch))

    def _extend(self, first: int, last: int, epoch: int) -> None:
        if epoch == UNKNOWN:
            return
        ranges = self._ranges
        if ranges and ranges[-1][2] == epoch:
            first = ranges.pop()[0]
        ranges.append((first, last, epoch))


def _epoch(record: Any) -> int:
    """Return a message's leader epoch; brokers with old message formats have none."""
    found = record.leader_epoch()
    return UNKNOWN if found is None else int(found)


__all__ = ["UNKNOWN", "LeaderEpochs"]
