"""Find the messages of a topic that a group has neither read nor acknowledged: ranges of offsets in each partition."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

_RANGE: Final = re.compile(r"(\d+)-(\d+)")


class Unread:
    """Offsets that are there and neither read nor acknowledged.

    The ranges are as many as the group's sparse acks and the gaps between messages that are read out of order.

    Args:
        partitions: of each its number, where the group stands, and the partition's end.
    """

    def __init__(self, partitions: Iterable[tuple[int, int, int]]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for number, position, end in partitions:
            self._ranges[number] = [(position, end)] if position < end else []

    def acknowledged(self, partition: int, committed: int, sparse_acks: str) -> None:
        """Remove what is acknowledged beyond a committed offset.

        Args:
            partition: its number.
            committed: the offset.
            sparse_acks: ranges relative to it, ends exclusive: ``1-2,9-11``.
        """
        for start, stop in _RANGE.findall(sparse_acks):
            self.remove(partition, committed + int(start), committed + int(stop))

    def remove(self, partition: int, start: int, stop: int) -> None:
        """Remove the offsets from ``start`` up to and without ``stop``."""
        kept: list[tuple[int, int]] = []
        for first, end in self._ranges.get(partition, ()):
            kept += [
                each for each in ((first, min(end, start)), (max(first, stop), end)) if each[0] < each[1]
            ]
        self._ranges[partition] = kept

    def stops(self) -> dict[int, int]:
        """Return of each partition that has unread offsets where the last of them ends."""
        return {number: ranges[-1][1] for number, ranges in self._ranges.items() if ranges}

    def count(self, without: Collection[int] = ()) -> int:
        """Return how many offsets are unread, leaving out some partitions."""
        return sum(
            stop - start
            for number, ranges in self._ranges.items()
            if number not in without
            for start, stop in ranges
        )


__all__ = ["Unread"]
