"""The topics that a consumer instance reads, by their ids: another id under the same name is another topic.

librdkafka follows a topic that was deleted and made again, and goes on at the old position. So an instance compares
the ids before every commit, when records come back to lower offsets, and every 5 s while it is read. Between reads
nothing is compared: nothing is handed out then.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pixy.errors import PixyError
from pixy.kafka.consumer import Check, Commit
from pixy.kafka.errors import not_fetched, not_shared_out
from pixy.kafka.group_offsets import GroupOffsets
from pixy.kafka.instance_consumer import InstanceConsumer, partition_of
from pixy.kafka.partition_logs import Log
from pixy.kafka.topics import Topics, differ
from pixy.membership.instances import MetTopic
from pixy.membership.kafka.recreated import begin_anew, recreated
from pixy.membership.kafka.start_lookups import MOST, StartLookups
from pixy.membership.kafka.unheard import Unheard
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_COMPARE_IDS = 5.0
_PATIENCE = 10.0

Ids = Mapping[TopicPartition, uuid.UUID | None]


class InstanceTopics:
    """Watches the ids of the topics of one session, in the session's thread.

    Args:
        client: the session's.
        lookups: ask in threads of their own, so that reads go on.
        command: takes what other threads want to be run in the session's thread.
        begin_anew: called with assigned partitions whose topic is another one now.
        earlier: the topics that the instance read before it restarted.
        learned: called when there are new :attr:`ids`, in the session's thread.
        shares_out: a member of the group shares the partitions out, and not the coordinator.
    """

    def __init__(
        self,
        client: InstanceConsumer,
        lookups: StartLookups,
        command: Callable[[Callable[[], None]], None],
        begin_anew: Callable[[set[TopicPartition]], None],
        earlier: Mapping[str, MetTopic] = MappingProxyType({}),
        learned: Callable[[], None] = lambda: None,
        *,
        shares_out: bool = False,
    ) -> None:
        self._client = client
        self._shares_out = shares_out
        self._lookups = lookups
        self._command = command
        self._begin_anew = begin_anew
        self._learned = learned
        self._ids: dict[TopicPartition, uuid.UUID | None] = {}
        """Of assigned partitions; None while the coordinator has never known the topic, which need not exist yet."""
        self._first = {topic: met.id for topic, met in earlier.items() if met.id is not None}
        """The id that each topic had after the subscription, when a partition of it was first assigned, or before the restart."""
        self._last = dict(self._first)
        """See :attr:`ids`."""
        self._subscribed: frozenset[str] = frozenset()
        self._met: dict[str, uuid.UUID] = {}
        """The id under which this session's client has met each topic that it consumes first."""
        self._next: dict[TopicPartition, int] = {}
        """The offset after the last record that was returned, by partition."""
        self._compare_at = 0.0
        self._made_again: set[str] = set()
        """The topics of which the client has met another id before."""
        self._no_more: set[TopicPartition] = set()
        """Assigned partitions that such a topic does not have: it was made again with fewer."""
        self._unheard = Unheard()
        self.silent = self._unheard.silent
        """Partitions that have returned nothing yet. While there are none, skip the call of :meth:`heard` for each record."""

    def subscribed(self, topics: Iterable[str]) -> None:
        """Note which topics the instance consumes from now on, and begin to ask for their ids.

        Also of those that other members have all partitions of: one that is made again before a partition of it comes here is
        known by its id.
        """
        self._subscribed = frozenset(topics)
        self._met = {topic: met for topic, met in self._met.items() if topic in self._subscribed}
        if self._subscribed:
            self._compare_at = 0.0
            self.compare()

    def added(self, partitions: list[TopicPartition]) -> set[TopicPartition]:
        """Note the ids of newly assigned partitions' topics; return those whose topic was another one before.

        Call it before the committed offsets are read. If a topic is made again between the two, its partitions then
        count as those of another topic, and begin at their oldest record.

        Raises:
            PixyError: the coordinator does not answer.
        """
        if not partitions:
            return set()
        ids = self._client.topic_ids({topic for topic, _ in partitions}, _PATIENCE)
        for partition in partitions:
            if self._ids.get(partition) is None:
                # A topic that is missing had an id if it was read before: one that is made now is another.
                self._ids[partition] = ids.get(partition[0], self._first.get(partition[0]))
        self._learn(ids)
        self._compare_at = time.monotonic() + _COMPARE_IDS
        others = {
            partition
            for partition in partitions
            if partition[0] in ids and differ(self._first[partition[0]], ids[partition[0]])
        }
        self._made_again.update(topic for topic, _ in others)
        return others

    def _learn(self, ids: Mapping[str, uuid.UUID]) -> bool:
        """Note the first ids of topics. From then on each of their partitions has an id. Returns whether there were new ones."""
        known = len(self._first)
        for partition, was in self._ids.items():
            if (topic := partition[0]) in ids:
                first = self._first.setdefault(topic, ids[topic])
                if was is None:
                    self._ids[partition] = first
        return len(self._first) > known

    @property
    def ids(self) -> Mapping[str, uuid.UUID]:
        """The id that the positions of each topic belong to. Until all partitions of a topic that was made again have begun
        anew, it is the old one: a restart would rather return records twice than skip some.
        """
        found: dict[str, set[uuid.UUID | None]] = {}
        for (topic, _), each in self._ids.items():
            found.setdefault(topic, set()).add(each)
        for topic, ids in found.items():
            if len(ids) == 1 and (one := ids.pop()) is not None:
                self._last[topic] = one
        return self._last

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are assigned no longer."""
        gone = list(partitions)
        self._unheard.heard(gone)
        for partition in gone:
            self._ids.pop(partition, None)
            self._next.pop(partition, None)
            self._no_more.discard(partition)

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions were sought, and so may go back."""
        for partition in partitions:
            self._next.pop(partition, None)

    # -- what librdkafka does not fetch --------------------------------------------------------------

    def started(self, starts: Mapping[TopicPartition, int]) -> None:
        """Note that librdkafka was told to fetch partitions from these offsets."""
        again = {each: offset for each, offset in starts.items() if each[0] in self._made_again}
        self._unheard.started(again, time.monotonic())

    def heard(self, message: Any) -> None:
        """Note a record, or the event of a partition's end."""
        self._unheard.heard((partition_of(message),))

    def check_unheard(self, *, busy: bool) -> None:
        """Call it after the polls of a read. Raises KafkaError if librdkafka does not fetch a partition that has records.

        Args:
            busy: they have brought records of others, so those of the partition may lie behind these in the queue.
        """
        if not self.silent:
            return
        if topics := self._unheard.to_learn():
            self._client.learn(topics)
            self._unheard.learned(time.monotonic())
        now = time.monotonic()
        if stuck := self._unheard.stuck(now, busy=busy):
            raise not_fetched(stuck)
        if self._lookups.running < MOST and (silent := self._unheard.due(now)):
            self._lookups.logs(silent, self._take_logs)

    def _take_logs(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Take logs that a look-up has found. Called in another thread."""
        self._command(lambda: self._unheard.looked_up(logs, time.monotonic()))

    # -- comparing --------------------------------------------------------------------------------

    @property
    def _described(self) -> set[str]:
        """The topics that are consumed; brokers before Kafka 2.8 have no ids."""
        return {each for each in self._subscribed if self._met.get(each) != NULL_UUID}

    @property
    def due(self) -> bool:
        """True if it is time to compare."""
        return time.monotonic() >= self._compare_at

    def compare(self) -> None:
        """Begin to compare, if it is time."""
        if self.due:
            self._compare_at = time.monotonic() + _COMPARE_IDS
            known = dict(self._ids)
            others = self._described if self._shares_out else self._subscribed - self._first.keys()
            compares = any(each != NULL_UUID for each in known.values())
            if (compares or others) and self._lookups.running < MOST:
                self._lookups.describe(
                    others.union(topic for topic, _ in known), lambda topics: self._told(known, topics)
                )

    def returned(self, last: Any) -> None:
        """Note the last of some messages."""
        partition = partition_of(last)
        self._next[partition] = last.offset() + 1
        if self._ids.get(partition) is None:
            self._compare_at = 0.0  # so there is a topic now, and this position is its own

    def gone_before(self, message: Any) -> set[TopicPartition]:
        """Return the partitions that a message shows to belong to another topic, because its offset is lower than those of
        the messages before. They begin anew.

        Not for every message: what this does not see, the next comparison does, and it comes once more.
        """
        partition = partition_of(message)
        if message.offset() >= self._next.get(partition, 0):
            return set()
        del self._next[partition]
        known = {each: was for each, was in self._ids.items() if each[0] == partition[0]}
        try:
            ids = self._client.topic_ids({partition[0]}, 0.0)
        except PixyError as error:
            logger.info("describing topic %s failed: %s", partition[0], error)
            return set()
        return self._compared(known, ids)

    def check(self, batch: tuple[Commit, ...]) -> Check | None:
        """Make what keeps positions of topics that are gone out of a commit; None if no topic has an id.

        A topic that does not exist may be made again before the commit reaches Kafka.
        """
        made = {(each.topic, each.partition) for each in batch}
        known = {each: was for each, was in self._ids.items() if each in made and was != NULL_UUID}
        if not known:
            return None  # brokers before Kafka 2.8 have no ids

        asked = {topic for topic, _ in known}

        def check(offsets: GroupOffsets, commits: tuple[Commit, ...]) -> tuple[Commit, ...]:
            topics = offsets.topics(asked, patience=_PATIENCE)
            self._told(known, topics)
            self._note_missing(known, topics)
            left = tuple(each for each in commits if each.topic not in asked or not topics.gone(each.topic))
            return begin_anew(self.existing(left), recreated(_of_known(known), topics.ids))

        return check

    def existing(self, commits: Iterable[Commit]) -> tuple[Commit, ...]:
        """Leave out the commits of partitions that are no more, because their topic was made again with fewer."""
        return tuple(each for each in commits if (each.topic, each.partition) not in self._no_more)

    def _missing(self, known: Ids, topics: Topics) -> set[TopicPartition]:
        # Only of topics that were made again: others never have fewer, but a broker may not have heard yet that they have more.
        again = {topic for topic, _ in recreated(_of_known(known), topics.ids)} | self._made_again
        return {
            each for each in known if each[0] in again and each[1] >= topics.counts.get(each[0], each[1] + 1)
        }

    def _note_missing(self, known: Ids, topics: Topics) -> None:
        self._no_more = (self._no_more - known.keys()) | self._missing(known, topics)

    def _told(self, known: Ids, topics: Topics) -> None:
        def compared() -> None:
            self._note_missing(known, topics)
            self._compared(known, topics.ids)

        if any(self._met.get(each) != topics.ids[each] for each in self._subscribed & topics.ids.keys()):
            self._command(lambda: self._meet(topics.ids))
        new = any(was is None and topic in topics.ids for (topic, _), was in known.items())
        fewer = self._missing(known, topics) != self._no_more & known.keys()
        if new or fewer or recreated(_of_known(known), topics.ids):
            self._command(compared)

    def _meet(self, ids: Mapping[str, uuid.UUID]) -> None:
        """Note the ids of topics. Raises KafkaError for one that was made again, if the group may not have shared it out."""
        found = self._subscribed & ids.keys()
        if new := found - self._first.keys():
            for topic in new:
                self._first[topic] = self._last[topic] = ids[topic]
            self._learned()
        ours = {topic for topic, _ in self._ids}
        again = {each for each in found if differ(self._met.setdefault(each, ids[each]), ids[each])}
        self._met.update((each, ids[each]) for each in again)
        if (missed := again - ours) and self._shares_out:
            raise not_shared_out(missed)

    def _compared(self, known: Ids, ids: Mapping[str, uuid.UUID]) -> set[TopicPartition]:
        if self._learn(ids):
            self._learned()
        changed = {
            each for each, was in recreated(_of_known(known), ids).items() if self._ids.get(each) == was
        }
        for partition in changed:
            self._ids[partition] = ids[partition[0]]
            self._next.pop(partition, None)
        if changed:
            self._made_again.update(topic for topic, _ in changed)
            self._begin_anew(changed)
        return changed


def _of_known(ids: Ids) -> dict[TopicPartition, uuid.UUID]:
    return {partition: found for partition, found in ids.items() if found is not None}


__all__ = ["InstanceTopics"]
