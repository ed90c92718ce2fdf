"""Fair dispatch: which partition serves the next long poll of a topic.

Round robin by ascending partition, at most one message per partition and pass. This is the original's
rule; choosing the largest lag first starved partitions there (its issues 36 and 37). Partitions announce
how many requests they can serve; each request that is assigned uses up one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class RoundRobin:
    """The ready partitions of one topic, and the one whose turn it is. True while any is ready."""

    __slots__ = ("_credits", "_last", "_ready")

    def __init__(self) -> None:
        self._ready: list[int] = []
        self._credits: dict[int, int] = {}
        self._last = -1

    def __bool__(self) -> bool:
        return bool(self._ready)

    def announce(self, partition: int, messages: int) -> None:
        """Note that a partition can serve more requests.

        Args:
            partition: its number.
            messages: requests in addition to those announced before; 0 or fewer change nothing.
        """
        if messages <= 0:
            return
        if partition not in self._credits:
            insort(self._ready, partition)
        self._credits[partition] = self._credits.get(partition, 0) + messages

    def remove(self, partition: int) -> None:
        """Drop a partition that is released or has no message left."""
        if self._credits.pop(partition, None) is not None:
            del self._ready[bisect_left(self._ready, partition)]

    def restart(self) -> None:
        """Begin again at the lowest partition, after the set of partitions has changed."""
        self._last = -1

    def next(self) -> int:
        """Choose the partition that serves the next request. Call it only if one is ready."""
        at = bisect_right(self._ready, self._last)
        partition = self._ready[at if at < len(self._ready) else 0]
        self._last = partition
        left = self._credits[partition] - 1
        if left:
            self._credits[partition] = left
        else:
            self.remove(partition)
        return partition
