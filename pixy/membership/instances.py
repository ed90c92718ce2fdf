"""What a consumer instance of the REST API stands on: membership and fetching for one reader.

Unlike :class:`pixy.membership.Session` it fetches on demand: it looks for records only while somebody
waits for some, and between reads librdkafka's own bounded queue holds what is fetched ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pixy.errors import PixyError
from pixy.kafka.consumer import Commit
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Joined:
    """The group gave us these partitions (maybe none), at these offsets."""

    starts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Leaving:
    """The group wants these back. Answer with ``session.release``; the wait is bounded."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """These belong to somebody else already; nothing can be committed for them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Records, in the order in which they are to be handed out: what the last ``want`` brought.

    ``size`` is the bytes of their keys and values.
    """

    records: list[Any]
    size: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Kafka refuses something and will go on refusing it; the session tries on all the same."""

    error: PixyError


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a command. In order with the events: what comes after it came about after it."""

    token: int
    value: Any
    error: PixyError | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The session is over and nothing follows."""

    error: PixyError


InstanceEvent = Joined | Leaving | Gone | Ready | Trouble | Done | Failed


class InstanceSession(Protocol):
    """One instance's consumer. No method blocks; each command is answered by one :class:`Done`."""

    def subscribe(self, token: int, topics: tuple[str, ...]) -> None:
        """Join the group for these topics (one that begins with ``^`` is a pattern), or change them.
        :class:`Joined` follows when the group has answered.
        """

    def assign(
        self, token: int, partitions: tuple[TopicPartition, ...], keep: Mapping[TopicPartition, int]
    ) -> None:
        """Fetch these without the group's assignment, from the offset of ``keep`` or else from the
        committed one.

        The value: partition to the offset where it begins.
        """

    def seek(self, token: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on at these offsets."""

    def committed(self, token: int, partitions: tuple[TopicPartition, ...]) -> None:
        """The value: partition to :class:`pixy.kafka.consumer.Committed`."""

    def commit(self, token: int, commits: tuple[Commit, ...]) -> None:
        """Commit, all or with an error."""

    def want(self, most: int, max_bytes: int, *, wait: bool = True) -> None:
        """Look for records until there are some: one :class:`Ready` of at most about so many.

        Without ``wait`` it comes at once, with what is there, be it nothing. 0 stops looking; a
        Ready may be on its way all the same.
        """

    def release(self, commits: Iterable[Commit]) -> None:
        """Answer to :class:`Leaving`: what to commit for the partitions before they go."""

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Commit for the last time, leave the group, end the thread. Never raises."""
