"""Fair dispatch: which partition serves the next long poll of a topic.

Round robin by ascending partition, at most one message per partition and pass (the original's
rule; lag-first choice starved partitions there, its issues 36 and 37). Partitions announce how many
messages they could hand out; each assignment of a request uses one up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class RoundRobin:
    """The ready partitions of one topic and whose turn it is."""

    __slots__ = ("_credits", "_last", "_ready")

    def __init__(self) -> None:
        self._ready: list[int] = []
        self._credits: dict[int, int] = {}
        self._last = -1

    def __bool__(self) -> bool:
        return bool(self._ready)

    def announce(self, partition: int, messages: int) -> None:
        """A partition can hand out ``messages`` more."""
        if messages <= 0:
            return
        if partition not in self._credits:
            insort(self._ready, partition)
        self._credits[partition] = self._credits.get(partition, 0) + messages

    def remove(self, partition: int) -> None:
        """A partition is gone or has nothing left."""
        if self._credits.pop(partition, None) is not None:
            del self._ready[bisect_left(self._ready, partition)]

    def restart(self) -> None:
        """The set of partitions changed: begin again at the lowest."""
        self._last = -1

    def next(self) -> int:
        """The partition that serves the next request. Call only if true."""
        at = bisect_right(self._ready, self._last)
        partition = self._ready[at if at < len(self._ready) else 0]
        self._last = partition
        left = self._credits[partition] - 1
        if left:
            self._credits[partition] = left
        else:
            self.remove(partition)
        return partition
