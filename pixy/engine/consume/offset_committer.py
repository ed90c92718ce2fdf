"""The offset committer of a group: it coalesces positions and commits them every interval.

The positions themselves are kept by the assignments
(:class:`~pixy.engine.consume.assignment.Assignment`): whatever fails, the group commits those before
it leaves. A committer that fails takes its group with it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from actors import Actor, handles
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.offset_tracker import Position
from pixy.engine.counters import GroupCounters
from pixy.kafka.consumer import Commit
from pixy.membership import Committed, Session
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


@dataclass(frozen=True, slots=True)
class Track:
    """This member has got a partition, under this epoch; ``committed`` is what the group has committed for it."""

    partition: TopicPartition
    epoch: int
    committed: Commit | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A partition's position has changed; ``at_once`` does not wait for the interval.

    Ignored under another epoch than that of :class:`Track`: an owner may still be taking an ack when its
    partition belongs to another member already, whose commits this one would undo.
    """

    partition: TopicPartition
    epoch: int
    position: Position
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """This member has released these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class _Tick:
    pass


def to_commit(partition: TopicPartition, position: Position) -> Commit:
    """Return a position as Kafka stores it: the ranges above the offset go into the metadata."""
    metadata = sparse_acks.encode(position.offset, position.ranges)
    return Commit(*partition, position.offset, metadata)


class OffsetCommitter(Actor):
    """Keeps at most one commit in flight, so that an older one cannot overtake a newer one.

    Args:
        session: commits, and answers each time with :class:`~pixy.membership.Committed`.
        interval: seconds between commits.
        refresh: seconds after which an offset that has not changed is committed again, and also when its partition
            was assigned. Kafka deletes old offsets of a group that has no members in its view. None: never.
        counters: of the group.
    """

    def __init__(
        self,
        session: Session,
        interval: float,
        refresh: float | None = None,
        counters: GroupCounters | None = None,
    ) -> None:
        super().__init__()
        self._counters = counters or GroupCounters()
        self._session = session
        self._interval = interval
        self._epochs: dict[TopicPartition, int] = {}
        self._dirty: dict[TopicPartition, Position] = {}
        self._failed: dict[TopicPartition, Commit] = {}
        """Those of the last commit that Kafka has not taken."""
        self._in_flight: dict[TopicPartition, Commit] | None = None
        self._refresh = refresh
        self._last: dict[TopicPartition, Commit] = {}
        """The last commits that Kafka has taken, if they are to be repeated."""
        self._refreshed: dict[TopicPartition, float] = {}
        """The loop's time at which this member has last committed each of them."""

    def on_start(self) -> None:
        """Begin to tick."""
        self.set_timer("tick", self._interval, _Tick(), every=self._interval)

    @handles(Track)
    def _track(self, message: Track) -> None:
        self._epochs[message.partition] = message.epoch
        if self._refresh is not None and message.committed is not None:
            self._last[message.partition] = message.committed

    @handles(Moved)
    def _moved(self, message: Moved) -> None:
        if self._epochs.get(message.partition) != message.epoch:
            return
        self._dirty[message.partition] = message.position
        if message.at_once:
            self._commit()

    @handles(Forget)
    def _forget(self, message: Forget) -> None:
        for partition in message.partitions:
            self._epochs.pop(partition, None)
            self._dirty.pop(partition, None)
            self._failed.pop(partition, None)
            self._last.pop(partition, None)
            self._refreshed.pop(partition, None)
            if self._in_flight is not None:  # not to be tried again, even if the partition comes back
                self._in_flight.pop(partition, None)

    @handles(_Tick)
    def _tick(self, _message: _Tick) -> None:
        self._commit()

    @handles(Committed)
    def _committed(self, outcome: Committed) -> None:
        sent, self._in_flight = self._in_flight or {}, None
        if outcome.error is None and not outcome.partitions and self._refresh is None:
            self._counters.committed(len(sent), whole=True)
            return
        taken = 0
        for partition, commit in sent.items():
            error = outcome.partitions.get(partition, outcome.error)
            if error is None:
                taken += 1
                if self._refresh is not None:
                    self._last[partition] = commit
                    self._refreshed[partition] = self.system.loop.time()
                continue
            # The next tick tries again, unless a newer position waits already.
            self._failed.setdefault(partition, commit)
            self._counters.commit_failed(error, self.system.loop.time())
            logger.warning("%s: commit of %s/%d failed, will retry: %s", self.path, *partition, error)
        self._counters.committed(taken, whole=taken == len(sent))

    def _commit(self) -> None:
        if self._in_flight is None and (batch := {**self._due(), **self._failed, **self._moved_since()}):
            self._in_flight, self._failed, self._dirty = batch, {}, {}
            self._session.commit(list(batch.values()))

    def _moved_since(self) -> dict[TopicPartition, Commit]:
        return {partition: to_commit(partition, position) for partition, position in self._dirty.items()}

    def _due(self) -> dict[TopicPartition, Commit]:
        """Return the commits to repeat now, though their positions have not changed."""
        if self._refresh is None:
            return {}
        before = self.system.loop.time() - self._refresh
        never = float("-inf")
        return {each: last for each, last in self._last.items() if self._refreshed.get(each, never) <= before}
