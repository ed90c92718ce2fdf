"""The offset committer of a group: coalesces positions and commits them every interval.

It is also the group's memory: a partition owner that is restarted begins at the last position known
here, so that acknowledged messages are not offered again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from actors import Actor
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.offset_tracker import Position
from pixy.kafka.consumer import Commit
from pixy.membership import Committed, Session
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


@dataclass(frozen=True, slots=True)
class Moved:
    """A partition's position has changed; ``at_once`` does not wait for the interval."""

    partition: TopicPartition
    position: Position
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Partitions that are ours no longer."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LastKnown:
    """Ask for the newest position of a partition, or None."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class _Tick:
    pass


def to_commit(partition: TopicPartition, position: Position) -> Commit:
    """A position as what is committed to Kafka."""
    metadata = sparse_acks.encode(position.offset, position.ranges)
    return Commit(*partition, position.offset, metadata)


class OffsetCommitter(Actor):
    """At most one commit is in flight, so that an older one can not overtake a newer one."""

    def __init__(self, session: Session, interval: float) -> None:
        super().__init__()
        self._session = session
        self._interval = interval
        self._known: dict[TopicPartition, Position] = {}
        self._dirty: dict[TopicPartition, Position] = {}
        self._in_flight: dict[TopicPartition, Position] | None = None

    def on_start(self) -> None:
        """Begin to tick."""
        self.set_timer("tick", self._interval, _Tick(), every=self._interval)

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        if type(message) is Moved:
            self._known[message.partition] = message.position
            self._dirty[message.partition] = message.position
            if message.at_once:
                self._commit()
            return None
        if isinstance(message, Committed):
            return self._committed(message)
        if isinstance(message, Forget):
            for partition in message.partitions:
                self._known.pop(partition, None)
                self._dirty.pop(partition, None)
            return None
        if isinstance(message, LastKnown):
            return self._known.get(message.partition)
        if isinstance(message, _Tick):
            self._commit()
            return None
        return super().on_receive(message)

    def on_stop(self) -> None:
        """What is not committed yet goes out before the session is closed."""
        if self._dirty:
            self._session.commit([to_commit(*item) for item in self._dirty.items()])

    def _commit(self) -> None:
        if self._in_flight is None and self._dirty:
            self._in_flight, self._dirty = self._dirty, {}
            self._session.commit([to_commit(*item) for item in self._in_flight.items()])

    def _committed(self, outcome: Committed) -> None:
        sent, self._in_flight = self._in_flight or {}, None
        if outcome.error is None and not outcome.partitions:
            return
        for partition, position in sent.items():
            error = outcome.partitions.get(partition, outcome.error)
            if error is None or partition not in self._known:
                continue
            # Tried again at the next tick, unless something newer is waiting already.
            self._dirty.setdefault(partition, position)
            logger.warning("%s: commit of %s/%d failed, will retry: %s", self.path, *partition, error)
