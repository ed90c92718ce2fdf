"""The partitions of a session that wait until it is known where they begin.

Those whose lookup fails are looked up again, with growing pauses. A part of the session: it runs in the session's
thread, except where a method says otherwise.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from pixy.errors import PixyError
from pixy.kafka.group_offsets import UNKNOWN
from pixy.kafka.partition_logs import FirstAttempt
from pixy.membership.kafka.start_lookups import MOST, Found, Outcomes, StartLookups
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_RETRY, _MAX_RETRY = 0.1, 3.0
"""Seconds before partitions that could not be looked up are tried again: doubled up to the latter."""
_LAST_LOOKUP, _LAST_LOOKUP_POLL = 1.0, 0.05
"""Seconds that a revocation waits for the beginnings of partitions that were just assigned, and between its looks."""
_FIRST_LOOKUP = 10.0
"""The same where a beginning that is not committed would make the next owner deliver what the group is to skip: it begins at the
newest message, and has committed nothing of the topic yet. On a busy machine a second was too short. No lookup runs longer."""


class Waiting:
    """A partition that is looked up: newly assigned, or with an offset out of range.

    Args:
        epoch: the number of its assignment.
        first: it was assigned in the group's first generation.
        was: the topic that it belonged to before it was deleted and made again; None if it was not.
        again: librdkafka fetches it, and its offset was out of range.
        oldest: begin at the oldest message, whatever was committed.
        leader: the leader epoch of the last message that has come, in place of that of the commit.
    """

    __slots__ = ("again", "asked", "attempt", "epoch", "first", "oldest", "was")

    def __init__(
        self,
        epoch: int,
        *,
        first: bool = False,
        was: uuid.UUID | None = None,
        again: bool = False,
        oldest: bool = False,
        leader: int = UNKNOWN,
    ) -> None:
        self.epoch, self.first, self.was, self.again, self.oldest = epoch, first, was, again, oldest
        self.asked = False
        """True if a lookup is running."""
        self.attempt = FirstAttempt(leader)
        """The newest message is that of this moment."""


Taken = list[tuple[TopicPartition, Waiting, Found]]


class WaitingPartitions:
    """The waiting partitions of one session, and what lookups have found of them.

    Args:
        name: the member's name in logs.
        lookups: finds where partitions begin.
        commit_in_progress: returns the thread of a commit that a lookup waits for.
        found: called in other threads when there is something to :meth:`take`.
        looked_up: called in other threads after each lookup.
    """

    def __init__(
        self,
        name: str,
        lookups: StartLookups,
        commit_in_progress: Callable[[], threading.Thread | None],
        found: Callable[[], None],
        looked_up: Callable[[], None],
    ) -> None:
        self._name = name
        self._lookups = lookups
        self._commit_in_progress = commit_in_progress
        self._found = found
        self._looked_up = looked_up
        self._waiting: dict[TopicPartition, Waiting] = {}
        self._unresolved: dict[TopicPartition, Waiting] = {}
        """Those that went while they waited. If one comes back, it begins where it would have begun."""
        self._arrival = threading.Condition()
        self._arrived: list[tuple[TopicPartition, Waiting, Found | PixyError]] = []
        self._retry, self._retry_at = _RETRY, 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Those that wait."""
        return tuple(self._waiting)

    def add(self, partition: TopicPartition, waiting: Waiting) -> None:
        """Look a partition up at once.

        Args:
            partition: which.
            waiting: if the partition waited before and went, its first attempt of then still counts.
        """
        before = self._unresolved.pop(partition, None)
        if before is not None and waiting.was is None:
            # The group's other beginnings are committed by now, which makes it no older than it was.
            waiting.attempt, waiting.first = before.attempt, waiting.first or before.first
        self._waiting[partition] = waiting
        self._retry, self._retry_at = _RETRY, 0.0

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions; what is found of them is ignored."""
        for partition in partitions:
            waiting = self._waiting.pop(partition, None)
            if waiting is not None and waiting.was is None and not waiting.again:
                self._unresolved[partition] = waiting

    def forget(self, topic: str) -> None:
        """Forget where the partitions of a topic would have begun: it is subscribed to no longer."""
        for partition in [each for each in self._unresolved if each[0] == topic]:
            del self._unresolved[partition]

    def look_up(self) -> None:
        """Begin a lookup that is due."""
        if not self._waiting:
            return
        now = time.monotonic()
        wanted = {each: waiting for each, waiting in self._waiting.items() if not waiting.asked}
        if not wanted or now < self._retry_at or self._lookups.running >= MOST:
            return
        for waiting in wanted.values():
            waiting.asked = True
        self._lookups.look_up(
            {each: waiting.attempt for each, waiting in wanted.items()},
            self._commit_in_progress(),
            lambda outcomes: self._arrive(wanted, outcomes),
            lambda: self._done(wanted),
        )
        self._retry_at = now + self._retry
        self._retry = min(_MAX_RETRY, 2 * self._retry)

    def _done(self, wanted: Mapping[TopicPartition, Waiting]) -> None:
        """End a lookup. Called in other threads."""
        for waiting in wanted.values():
            waiting.asked = False
        self._looked_up()

    def _arrive(self, wanted: Mapping[TopicPartition, Waiting], outcomes: Outcomes) -> None:
        """Take outcomes. Called in other threads."""
        with self._arrival:
            self._arrived += [(each, wanted[each], found) for each, found in outcomes.items()]
            self._arrival.notify()
        self._found()

    def take(self) -> Taken:
        """Take out the partitions that were found since the last call; ignore those that were revoked meanwhile."""
        with self._arrival:
            arrived, self._arrived = self._arrived, []
        taken: Taken = []
        failed: dict[str, list[TopicPartition]] = {}
        for partition, waiting, found in arrived:
            if self._waiting.get(partition) is not waiting:
                continue
            if not isinstance(found, Found):
                failed.setdefault(str(found), []).append(partition)
            elif waiting.was is None or waiting.was != found.log.topic_id:  # else the broker is behind
                del self._waiting[partition]
                taken.append((partition, waiting, found))
        for error, those in failed.items():
            logger.warning(
                "%s: %d partitions wait, such as %s/%d: %s", self._name, len(those), *those[0], error
            )
        return taken

    def last(self, partitions: Iterable[TopicPartition], *, newest: bool) -> Taken:
        """Wait, for a second at most, for lookups of partitions that are being revoked; take out those that were found.

        Args:
            partitions: those that are being revoked.
            newest: the group begins at the newest message; partitions of topics that are new to it are waited for longer.
        """
        left = {each for each in partitions if each in self._waiting and not self._waiting[each].again}
        started = time.monotonic()
        found: Taken = []
        self.look_up()
        while self._lookups.running and (unknown := left & self._waiting.keys()):
            matters = newest and any(not self._waiting[each].attempt.established for each in unknown)
            if time.monotonic() >= started + (_FIRST_LOOKUP if matters else _LAST_LOOKUP):
                break
            with self._arrival:
                if not self._arrived:
                    self._arrival.wait(_LAST_LOOKUP_POLL)
            for each in self.take():
                if each[0] in left:
                    found.append(each)
                else:
                    self._waiting[each[0]] = each[1]  # the next lookup finds it again
        return found


__all__ = ["Waiting", "WaitingPartitions"]
