"""Interfaces that a member of a group in ZooKeeper uses: the consumer of its partitions, and Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from pixy.wire.types import TopicPartition


class Partitions(Protocol):
    """The consumer of a member's partitions. No method but :meth:`hand_back` waits."""

    def joined(self) -> None:
        """Hear that the member has joined, or its subscription has changed, and it has got nothing new."""

    def acquire(self, partitions: list[TopicPartition]) -> None:
        """Begin to consume partitions."""

    async def hand_back(self, partitions: list[TopicPartition]) -> None:
        """Finish with partitions, and commit."""

    def lose(self, partitions: list[TopicPartition]) -> None:
        """Stop consuming at once."""

    def failed(self, error: BaseException) -> None:
        """Hear that the member has ended with an error that is none of ZooKeeper's or Kafka's."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """A member's questions to Kafka.

    Args:
        count_partitions: finds a topic's number of partitions; None without such a topic. Raises PixyError.
        has_kafka_members: whether a group has members in Kafka's own protocol. Raises PixyError.
        has_commits: whether a group has committed an offset of a topic. Raises PixyError.
    """

    count_partitions: Callable[[str], Awaitable[int | None]]
    has_kafka_members: Callable[[str], Awaitable[bool]]
    has_commits: Callable[[str, str], Awaitable[bool]]
