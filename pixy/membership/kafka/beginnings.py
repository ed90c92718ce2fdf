"""Decide where an assigned partition begins that the group has no offset of, in Kafka's own groups.

A part of the session, in its thread. A partition that was added since the group knows the topic, or whose topic was made since,
begins at its oldest message: ``newest`` is for what a new group does not want to see.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pixy.config.model import Consumer
from pixy.kafka.topics import Topics, differ
from pixy.membership import AssignedPartition
from pixy.membership.kafka.start_lookups import Found, StartLookups
from pixy.membership.kafka.waiting_partitions import Waiting
from pixy.membership.start_position import resolve_start
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_ASK_AGAIN = 1.0
"""Seconds between two attempts to learn which topics the group has offsets of."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a daemon knows of the topics that a group consumes, for all its sessions, one after another.

    Of those that are subscribed to, and of earlier ones up to ``max_topics`` in all.

    Attributes:
        counts: the number of partitions that each topic had when it was subscribed to.
        ids: the id that each topic had when it was described, or its first partition looked up, since it was subscribed to.
    """

    counts: dict[str, int] = field(default_factory=dict)
    ids: dict[str, uuid.UUID] = field(default_factory=dict)


class Beginnings:
    """Decides where partitions begin, from one session's knowledge of their topics, and that of the sessions before.

    Args:
        conf: its ``initial_offset`` decides for new groups.
        lookups: ask the coordinator.
        memory: what the sessions before knew.

    Attributes:
        made_again: the topics of which this session's client has met more than one id.
    """

    def __init__(self, conf: Consumer, lookups: StartLookups, memory: Memory) -> None:
        self._conf = conf
        self._lookups = lookups
        self._ids: dict[str, uuid.UUID] = {}
        """The id under which this session's client has met each topic first."""
        self.made_again: set[str] = set()
        self._known, self._first_ids = memory.counts, memory.ids
        self._subscribed: tuple[str, ...] = ()
        self._established: set[str] = set()
        """The topics that the group had offsets of before this member joined."""
        self._unasked: dict[str, int] = {}
        """Those of which that is not known. If it never is, they count as such: no message may be skipped."""
        self._ask_at = 0.0

    def subscribed(self, topics: Mapping[str, int]) -> list[str]:
        """Note how many partitions the topics have when they are subscribed to. Return those that no longer are."""
        gone = [each for each in self._subscribed if each not in topics]
        for topic in gone:
            self._known.pop(topic, None)
            self._unasked.pop(topic, None)
            self._first_ids.pop(topic, None)
        self._subscribed = tuple(topics)
        for topic, partitions in topics.items():
            self._known.setdefault(topic, partitions)
        earlier = [each for each in self._known if each not in topics]
        for topic in earlier[: max(0, len(self._known) - self._conf.max_topics)]:
            self._known.pop(topic)
            self._first_ids.pop(topic, None)
        return gone

    @property
    def described(self) -> set[str]:
        """The topics that exist and are subscribed to: their ids are asked for, also if other members have all their partitions."""
        return {topic for topic in self._subscribed if self._known.get(topic)}

    def news(self, topics: Topics) -> bool:
        """Return whether :meth:`meet` would learn anything. Thread-safe."""
        return any(
            topics.ids.get(topic) != self._ids.get(topic)
            if topic in topics.ids
            else topic not in self._first_ids
            for topic in self.described
        )

    def meet(self, topics: Topics) -> set[str]:
        """Note the ids of topics. One that is made again before a partition of it comes here is known by that.

        Returns:
            Those that this session's client has met under another id.
        """
        again = set()
        for topic in self.described:
            if topic in topics.ids:
                found = topics.ids[topic]
                if differ(self._ids.setdefault(topic, found), found):
                    again.add(topic)
                    self._ids[topic] = found
                self._first_ids.setdefault(topic, found)
            elif topic not in self._first_ids and topics.gone(topic):
                self._known[topic] = 0
        self.made_again |= again
        return again

    def before_joining(self, topics: Mapping[str, int]) -> None:
        """Look up which topics the group has offsets of. Call it before the member has joined. Blocks for a moment.

        In the group's first generation no member commits anything before all have joined. So what is found now was
        committed before that, by another tool or under another membership, and not by a member that begins beside us.

        Args:
            topics: with their numbers of partitions; those that were asked for before stay known.
        """
        if self._conf.initial_offset == "newest":
            self._unasked |= {topic: count for topic, count in topics.items() if count}
            self.ask()

    def ask(self) -> None:
        """Look up what the coordinator has not answered yet, if anything; at most once a second."""
        now = time.monotonic()
        if not self._unasked or now < self._ask_at:
            return
        known = [(topic, number) for topic, count in self._unasked.items() for number in range(count)]
        established = self._lookups.established(known)
        if established is None:
            self._ask_at = now + _ASK_AGAIN
        else:
            self._established |= established
            self._unasked.clear()

    def left(self) -> None:
        """Note that the member leaves the group; it may join again."""
        self._established.clear()
        self._unasked.clear()

    def of(self, partition: TopicPartition, waiting: Waiting, found: Found) -> AssignedPartition:
        """Return where a partition begins.

        Args:
            partition: which.
            waiting: its assignment.
            found: its log, and what the group has committed.
        """
        topic, number = partition
        log = found.log
        if differ(self._ids.setdefault(topic, log.topic_id), log.topic_id):
            self.made_again.add(topic)
        # Whatever the group has committed of it: if the topic goes, its offsets go as well, and only the id is left to tell.
        made_since = differ(self._first_ids.setdefault(topic, log.topic_id), log.topic_id)
        start = resolve_start(
            None if waiting.oldest else found.committed.offset,
            log.oldest,
            log.end,
            from_oldest=waiting.oldest
            or made_since
            or self._is_added(partition, waiting, found)
            or self._conf.initial_offset == "oldest",
            stable=log.newest(),
            epoch_end=log.epoch_end,
        )
        committed = found.committed.offset
        if committed is not None and not waiting.oldest and log.valid_end < committed <= log.end:
            logger.warning(
                "%s/%d was truncated at %d, below the committed offset %d, and has other messages since: they are delivered",
                topic,
                number,
                log.valid_end,
                committed,
            )
        metadata = "" if start.base is None else found.committed.metadata
        return AssignedPartition(
            topic, number, start.position, metadata, waiting.epoch, start.new, start.base, log.valid_end
        )

    def _is_added(self, partition: TopicPartition, waiting: Waiting, found: Found) -> bool:
        topic, number = partition
        if number >= self._known.get(topic, number + 1):
            return True
        # In the group's first generation an offset of another partition proves nothing: another member may just have
        # committed its beginning. Unless it was there before this one joined.
        known = not waiting.first or topic in self._established or topic in self._unasked
        return found.established and known


__all__ = ["Beginnings", "Memory"]
