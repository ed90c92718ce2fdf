"""The messages between a group and its partition owners.

An owner (:class:`~pixy.engine.consume.partition_owner.PartitionOwner`) reports readiness and the
end of a drain under the epoch of its assignment; the group ignores reports under an earlier epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actors import Request
from pixy.engine.consume.long_polls import Poll
from pixy.engine.consume.offset_tracker import Position
from pixy.wire.types import TopicPartition

# From the group to an owner.


@dataclass(frozen=True, slots=True)
class Records:
    """Fetched messages. ``epoch`` is that of the assignment, or of the owner's last seek."""

    epoch: int
    records: list[Any]


@dataclass(frozen=True, slots=True)
class EndReached:
    """No message below ``offset`` will come any more under this epoch."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Offer a message to each of these requests."""

    polls: tuple[Poll, ...]


@dataclass(frozen=True, slots=True)
class Ack(Request[None]):
    """Mark a message as consumed. The reply is None, or the error that says why it was refused."""

    offset: int


@dataclass(frozen=True, slots=True)
class TakeBack(Request[int]):
    """Take a message from the client that has it, so that the next request gets it: an operator wants that.

    The group passes it on to the owner, whose reply is how often the message was offered so far, or an IllegalState: no client has it.
    """

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DrainPartition:
    """Offer nothing more; report :class:`PartitionDrained` once all acks are in.

    Args:
        timeout: seconds after which the owner reports without the missing acks.
    """

    timeout: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce all messages once more: the group has forgotten what was announced."""


# From an owner to the group.


@dataclass(frozen=True, slots=True)
class Ready:
    """The owner can serve ``messages`` more requests.

    ``restarted`` voids everything that the owner announced before it failed.
    """

    partition: TopicPartition
    epoch: int
    messages: int
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class Unserved:
    """Requests that the owner has no message for."""

    partition: TopicPartition
    polls: tuple[Poll, ...]


@dataclass(frozen=True, slots=True)
class PartitionDrained:
    """The drain is over; ``position`` is the last one to commit."""

    partition: TopicPartition
    epoch: int
    position: Position
