"""Find where the partitions of a consumer instance begin.

In this order: the reader's position before a restart of the instance, unless another member has committed since;
the group's committed offset; the beginning of a partition that was added, or whose topic was made again, after the
subscription; the oldest record or the end, as ``auto.offset.reset`` says. A position that has expired continues at
the oldest record whatever ``auto.offset.reset`` says, because the broker refuses it and librdkafka is told to go to
the beginning then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pixy.errors import PixyError, UnknownPartition
from pixy.kafka.errors import unknown_topic
from pixy.kafka.instance_consumer import BEGINNING, END, InstanceConsumer
from pixy.kafka.partition_logs import FirstAttempt
from pixy.kafka.topics import Topics
from pixy.membership.instances import Earlier, EarlierPosition
from pixy.wire.connection import Broker
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_TIMEOUT = 10.0
_OLDEST_TIMEOUT = 1.0

Starts = dict[TopicPartition, int]
"""Offsets, or END for those that are late. BEGINNING, which the Kafka client looks up itself, where the oldest offset is not
known: while the client does so, seeks are without effect.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The offsets at which partitions begin.

    Args:
        starts: of all of them.
        new: of those that begin at their end because nothing is committed for them.
        late: those of which the end could not be looked up.
    """

    starts: Starts
    new: Starts
    late: dict[TopicPartition, FirstAttempt]

    @property
    def to_fetch(self) -> Starts:
        """The offsets to give to the Kafka client. Late partitions get 0, and are paused until their beginning is known: with END,
        the client would look up the end, and its answer could undo that beginning.
        """
        return {**self.starts, **dict.fromkeys(self.late, 0)}


class StartOffsets:
    """For one session, in its thread.

    Args:
        name: the session's, for logs.
        oldest: whether ``auto.offset.reset`` is ``earliest``.
        commits: whether the instance commits automatically, and the offsets where its partitions begin as well.
            Then a partition without an offset, in a group that has offsets of all those below it, was added.
        earlier: the reader's positions before a restart, the topics that it read, and the partitions that waited for their beginning.
    """

    def __init__(self, name: str, *, oldest: bool, commits: bool, earlier: Earlier) -> None:
        self._name = name
        self._oldest = oldest
        self._commits = commits
        self._resume = dict(earlier.positions)
        self._late = dict(earlier.late)
        self._subscribed: tuple[str, ...] = ()
        self._known = {
            topic: met.partitions for topic, met in earlier.topics.items() if met.partitions is not None
        }
        """The number of partitions of a topic when the subscription to it began, be it before a restart; 0 once the topic
        was made again: then all of them were added.
        """
        self._all_known = False

    def subscribed(self, topics: tuple[str, ...], added: Iterable[str] = ()) -> None:
        """Note which topics the instance consumes from now on.

        Args:
            topics: their names.
            added: those of them that were made after the reader had subscribed to a pattern.
        """
        self._subscribed = topics
        self._all_known = False
        for topic in added:
            self._known.setdefault(topic, 0)

    @property
    def known(self) -> Mapping[str, int]:
        """The number of partitions that each topic had: those above were added. See :class:`MetTopic`."""
        return self._known

    def made_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the topics of these were made again: none of their partitions begins at its end."""
        for topic, _ in partitions:
            self._known[topic] = 0

    def of_member(
        self, client: InstanceConsumer, partitions: list[TopicPartition], again: set[TopicPartition]
    ) -> Found:
        """Find where partitions begin that the group has assigned.

        Args:
            client: the instance's.
            partitions: newly assigned.
            again: those whose topic was made again since the instance first read it, or since it restarted: positions from
                before are another topic's.

        Raises:
            PixyError: the coordinator does not tell the committed offsets.
        """
        self._note(client)
        self.made_again(again)
        starts = self._committed(client, partitions, again, self._continued)
        late = _among(self._late, set(partitions) - starts.keys() - again)
        self.forget({*partitions, *again})
        missing = [partition for partition in partitions if partition not in starts and partition not in late]
        added = set(missing) if self._oldest else self._added(client, missing) | again.intersection(missing)
        begin = self._oldest_offsets(client, added | _at_oldest(starts))
        ends, unanswered = self._ends(client, [partition for partition in missing if partition not in added])
        late |= unanswered
        return Found({**starts, **begin, **ends, **dict.fromkeys(late, END)}, ends, late)

    def of_assignment(
        self,
        client: InstanceConsumer,
        partitions: list[TopicPartition],
        keep: Mapping[TopicPartition, int],
        again: Collection[TopicPartition] = frozenset(),
        *,
        late: Mapping[TopicPartition, FirstAttempt] = MappingProxyType({}),
        repeated: bool = False,
    ) -> Found:
        """Find the starts of partitions that the client has chosen. A topic need not exist yet.

        Positions from before a restart are kept until :meth:`assigned`, so that an assignment that fails can be tried again.

        Args:
            client: the instance's.
            partitions: all of them.
            keep: positions to keep. Those before a restart are kept too: the client has chosen the partitions, so
                no other member takes them over.
            again: as for :meth:`of_member`. Such a partition begins at its oldest record, if it was chosen before.
            late: the partitions that wait for their beginning in this session, chosen or not.
            repeated: the client has chosen the partitions before a restart. One that does not exist is no error then,
                as it is none in a session that goes on: it begins at its oldest record if it is made.

        Raises:
            UnknownPartition: the topic exists without that partition.
            PixyError: the cluster does not answer.
        """
        layout = client.layout({topic for topic, _ in partitions})
        gone = {each for each in partitions if each[0] in layout and each[1] not in layout[each[0]]}
        if gone and not repeated:
            missing_topic = unknown_topic()
            raise UnknownPartition(str(missing_topic), missing_topic.code, missing_topic.name)
        if gone:
            logger.warning("%s: %s do not exist any more; the others are read", self._name, sorted(gone))
        found = self._committed(client, partitions, again, lambda earlier, _: earlier.offset)
        starts = {**found, **keep}
        whole = {each for each in again if repeated or each in self._resume or each in self._late} | gone
        whole |= {each for each in partitions if each[0] not in layout}
        waiting = _among(self._late, set(partitions) - starts.keys() - whole) | _among(late, set(partitions))
        missing = [each for each in partitions if each not in starts and each not in waiting]
        begin = {each for each in missing if self._oldest or each in whole}
        ends, unanswered = self._ends(client, [each for each in missing if each not in begin])
        begin |= _at_oldest(found) - keep.keys()
        waiting |= unanswered
        starts |= {**self._oldest_offsets(client, begin), **ends, **dict.fromkeys(waiting, END)}
        return Found(starts, {}, waiting)

    def assigned(self) -> None:
        """Note that the Kafka client fetches exactly what :meth:`of_assignment` has found: no position from before a restart is left."""
        self._resume.clear()
        self._late.clear()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the positions from before a restart of partitions that are gone, or assigned again."""
        for partition in partitions:
            self._resume.pop(partition, None)
            self._late.pop(partition, None)

    def _committed(
        self,
        client: InstanceConsumer,
        partitions: list[TopicPartition],
        again: Collection[TopicPartition],
        resume: Callable[[EarlierPosition, int | None], int],
    ) -> Starts:
        """Return the committed offsets, or, where there is a position from before a restart, what ``resume`` makes of both.

        In a topic that was made again, that position means nothing, nor does a committed offset that the instance may have
        committed itself: its last commit may have met the new topic.
        """
        if not partitions:
            return {}
        starts: Starts = {}
        for partition, found in client.committed(partitions, _TIMEOUT).items():
            earlier, start = self._resume.get(partition), found.offset
            if earlier is not None and partition in again:
                start = None if start == earlier.offset or earlier.holds(start) else start
            elif earlier is not None:
                start = resume(earlier, start)
            if start is not None:
                starts[partition] = start
        return starts

    def _continued(self, earlier: EarlierPosition, committed: int | None) -> int:
        if committed is None or earlier.holds(committed):
            return earlier.offset
        logger.info(
            "%s: continues at the committed offset %s, not at %d as before the restart: another member has committed",
            self._name,
            committed,
            earlier.offset,
        )
        return committed

    def _note(self, client: InstanceConsumer) -> None:
        """Remember how many partitions each topic has, at the first assignment after a subscription."""
        if self._oldest or self._all_known:
            return
        wanted = set(self._subscribed) - set(self._known)
        try:
            layout = client.layout(wanted) if wanted else {}
        except PixyError as error:
            logger.warning("%s: cannot look up the topics' partitions: %s", self._name, error)
            return
        for topic in wanted | set(layout):
            self._known.setdefault(topic, len(layout.get(topic, ())))
        self._all_known = True

    def _added(self, client: InstanceConsumer, missing: list[TopicPartition]) -> set[TopicPartition]:
        if not self._all_known:
            missing = [partition for partition in missing if partition[0] in self._known]
        added = {(topic, number) for topic, number in missing if number >= self._known.get(topic, 0)}
        below = {
            (topic, number): [(topic, lower) for lower in range(number)]
            for topic, number in missing
            if self._commits and number and (topic, number) not in added
        }
        if below:
            asked = sorted({each for lower in below.values() for each in lower})
            found = client.committed(asked, _TIMEOUT)
            for partition, lower in below.items():
                if all(found[each].offset is not None for each in lower):
                    added.add(partition)
        return added

    def _oldest_offsets(self, client: InstanceConsumer, partitions: Iterable[TopicPartition]) -> Starts:
        """Return the oldest offsets, BEGINNING for those that do not answer at once.

        The client would look them up itself, but a seek that comes before it has its answer is undone by the answer: of a hundred
        seeks right after the subscription, 70 to 100 were.
        """
        wanted = list(partitions)
        found = dict.fromkeys(wanted, BEGINNING)
        if not wanted:
            return found
        try:
            topics = client.topics({topic for topic, _ in wanted}, _OLDEST_TIMEOUT)
            if ready := _with_leader(wanted, topics):
                found |= client.ends(ready, _OLDEST_TIMEOUT, oldest=True)
        except PixyError as error:
            logger.info("%s: cannot look up the beginnings of %s: %s", self._name, wanted, error)
        return found

    def _ends(
        self, client: InstanceConsumer, partitions: list[TopicPartition]
    ) -> tuple[Starts, dict[TopicPartition, FirstAttempt]]:
        """Return the ends of partitions, and those that do not answer, which hold up no other."""
        if not partitions:
            return {}, {}
        late = {partition: FirstAttempt() for partition in partitions}
        ends: Starts = {}
        try:
            topics = client.topics({topic for topic, _ in partitions}, _TIMEOUT)
            for partition, first in late.items():
                first.epoch = topics.leader_epoch(partition)
            if ready := _with_leader(partitions, topics):
                ends = client.ends(ready, _TIMEOUT, oldest=False)
        except PixyError as error:
            logger.warning("%s: cannot look up the ends of %s: %s", self._name, partitions, error)
        for first in late.values():
            first.attempts += 1
        return ends, {each: first for each, first in late.items() if each not in ends}


def _at_oldest(starts: Starts) -> set[TopicPartition]:
    return {each for each, offset in starts.items() if offset == BEGINNING}


def _among(
    attempts: Mapping[TopicPartition, FirstAttempt], partitions: set[TopicPartition]
) -> dict[TopicPartition, FirstAttempt]:
    return {each: first for each, first in attempts.items() if each in partitions}


def _with_leader(partitions: Iterable[TopicPartition], topics: Topics) -> list[TopicPartition]:
    return [each for each in partitions if isinstance(topics.leader(each), Broker)]


__all__ = ["Found", "StartOffsets", "Starts"]
