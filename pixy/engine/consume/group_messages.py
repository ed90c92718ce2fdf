"""The messages that a group takes, those that it sends to itself, and the one for its cluster.

See :class:`pixy.engine.consume.group_consumer.GroupConsumer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors import Request
from pixy.engine.consume.long_polls import Delivery
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Consume(Request[Delivery]):
    """A long poll. The reply is the message that is offered to it, or the error to answer.

    ``ack`` acknowledges an earlier message, as (partition, offset), on the way; whether that succeeds
    never changes the reply. ``client`` says who asks (:data:`pixy.engine.shares.caller`).
    """

    topic: str
    auto_ack: bool = False
    ack: tuple[int, int] | None = None
    client: str = ""
    stray: Callable[[], None] | None = None
    """Called if the message to acknowledge is in a partition that this member does not own; None: nobody wants to know."""


@dataclass(frozen=True, slots=True)
class AckMessage(Request[None]):
    """Acknowledge one message. The reply is None, or the error that says why it was refused."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Owned(Request[dict[str, list[int]]]):
    """Ask which partitions this member owns: topic to sorted partitions."""


@dataclass(frozen=True, slots=True)
class PausesChanged(Request[tuple[TopicPartition, ...]]):
    """An operator has paused or resumed something: do what the pauses say now. The reply is the paused partitions of this member.

    Requests that were handed to owners before may still be served; whoever asks these owners anything next, hears from them
    after that.
    """


@dataclass(frozen=True, slots=True)
class Leave(Request[None]):
    """Drain, commit, leave the group; the reply comes when that is done.

    Attributes:
        stopping: the daemon stops; otherwise the group's next request has it join again, those that wait now included.
    """

    stopping: bool = True


@dataclass(frozen=True, slots=True)
class GroupLeaving:
    """Tell the cluster that this group takes no more requests and will stop."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupStarted:
    """Tell the cluster that this group takes requests: it has started, or failed and begun anew, maybe while it was leaving."""

    group: str


# From timers and tasks of the group to itself.


@dataclass(frozen=True, slots=True)
class Unused:
    """The group has been running for a while: does anybody need it?"""


@dataclass(frozen=True, slots=True)
class DrainOverdue:
    """The owners of these partitions should have reported the end of their drains by now."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The session has ended."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The pause after the failure of a session is over."""
