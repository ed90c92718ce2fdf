"""A model of a session (:class:`pixy.membership.Session`), for the simulations of the engine.

It shows what :class:`pixy.membership.kafka.session.KafkaSession` shows: its commands wait for the thread, and while
a revocation waits for its release; a partition begins once its log was looked up; a topic of the same name that is
another one is lost and begins anew.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pixy.kafka.consumer import Commit
from pixy.membership import Assigned, AssignedPartition, Committed, Event, Fetched, Lost, Revoked
from pixy.membership.start_position import resolve_start
from pixy.wire.types import TopicPartition
from tests.model.group import HEARTBEAT, Group
from tests.model.log import OutOfRange
from tests.unit.engine.records import Record

BATCH = 4
AHEAD = 3
"""Batches that are fetched ahead of the first credit."""
_RETRY, _COMPARE_IDS = 0.2, 5.0
_SLACK = 0.5


@dataclass
class _Fetching:
    """A partition that is fetched.

    Args:
        assigned: the number of its assignment.
        epoch: that of the assignment, or of the last seek.
        offset: the next one to fetch.
        topic_id: of the topic when it was assigned.
        told: offsets below it are known to have come, or not to exist.
        room: the batches that the owner has room for.
        stopped: its offset was out of range.
    """

    assigned: int
    epoch: int
    offset: int
    topic_id: int
    told: int
    room: int = AHEAD
    stopped: bool = False


@dataclass(eq=False)
class _Waiting:
    """A partition whose log is looked up: newly assigned, or (``anew``) of a topic that was made again."""

    epoch: int
    first: bool = False
    anew: bool = False


class ModelSession:
    """One member's session, on the model of its group. Everything takes a random while.

    Args:
        group: the group's coordinator.
        post: takes the events.
        rng: for the durations.
        initial_offset: ``oldest`` or ``newest``.
        drain_timeout: seconds that a revocation waits for its release.
    """

    def __init__(
        self,
        group: Group,
        post: Callable[[Event], None],
        rng: random.Random,
        initial_offset: str = "oldest",
        drain_timeout: float = 2.0,
    ) -> None:
        self._group, self._kafka, self._post, self._rng = group, group.kafka, post, rng
        self._from_oldest = initial_offset == "oldest"
        self._fetching: dict[TopicPartition, _Fetching] = {}
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._lands: dict[TopicPartition, float] = {}
        self._drain_timeout = drain_timeout
        self._commands: deque[Callable[[], None]] = deque()
        self._busy = False
        self._commits_until = 0.0
        """When the commit in flight lands. The next one, and a release, wait for it."""
        self._revocations = 0
        self.topics: dict[str, int] = {}
        """The subscription: topics and the number of partitions that were known at the time."""
        self._established: set[str] = set()
        """The topics that the group had offsets of before this member joined."""
        self._first_ids: dict[str, int] = {}
        """The id that each topic had when its first partition was looked up, since it was subscribed to."""
        self.generation = -1
        self.revoking: tuple[TopicPartition, ...] = ()
        self._revoked: Revoked | None = None
        """The last event that asked for a release."""
        self.released = asyncio.Event()
        self.closed = False
        self._closings: list[asyncio.Future[None]] = []
        group.kafka.watchers.append(self._look)

    @property
    def holds(self) -> set[TopicPartition]:
        """The partitions that are assigned now, those that are being revoked included."""
        return {*self._fetching, *self._waiting}

    # -- commands ---------------------------------------------------------------------------------

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See :class:`pixy.membership.Session`."""
        wanted = dict(topics)

        def subscribe() -> None:
            if wanted and not self.topics:
                self._established = {topic for topic, _ in self._group.committed}
            self.topics = {topic: self.topics.get(topic, known) for topic, known in wanted.items()}
            self._first_ids = {topic: first for topic, first in self._first_ids.items() if topic in wanted}
            if wanted:
                self._group.join(self)
                return
            self._group.leave(self)
            if self.holds:
                self._revoke(sorted(self.holds))

        self._command(subscribe)

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        """See :class:`pixy.membership.Session`."""

        def fetch() -> None:
            fetching = self._fetching.get(partition)
            if fetching is not None:
                fetching.room += 1
                self._fetch_ahead(partition)

        self._later(0.01, fetch)

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """See :class:`pixy.membership.Session`."""

        def seek() -> None:
            fetching = self._fetching.get(partition)
            if fetching is not None:
                fetching.epoch = epoch
                self._restart(partition, fetching, offset)

        self._command(seek)

    def next_epoch(self) -> int:
        """See :class:`pixy.membership.Session`."""
        return next(self._group.epochs)

    def commit(self, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        made, before = tuple(commits), self.next_epoch()

        def begin() -> None:
            held = [each for each in made if self._held((each.topic, each.partition), before)]
            generation, ids = self.generation, self._ids()

            def land() -> None:
                if (error := self._group.cut_off(self)) is not None:
                    self._post(Committed(error, {}))
                    return
                self._post(
                    Committed(None, {**self._group.commit(self, generation, self._checked(held, ids))})
                )

            if held:
                self._commits_until = max(self._now(), self._commits_until) + self._rng.random() * 0.05
                self._loop.call_at(self._commits_until, land)
            else:
                self._post(Committed(None, {}))

        self._command(begin)

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        if revoked is not self._revoked:
            return
        made, revocation = tuple(commits), self._revocations
        self._loop.call_at(max(self._now(), self._commits_until) + 1e-6, self._released, revocation, made)

    def _released(self, revocation: int, commits: tuple[Commit, ...]) -> None:
        if not self.revoking or revocation != self._revocations or self.closed:
            return
        self._group.commit(self, self.generation, self._checked(commits, self._ids()))
        self._drop(self.revoking)
        self.revoking = ()
        self.released.set()
        self._group.released()
        self._work(0.001)

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """See :class:`pixy.membership.Session`. The thread goes on to the end, also if nobody waits any more."""
        closing = asyncio.ensure_future(self._close(tuple(commits)))
        self._closings.append(closing)
        await asyncio.shield(closing)

    async def _close(self, commits: tuple[Commit, ...]) -> None:
        await asyncio.sleep(max(0.0, self._commits_until - self._now()))
        if not self.closed:
            self.closed = True
            self._group.commit(self, self.generation, self._checked(commits, self._ids()))
            self._kafka.watchers.remove(self._look)
            self._drop(self.holds)
            self._group.leave(self)

    def _held(self, partition: TopicPartition, before: int) -> bool:
        fetching = self._fetching.get(partition)
        return fetching is not None and fetching.assigned < before

    def _ids(self) -> dict[TopicPartition, int]:
        return {partition: each.topic_id for partition, each in self._fetching.items()}

    def _checked(self, commits: Sequence[Commit], ids: Mapping[TopicPartition, int]) -> list[Commit]:
        """Begin anew where a topic of the commits is another one, and commit the beginning of its log."""
        asked = {each.topic for each in commits}
        gone = self._recreated({at: was for at, was in ids.items() if at[0] in asked})
        if gone:
            self._command(lambda: self._begin_anew(gone))
        return [
            Commit(each.topic, each.partition, 0, "") if (each.topic, each.partition) in gone else each
            for each in commits
        ]

    # -- the thread -------------------------------------------------------------------------------

    def _command(self, act: Callable[[], None]) -> None:
        """Let the session's thread do it: after its current poll, and after a revocation that waits."""
        self._commands.append(act)
        self._work()

    def _work(self, delay: float = 0.05) -> None:
        if self._commands and not self._busy and not self.revoking and not self.closed:
            self._busy = True
            self._later(delay, self._do_one)

    def _do_one(self) -> None:
        self._busy = False
        if not self.revoking and not self.closed:
            self._commands.popleft()()
            self._work()

    def _later(self, most: float, act: Callable[[], None]) -> None:
        self._loop.call_later(self._rng.random() * most, act)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _now(self) -> float:
        return self._loop.time()

    # -- what the group does ----------------------------------------------------------------------

    def rebalanced(self, revoked: list[TopicPartition], assigned: list[TopicPartition]) -> None:
        """The member's part of a rebalance."""
        if revoked:
            self._revoke(revoked)
        if not assigned:
            self._post(Assigned(()))
        for partition in assigned:
            self._waiting[partition] = _Waiting(self.next_epoch(), first=self.generation <= 1)
        self._later(0.05, self._look_up)

    def noticed(self) -> None:
        """The coordinator does not know this member any more: everything is lost, and it joins anew."""
        if self.revoking:  # its thread waits for the release
            self._loop.call_later(HEARTBEAT, self.noticed)
        elif not self.closed:
            self.lose(sorted(self.holds))
            if self.topics:
                self._group.join(self)

    def lose(self, partitions: list[TopicPartition]) -> None:
        """Partitions are lost without a revocation: the member was expelled, or their topic was deleted."""
        if self.revoking:
            self._loop.call_later(HEARTBEAT, self.lose, partitions)
            return
        lost = tuple(each for each in partitions if each in self.holds)
        self._drop(lost)
        if lost:
            self._post(Lost(lost))
            self._group.released()  # it joins again, to get them back if they exist

    def expelled(self) -> None:
        """The coordinator removes this member."""
        self._group.expel(self)

    async def rebalance(self, partitions: Iterable[TopicPartition]) -> None:
        """Revoke partitions, wait until they are released, and let the group assign them again."""
        gone = sorted(self.holds & set(partitions))
        if gone and not self.revoking and not self.closed:
            self._revoke(gone)
            await asyncio.wait_for(self.released.wait(), 60)

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        self.revoking = tuple(partitions)
        self._revocations += 1
        self.released.clear()
        self._revoked = Revoked(self.revoking)
        self._post(self._revoked)
        self._loop.call_later(self._drain_timeout + _SLACK, self._released, self._revocations, ())

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in tuple(partitions):
            self._fetching.pop(partition, None)
            self._waiting.pop(partition, None)

    # -- where partitions begin -------------------------------------------------------------------

    def _look_up(self) -> None:
        """Begin with the partitions whose logs answer; look the others up again."""
        if self.closed:
            return
        found = [each for each in self._waiting if (log := self._kafka.find(each)) is not None and log.leader]
        starts = tuple(self._start_of(each) for each in found)
        if starts:
            self._post(Assigned(starts))
            for partition in found:
                self._fetch_ahead(partition)
        if self._waiting:
            if not self._fetching:
                self._post(Assigned(()))
            self._loop.call_later(_RETRY, self._look_up)

    def _start_of(self, partition: TopicPartition) -> AssignedPartition:
        topic, number = partition
        waiting, log = self._waiting.pop(partition), self._kafka.log(partition)
        committed, metadata = self._group.committed.get(partition, (None, ""))
        established = any(each[0] == topic for each in self._group.committed)
        known = established and (not waiting.first or topic in self._established)
        topic_id = self._kafka.topics[topic].id
        made_since = self._first_ids.setdefault(topic, topic_id) != topic_id
        added = number >= self.topics.get(topic, number + 1) or known or made_since
        start = resolve_start(
            None if waiting.anew else committed,
            log.start,
            log.end,
            from_oldest=waiting.anew or added or self._from_oldest,
            stable=log.stable_end,
        )
        at, epoch = start.position, waiting.epoch
        self._fetching[partition] = _Fetching(epoch, epoch, at, topic_id, at)
        text = "" if start.base is None else metadata
        return AssignedPartition(topic, number, at, text, epoch, start.new, start.base, log.end)

    def _recreated(self, ids: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The partitions whose topic has another id now, with the id that it had."""
        topics = self._kafka.topics
        return {at: was for at, was in ids.items() if at[0] in topics and topics[at[0]].id != was}

    def _begin_anew(self, partitions: Mapping[TopicPartition, int]) -> None:
        gone = tuple(
            at
            for at, was in partitions.items()
            if at in self._fetching and self._fetching[at].topic_id == was
        )
        if gone:
            self._drop(gone)
            self._post(Lost(gone))
            for each in gone:
                self._waiting[each] = _Waiting(self.next_epoch(), anew=True)
            self._later(0.05, self._look_up)

    def _compare_ids(self) -> None:
        self._command(lambda: self._begin_anew(self._recreated(self._ids())))

    # -- fetching ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Fetch what is new in the logs, at once or a while later: several changes may be seen as one."""
        if self._recreated(self._ids()):
            self._later(_COMPARE_IDS, self._compare_ids)
        if self._rng.random() < 0.5:
            self._fetch_all()
        else:
            self._later(0.05, self._fetch_all)

    def _fetch_all(self) -> None:
        for partition in self._fetching:
            self._fetch_ahead(partition)

    def _fetch_ahead(self, partition: TopicPartition) -> None:
        while self._fetch(partition):
            pass

    def _restart(self, partition: TopicPartition, fetching: _Fetching, offset: int) -> None:
        fetching.offset = fetching.told = offset
        fetching.room, fetching.stopped = AHEAD, False
        self._fetch_ahead(partition)

    def _fetch(self, partition: TopicPartition) -> bool:
        fetching, log = self._fetching.get(partition), self._kafka.find(partition)
        if fetching is None or log is None or not log.leader or self.closed:
            return False
        if not fetching.room or fetching.stopped:
            return False
        try:
            found, fetching.offset = log.read(fetching.offset, BATCH, committed=True)
        except OutOfRange:
            fetching.stopped = True
            self._later(0.05, lambda: self._command(lambda: self._begin_again(partition, fetching)))
            return False
        if found:
            fetching.room -= 1
            fetching.told = found[-1] + 1
            topic, life = partition[0], self._kafka.topics[partition[0]].id
            records = [Record(partition[1], at, topic=topic, life=life) for at in found]
            self._land(partition, Fetched({partition: (fetching.epoch, records)}))
        if fetching.told < fetching.offset == log.bound(committed=True):
            # An event of librdkafka says that the end was reached, behind markers and aborted records.
            fetching.told = fetching.offset
            self._land(partition, Fetched({}, {partition: (fetching.epoch, fetching.offset)}))
        return bool(found)

    def _land(self, partition: TopicPartition, event: Fetched) -> None:
        # It takes a while and keeps its order: after a seek, old batches arrive with the old epoch.
        earliest = self._lands.get(partition, 0.0) + 0.001
        lands = self._lands[partition] = max(self._now() + self._rng.random() * 0.1, earliest)
        self._loop.call_at(lands, self._post, event)

    def _begin_again(self, partition: TopicPartition, fetching: _Fetching) -> None:
        """Go on after an offset that was out of range."""
        log = self._kafka.find(partition)
        if self._fetching.get(partition) is not fetching or log is None:
            return
        if self._recreated({partition: fetching.topic_id}) or fetching.told > log.end:
            self._begin_anew({partition: fetching.topic_id})
            return
        if fetching.told < log.start:
            self._post(Fetched({}, {partition: (fetching.epoch, log.start)}))
        self._restart(partition, fetching, max(fetching.told, log.start))
