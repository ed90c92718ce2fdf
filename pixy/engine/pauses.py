"""What operators have paused: groups, and partitions of groups. Plain data that outlives the actors which read it.

A pause holds for this process, until somebody resumes it or the process ends. It stops offers and nothing else: acks count, positions
are committed, the member stays in its group, and a partition that moves to another daemon is consumed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pixy.errors import TooManyRequests
from pixy.wire.types import TopicPartition

MOST: Final = 1000
"""Pauses in one cluster; one more is refused."""


@dataclass(frozen=True, slots=True)
class Pause:
    """One pause.

    Attributes:
        group: the group's name.
        partition: None: all partitions of the group.
        by: who has paused it.
        since: when, in seconds since 1970.
    """

    group: str
    partition: TopicPartition | None
    by: str
    since: float


class Pauses:
    """The pauses of one cluster."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, TopicPartition | None], Pause] = {}

    def __iter__(self) -> Iterator[Pause]:
        return iter(tuple(self._pauses.values()))

    def covers(self, group: str, partition: TopicPartition) -> bool:
        """Return whether a partition is paused, alone or with its whole group."""
        return bool(self._pauses) and ((group, None) in self._pauses or (group, partition) in self._pauses)

    def whole(self, group: str) -> bool:
        """Return whether a group is paused as a whole."""
        return (group, None) in self._pauses

    def add(self, pause: Pause) -> bool:
        """Add a pause; return False if there is the same one already, which then stays.

        Raises:
            TooManyRequests: there are :data:`MOST`.
        """
        key = (pause.group, pause.partition)
        if key in self._pauses:
            return False
        if len(self._pauses) >= MOST:
            raise TooManyRequests("")
        self._pauses[key] = pause
        return True

    def remove(self, group: str, partition: TopicPartition | None) -> int:
        """Remove the pause of a partition; or all pauses of a group, those of its partitions included.

        Returns:
            how many there were.
        """
        gone = [key for key in self._pauses if key[0] == group and (partition is None or key[1] == partition)]
        for key in gone:
            del self._pauses[key]
        return len(gone)


__all__ = ["MOST", "Pause", "Pauses"]
