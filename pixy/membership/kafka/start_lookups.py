"""Looks up where newly assigned partitions begin, in a thread, so that the group's consumer goes on polling.

A lookup reads the group's committed offsets from its coordinator and the bounds of the logs from their leaders.
Every partition has its own outcome: what answers is reported at once, what does not is asked for again later.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pixy.errors import PixyError, Unavailable
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import translate
from pixy.kafka.group_members import GroupMembers
from pixy.kafka.group_offsets import UNKNOWN, CommittedOffset, GroupOffsets
from pixy.kafka.partition_logs import FirstAttempt, Log, PartitionLogs
from pixy.kafka.settings import Settings
from pixy.kafka.shared_topics import SHARED
from pixy.kafka.topics import Topics
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_PATIENCE = 3.0
"""Seconds to look for a coordinator that moves, before the lookup fails and the session tries again."""
_BEFORE_JOINING = 1.0
"""Seconds to look for a coordinator before a member joins, which has to find it anyway."""


@dataclass(frozen=True, slots=True)
class Found:
    """The log and the committed offset of a partition, as found in Kafka.

    Args:
        log: the bounds of its log, and the id of its topic.
        committed: what the group has committed for it.
        established: the group had committed an offset of the topic when it first asked, for this partition or another.
    """

    log: Log
    committed: CommittedOffset
    established: bool


MOST = 4
"""Lookups of one group at the same time. One runs for some 10 s at most, if a leader does not answer."""

Outcomes = Mapping[TopicPartition, Found | PixyError]


class StartLookups:
    """Lookups of one group, each in a thread of its own. Call all methods from one thread.

    The coordinator answers one at a time. The leaders are asked at once: a lookup that waits for one that does not
    answer holds up no later one, up to a bound.

    Args:
        settings: the consumer's settings; see :mod:`pixy.kafka.settings`.
        group: the group's name.
    """

    def __init__(self, settings: Settings, group: str) -> None:
        self._group = group
        self._cluster = settings.get("bootstrap.servers"), settings.get("sasl.username")
        self._offsets = GroupOffsets(settings, group)
        self._brokers = Brokers(settings)
        self._logs = PartitionLogs(self._brokers)
        self._coordinator = threading.Lock()
        """Held while the coordinator is asked, over the one connection to it."""
        self._threads: list[threading.Thread] = []
        self._closed = False

    @property
    def running(self) -> int:
        """The number of lookups that are running. Begin no more than :data:`MOST` of them."""
        self._threads = [each for each in self._threads if each.is_alive()]
        return len(self._threads)

    def look_up(
        self,
        partitions: Mapping[TopicPartition, FirstAttempt],
        after: threading.Thread | None,
        found: Callable[[Outcomes], None],
        done: Callable[[], None],
    ) -> None:
        """Begin a lookup.

        Args:
            partitions: which, and when each was looked up first.
            after: a commit in progress, whose end is waited for; None for none.
            found: called in other threads with some outcomes at a time.
            done: called in another thread at the end, after all outcomes.
        """
        wanted = dict(partitions)
        for first in wanted.values():
            first.attempts += 1

        def job() -> None:
            if after is not None:
                after.join()
            self._find(wanted, found)
            done()

        def failed(error: PixyError) -> None:
            found(dict.fromkeys(wanted, error))
            done()

        self._start(job, failed)

    def describe(
        self, topics: Iterable[str], found: Callable[[Topics], None], since: float = math.inf
    ) -> None:
        """Begin to ask the coordinator about topics; a failure is logged.

        Groups with the same coordinator ask together, so that idle ones cost little.

        Args:
            topics: their names.
            found: called in this or another thread.
            since: an answer that another group has got after this moment, in seconds of ``time.monotonic``, will do.
        """
        names, coordinator = set(topics), self._offsets.coordinator
        if coordinator is None:
            self._start(lambda: found(self._ask(names)), self._not_described)
            return
        key = self._cluster, str(coordinator)
        if not SHARED.wants(key, self, names, since, found):
            return

        def ask(names: frozenset[str]) -> Topics | None:
            answer = self._ask(names)
            return answer if self._offsets.coordinator == coordinator else None

        if not self._start(lambda: SHARED.ask(key, ask), self._not_described):
            SHARED.nobody_asks(key)

    def _ask(self, names: Iterable[str]) -> Topics:
        with self._coordinator:
            return self._offsets.topics(names)

    def _not_described(self, error: PixyError) -> None:
        logger.info("group %s: describing its topics failed: %s", self._group, error)

    def logs(
        self,
        partitions: Iterable[TopicPartition],
        found: Callable[[Mapping[TopicPartition, Log]], None],
        attempts: Mapping[TopicPartition, FirstAttempt] = MappingProxyType({}),
    ) -> None:
        """Begin to look up the logs of partitions; a failure is logged, and leaves a partition out.

        Args:
            partitions: which.
            found: called in other threads with some logs at a time.
            attempts: when they were looked up first, for those of which that matters.
        """
        wanted, since = list(partitions), dict(attempts)
        for first in since.values():
            first.attempts += 1

        def job() -> None:
            with self._coordinator:
                topics = self._offsets.topics({topic for topic, _ in wanted})
            self._logs.look_up(wanted, topics, lambda outcomes: found(_found(outcomes)), since)

        self._start(
            job, lambda error: logger.info("group %s: looking up logs failed: %s", self._group, error)
        )

    def behind(self, member_id: str, found: Callable[[int | None], None]) -> None:
        """Begin to ask the coordinator for the epoch of a member that has not taken over its assignment; a failure is logged.

        Args:
            member_id: which one.
            found: called in another thread.
        """

        def job() -> None:
            found(GroupMembers(self._brokers).described([self._group])[self._group].behind(member_id))

        self._start(
            job, lambda error: logger.info("group %s: looking up its members failed: %s", self._group, error)
        )

    def established(self, partitions: Iterable[TopicPartition]) -> set[str] | None:
        """Return the topics that the group has committed offsets of; None after a failure, which is logged. Blocks.

        Args:
            partitions: all partitions of some topics.
        """
        try:
            with self._coordinator:
                found, _ = self._offsets.fetch(partitions, patience=_BEFORE_JOINING)
        except PixyError as error:
            logger.info("group %s: looking up its offsets failed: %s", self._group, error)
            return None
        return {topic for (topic, _), each in found.items() if each.offset is not None}

    def close(self) -> None:
        """Close the connection, after the lookups that are running."""
        self._closed = True
        if not self.running:
            self._offsets.close()

    # -- in the thread ----------------------------------------------------------------------------

    def _start(self, job: Callable[[], None], failed: Callable[[PixyError], None]) -> bool:
        """Run a job in a thread. Returns whether it runs: at a limit of threads it fails, and a later one may find room."""

        def run() -> None:
            try:
                job()
            except PixyError as error:
                failed(error)
            except Exception as error:
                logger.exception("group %s: a lookup failed", self._group)
                failed(translate(error))
            if self._closed:
                with self._coordinator:
                    self._offsets.close()

        thread = threading.Thread(target=run, name="kafka-starts", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            failed(Unavailable(f"cannot look up now: {error}"))
            return False
        self._threads.append(thread)
        return True

    def _find(
        self, partitions: Mapping[TopicPartition, FirstAttempt], found: Callable[[Outcomes], None]
    ) -> None:
        with self._coordinator:
            # The ids first: of a topic that is made again meanwhile the old one is known, so that it is noticed.
            topics = self._offsets.topics({topic for topic, _ in partitions}, patience=_PATIENCE)
            committed, refused = self._offsets.fetch(partitions, patience=_PATIENCE)
            established = self._established(committed, topics)
        for (topic, _), first in partitions.items():
            if first.established is None:
                first.established = topic in established
        if refused:
            found(refused)

        def asked(outcomes: Mapping[TopicPartition, Log | PixyError]) -> None:
            found(
                {
                    each: Found(log, committed[each], bool(partitions[each].established))
                    if isinstance(log, Log)
                    else log
                    for each, log in outcomes.items()
                }
            )

        epochs = {each: known.epoch for each, known in committed.items()}
        epochs |= {each: first.leader for each, first in partitions.items() if first.leader != UNKNOWN}
        epochs = {each: epoch for each, epoch in epochs.items() if epoch != UNKNOWN}
        self._logs.look_up(committed, topics, asked, partitions, epochs)

    def _established(self, committed: Mapping[TopicPartition, CommittedOffset], topics: Topics) -> set[str]:
        """Return the topics that the group has committed offsets of."""
        established = {topic for (topic, _), found in committed.items() if found.offset is not None}
        others = [
            (topic, number)
            for topic, count in topics.counts.items()
            if topic not in established
            for number in range(count)
            if (topic, number) not in committed
        ]
        if others:
            found, _ = self._offsets.fetch(others, patience=_PATIENCE)
            established |= {topic for (topic, _), each in found.items() if each.offset is not None}
        return established


def _found(outcomes: Mapping[TopicPartition, Log | PixyError]) -> dict[TopicPartition, Log]:
    return {partition: log for partition, log in outcomes.items() if isinstance(log, Log)}


__all__ = ["MOST", "Found", "Outcomes", "StartLookups"]
