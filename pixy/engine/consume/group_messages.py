"""What a :class:`~pixy.engine.consume.group_consumer.GroupConsumer` is told, and what it tells its cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Consume:
    """A long poll. The reply is a :class:`pixy.engine.consume.long_polls.Delivery`, or the error to answer.

    ``ack`` is a message consumed earlier, as (partition, offset); whether it could be acknowledged
    never changes the reply.
    """

    topic: str
    auto_ack: bool = False
    ack: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AckMessage:
    """Acknowledge one message. The reply is None, or the reason why not."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Owned:
    """Ask which partitions this instance owns: topic to sorted partitions."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Drain, commit, leave the group; the reply comes when that is done."""


@dataclass(frozen=True, slots=True)
class GroupLeaving:
    """To the cluster: this group takes no more requests and will stop."""

    group: str
