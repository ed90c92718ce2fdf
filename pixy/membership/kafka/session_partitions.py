"""The partitions of a session: where each begins, which offset comes next, and when its log is another one.

A part of the session, not a thread of its own: it runs in the session's thread. A partition waits
(:mod:`~pixy.membership.kafka.waiting_partitions`) until it is known where it begins; then librdkafka fetches it.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pixy.config.model import Consumer
from pixy.kafka.consumer import Check, Commit, ConsumerClient
from pixy.kafka.errors import not_fetched, translate
from pixy.kafka.flow import FlowControl
from pixy.kafka.group_offsets import UNKNOWN, GroupOffsets
from pixy.kafka.partition_logs import Log
from pixy.kafka.topics import Topics
from pixy.membership import Assigned, AssignedPartition, Event, Fetched, Lost
from pixy.membership.kafka.beginnings import Beginnings, Memory
from pixy.membership.kafka.recreated import begin_anew, recreated
from pixy.membership.kafka.start_lookups import MOST, Found, StartLookups
from pixy.membership.kafka.unheard import Unheard
from pixy.membership.kafka.waiting_partitions import Waiting, WaitingPartitions
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_EPOCHS = itertools.count(1)
"""Of all sessions of the process: a message from an earlier session cannot pass for one of the present session."""
_COMPARE_IDS = 5.0
"""Seconds after which the ids of the topics are compared, if no commit has done so for all of them."""

Batches = Mapping[TopicPartition, tuple[int, list[Any]]]


class _Fetching:
    """A partition that librdkafka fetches."""

    __slots__ = ("assigned", "epoch", "leader", "next", "topic_id")

    def __init__(self, epoch: int, start: int, topic_id: uuid.UUID, leader: int) -> None:
        self.assigned = epoch
        self.epoch = epoch
        """That of the assignment, or of the last seek."""
        self.next = start
        """The lowest offset that has not come yet."""
        self.topic_id = topic_id
        self.leader = leader
        """The leader epoch of the message that has come last; -1 if it is not known. Commits name it (KIP-320), not that of the message before
        their offset: where it ends in the log that the group finds later, other messages begin, also for the acks beyond the offset.
        """


class SessionPartitions:
    """The partitions that are fetched, and those that wait for that.

    Args:
        name: the member's name in logs.
        conf: the limits and timeouts.
        client: fetches.
        flow: counts what owners hold.
        lookups: finds where partitions begin.
        post: takes events.
        command: takes what other threads want to be run in the session's thread.
        memory: what the group's sessions before knew of its topics.
    """

    def __init__(
        self,
        name: str,
        conf: Consumer,
        client: ConsumerClient,
        flow: FlowControl[TopicPartition],
        lookups: StartLookups,
        post: Callable[[Event], None],
        command: Callable[[Callable[[], None]], None],
        memory: Memory,
    ) -> None:
        self._name = name
        self._conf = conf
        self._client = client
        self._flow = flow
        self._lookups = lookups
        self._post = post
        self._command = command
        self._fetching: dict[TopicPartition, _Fetching] = {}
        self._waiting = WaitingPartitions(
            name,
            lookups,
            client.under_way,
            lambda: command(self._begin),
            lambda: command(self._looked_up),
        )
        self._going: set[TopicPartition] = set()
        """Those that are being handed back: nothing of them begins any more."""
        self._unheard = Unheard()
        self._compare_at = self._changed_at = 0.0
        """The times at which to compare the ids of topics, and at which the last one of them was learned."""
        self.missed: set[str] = set()
        """The topics that were made again while this member had no partition of them."""
        self.beginnings = Beginnings(conf, lookups, memory)

    def subscribed(self, topics: Mapping[str, int]) -> None:
        """Note how many partitions the topics have when they are subscribed to."""
        for topic in self.beginnings.subscribed(topics):
            self._waiting.forget(topic)
        if self.beginnings.described:
            self._compare_at, self._changed_at = 0.0, time.monotonic()

    def next_epoch(self) -> int:
        """Return a number that no assignment and no seek has had, of any session. Thread-safe."""
        return next(_EPOCHS)

    def epoch(self, partition: TopicPartition) -> int | None:
        """Return the number that messages of this partition carry now; None if it is not fetched."""
        fetching = self._fetching.get(partition)
        return None if fetching is None else fetching.epoch

    def held(self, partition: TopicPartition, before: int) -> bool:
        """Return whether the partition is fetched, and was assigned before the number ``before`` (:meth:`next_epoch`) was given out."""
        fetching = self._fetching.get(partition)
        return fetching is not None and fetching.assigned < before

    def with_leaders(self, commits: Iterable[Commit]) -> tuple[Commit, ...]:
        """Return commits with the leader epochs that are known."""
        return tuple(
            each if fetching is None else replace(each, epoch=fetching.leader)
            for each in commits
            for fetching in (self._fetching.get((each.topic, each.partition)),)
        )

    # -- assigned, sought, dropped -----------------------------------------------------------------

    def add(self, partitions: Iterable[TopicPartition], *, first: bool) -> None:
        """Look up where newly assigned partitions begin, and fetch them then.

        Args:
            partitions: which.
            first: they were assigned in the group's first generation.
        """
        for partition in partitions:
            self._waiting.add(partition, Waiting(self.next_epoch(), first=first))

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Fetch from another offset, under another epoch. Raises PixyError.

        Args:
            partition: nothing happens if it was revoked meanwhile.
            offset: the first one to fetch.
            epoch: of :meth:`next_epoch`; the messages from there on carry it.
        """
        fetching = self._fetching.get(partition)
        if fetching is None:
            return  # revoked meanwhile
        fetching.epoch = epoch
        self._restart(partition, fetching, offset)
        # Flow control counts from zero again and has forgotten that it may have paused it.
        self._flow.assigned([partition])

    def new_starts(self, partitions: Iterable[TopicPartition]) -> tuple[Commit, ...]:
        """Return the beginnings of revoked partitions that were not fetched yet, as far as they must be committed.

        It waits for running lookups, for a second at most; for 10 where a group that begins at ``newest`` has no offsets of
        the topic. Without these commits the next owner would find offsets of the topic's other partitions and none of
        these, and take these for added ones. A group's first member needs it when the second one joins right after it.

        Args:
            partitions: those that are being revoked.
        """
        newest = self._conf.initial_offset == "newest"
        starts = (self.beginnings.of(*each) for each in self._waiting.last(partitions, newest=newest))
        # One that follows from a committed offset is found again from that. The metadata counts from there, too: committed
        # with this position, it would acknowledge other messages.
        return tuple(
            Commit(each.topic, each.partition, each.position, each.metadata)
            for each in starts
            if each.new and each.base is None
        )

    def stop_waiting(self, partitions: list[TopicPartition]) -> tuple[Commit, ...]:
        """Begin to fetch none of these any more, because they are about to be revoked. Return as :meth:`new_starts`."""
        self._going.update(partitions)
        starts = self.new_starts(partitions)
        self._waiting.drop(partitions)
        return starts

    def drop(self, partitions: list[TopicPartition]) -> None:
        """Forget partitions that were revoked or lost, inside the callback that says so."""
        self._flow.revoked(partitions)
        self._going.difference_update(partitions)
        self._unheard.heard(partitions)
        self._waiting.drop(partitions)
        self._client.unassign([each for each in partitions if self._fetching.pop(each, None) is not None])

    def _restart(self, partition: TopicPartition, fetching: _Fetching, offset: int) -> None:
        fetching.next = offset
        try:
            self._client.restart(partition, offset)
        except Exception as error:
            raise translate(error) from error
        self._watch({partition: offset})

    def _watch(self, starts: Mapping[TopicPartition, int]) -> None:
        made_again = {
            each: offset for each, offset in starts.items() if each[0] in self.beginnings.made_again
        }
        self._unheard.started(made_again, time.monotonic())

    # -- fetched --------------------------------------------------------------------------------------

    def fetched(
        self, batches: Batches, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Note which offsets come next; return the ends that lie behind a gap, with the partitions' epochs.

        Args:
            batches: messages of partitions that are fetched.
            ends: the offsets of ends that were reached.
        """
        if self._unheard.silent:
            self._unheard.heard((*batches, *ends))
        for partition, (_, records) in batches.items():
            known = self._fetching[partition]
            if records[0].offset() < known.next:
                self._compare_at = 0.0  # what has come before: maybe another log
            known.next = records[-1].offset() + 1
            leader = records[-1].leader_epoch()
            if leader is not None and leader >= 0:  # old message formats have none
                known.leader = leader
        gaps: dict[TopicPartition, tuple[int, int]] = {}
        for partition, end in ends.items():
            fetching = self._fetching.get(partition)
            if fetching is not None and end > fetching.next:
                fetching.next = end
                gaps[partition] = (fetching.epoch, end)
        return gaps

    def check_unheard(self, *, busy: bool) -> None:
        """Raise KafkaError if librdkafka does not fetch a partition that has messages.

        Args:
            busy: the poll has brought messages of others, so those of the partition may lie behind these in the queue.
        """
        if not self._unheard.silent:
            return
        if topics := self._unheard.to_learn():
            self._client.learn(topics)
            self._unheard.learned(time.monotonic())
        if stuck := self._unheard.stuck(time.monotonic(), busy=busy):
            raise not_fetched(stuck)

    def out_of_range(self, partition: TopicPartition) -> None:
        """Look up where to go on: librdkafka has stopped fetching the partition."""
        self._unheard.heard([partition])
        fetching = self._fetching.get(partition)
        if fetching is not None:
            self._waiting.add(partition, Waiting(fetching.epoch, again=True, leader=fetching.leader))

    def check(self, batch: tuple[Commit, ...], patience: float = 0.0) -> Check | None:
        """Return the ``check`` of :meth:`~pixy.kafka.consumer.ConsumerClient.commit` for a batch.

        It asks for the ids of the topics, and replaces positions of topics that were deleted and made again. All
        fetched partitions of these topics begin anew then: the others may get no message, and so no commit, of their own.
        Positions of topics that do not exist are left out: one that is made again meanwhile would get them, the more so as librdkafka
        repeats a commit that was refused because there is no topic.

        Args:
            batch: what is to be committed.
            patience: seconds to try again while the coordinator moves.

        Returns:
            None if no topic has an id.
        """
        asked = {each.topic for each in batch if (each.topic, each.partition) in self._fetching}
        known = {
            partition: each.topic_id for partition, each in self._fetching.items() if partition[0] in asked
        }
        if all(each == NULL_UUID for each in known.values()):
            return None  # brokers before Kafka 2.8 have no ids
        # With fewer topics, the other ones would not be compared while these are busy.
        if len(known) == len(self._fetching) and self.beginnings.described <= asked:
            self._compare_at = time.monotonic() + _COMPARE_IDS

        def check(offsets: GroupOffsets, commits: tuple[Commit, ...]) -> tuple[Commit, ...]:
            topics = offsets.topics(asked, patience=patience)
            changed = recreated(known, topics.ids)
            if changed:
                self._command(lambda: self._begin_anew(changed))
            left = tuple(each for each in commits if each.topic not in asked or not topics.gone(each.topic))
            return begin_anew(left, changed)

        return check

    # -- where partitions begin ----------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """True if partitions wait until it is known where they begin."""
        return bool(self._waiting)

    def look_up(self) -> None:
        """Begin a lookup that is due. Call it often."""
        self._waiting.look_up()
        now = time.monotonic()
        if now >= self._compare_at and self._lookups.running < MOST:
            self._compare(now)
        if self._lookups.running < MOST and (silent := self._unheard.due(now)):
            self._lookups.logs(silent, self._take_logs)

    def _compare(self, now: float) -> None:
        """Begin to ask for the ids of the topics that are subscribed to."""
        known = {partition: each.topic_id for partition, each in self._fetching.items()}
        names = self.beginnings.described.union(topic for topic, _ in known)
        if not names:
            return
        self._compare_at = now + _COMPARE_IDS

        def described(topics: Topics) -> None:
            if changed := recreated(known, topics.ids):
                self._command(lambda: self._begin_anew(changed))
            if self.beginnings.news(topics):
                self._command(lambda: self._meet(topics))

        self._lookups.describe(names, described, self._changed_at)

    def _meet(self, topics: Topics) -> None:
        ours = {topic for topic, _ in (*self._fetching, *self._waiting.partitions)}
        self.missed |= self.beginnings.meet(topics) - ours

    def _take_logs(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Take logs that a look-up has found. Called in another thread."""
        self._command(lambda: self._unheard.looked_up(logs, time.monotonic()))

    def _looked_up(self) -> None:
        if self._waiting and not self._fetching:
            self._post(Assigned(()))  # joined, though no partition can be fetched yet

    def _begin(self) -> None:
        """Begin to fetch what was found."""
        begun: list[AssignedPartition] = []
        for partition, waiting, found in self._waiting.take():
            if waiting.again:
                self._begin_again(partition, found)
            else:
                start = self.beginnings.of(partition, waiting, found)
                known = start.base is not None and found.committed.epoch != UNKNOWN
                leader = found.committed.epoch if known else found.log.leader
                self._fetching[partition] = _Fetching(start.epoch, start.position, found.log.topic_id, leader)
                begun.append(start)
        if begun:
            self._changed_at = time.monotonic()
            starts = {(each.topic, each.partition): each.position for each in begun}
            self._client.assign(starts.items())
            # librdkafka keeps the pause of a partition that was revoked and comes back.
            self._client.resume(starts)
            self._flow.assigned(starts)
            self._watch(starts)
            self._post(Assigned(tuple(begun)))

    def _begin_again(self, partition: TopicPartition, found: Found) -> None:
        """Go on after an offset that was out of range."""
        fetching, log = self._fetching[partition], found.log
        if recreated({partition: fetching.topic_id}, {partition[0]: log.topic_id}):
            self._begin_anew({partition: fetching.topic_id})
        elif fetching.next > log.end or (fetching.next >= log.oldest and log.valid_end < fetching.next):
            logger.warning("%s: %s/%d was truncated at %d", self._name, *partition, log.valid_end)
            self._begin_anew({partition: None})
        else:
            if fetching.next < log.oldest:
                self._post(Fetched({}, {partition: (fetching.epoch, log.oldest)}))
            self._restart(partition, fetching, max(fetching.next, log.oldest))
            self._flow.resumed(partition)

    def _begin_anew(self, partitions: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        """Forget partitions whose log is another one now, and begin at its oldest message.

        Args:
            partitions: with the ids that their topics had; None for a log that was truncated.
        """
        gone = [
            each
            for each, was in partitions.items()
            if each in self._fetching and was in (None, self._fetching[each].topic_id)
        ]
        if not gone:
            return
        logger.warning("%s: the logs of %s are other ones now; begin at the oldest message", self._name, gone)
        staying = [each for each in gone if each not in self._going]
        self.drop(gone)
        self._post(Lost(tuple(gone)))
        for each in staying:
            self._waiting.add(each, Waiting(self.next_epoch(), was=partitions[each], oldest=True))


__all__ = ["SessionPartitions"]
