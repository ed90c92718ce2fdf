"""One assignment of a partition to this member: what must survive a failure of the partition's owner."""

from __future__ import annotations

from pixy.engine.consume.offset_tracker import Position
from pixy.membership import AssignedPartition
from pixy.wire.types import TopicPartition


class Assignment:
    """The part of an owner's state that outlives its restarts. The owner writes it and the group reads it; ``released`` is the
    group's to write.
    """

    __slots__ = ("lives", "offered_below", "pending", "position", "released", "since", "start")

    def __init__(self, start: AssignedPartition, since: float = 0.0) -> None:
        self.start = start
        self.since = since
        """The loop's time at which it was assigned."""
        self.lives = 0
        """The number of owners made for it so far."""
        self.offered_below = 0
        """Every offset that was offered is below this one."""
        self.pending = 0
        """The number of messages that are offered and not acknowledged."""
        self.position: Position | None = None
        """The last position; None until it has moved."""
        self.released = False
        """True if the group has taken the last position, or lost the partition: no ack counts any more."""

    @property
    def partition(self) -> TopicPartition:
        """Topic and partition."""
        return self.start.topic, self.start.partition

    @property
    def epoch(self) -> int:
        """The number of this assignment."""
        return self.start.epoch


__all__ = ["Assignment"]
