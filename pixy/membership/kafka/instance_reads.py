"""Find records for the reads of a consumer instance, and stop fetching while nobody reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pixy.errors import PixyError
from pixy.kafka.consumer import PARTITION_END
from pixy.kafka.errors import ends_consumer, translate
from pixy.kafka.instance_consumer import InstanceConsumer, is_transient, partition_of, size_of
from pixy.membership.instances import Fetched, Refused
from pixy.membership.kafka.first_records import FirstRecords
from pixy.membership.kafka.instance_partitions import InstancePartitions
from pixy.membership.kafka.instance_topics import InstanceTopics
from pixy.membership.kafka.late_starts import LateStarts
from pixy.membership.poll_interval import PollInterval
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.membership")

_WAKING_TIMEOUT = 1.0
_CHUNK = 1000
_FIRST_CHUNK = 64

POLL_INTERVAL = PollInterval()


class Wanted:
    """The arguments of the waiting read: the loop sets them, the session's thread takes them."""

    __slots__ = ("arguments",)

    def __init__(self) -> None:
        self.arguments = (0, 0, True)
        """``most``, ``max_bytes`` and ``wait`` of the last ``want``."""

    @property
    def most(self) -> int:
        """The most records to return; 0: no read waits."""
        return self.arguments[0]


class InstanceReads:
    """Serves the reads of one session, in the session's thread.

    Args:
        name: the session's, for logs.
        client: the session's.
        wanted: what to look for.
        assigned: the partitions that the session has.
        topics: whether these are still the same ones.
        late: those that cannot begin yet.
        commands: while there are some, polls end.
        post: called with events for the instance.
        pause_after: seconds without a read after which nothing is fetched.
    """

    def __init__(
        self,
        name: str,
        client: InstanceConsumer,
        wanted: Wanted,
        assigned: InstancePartitions,
        topics: InstanceTopics,
        late: LateStarts,
        commands: Collection[object],
        post: Callable[[Fetched | Refused], None],
        pause_after: float,
    ) -> None:
        self._name = name
        self._client = client
        self._wanted = wanted
        self._assigned = assigned
        self._topics = topics
        self._late = late
        self._commands = commands
        self._post = post
        self.pause_after = pause_after
        self.ahead: list[Any] = []
        """Messages that no read has got yet: found for one that waits, or while none was waiting."""
        self._gone = False
        """True if partitions have gone since this was last set to False."""
        self._first_records = FirstRecords()
        self.looked = self.polled = time.monotonic()
        self.paused = False
        """True if nothing is fetched, because nobody reads."""

    # -- polling ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Poll for a read that waits until a record or a command comes, then take the records that are ready."""
        self.looked = self.polled = time.monotonic()
        if self.paused:
            self._resume_fetching()
        self._topics.compare()
        most, max_bytes, wait = self._wanted.arguments
        found = self.ahead  # a partition that goes in one of these polls takes its messages out of it
        if not found and wait:
            first = self._wait()
            if first is None or not self._keep(first, found):
                return
        if found and (gone := self._topics.gone_before(found[0])):
            found[:] = [message for message in found if partition_of(message) not in gone]
            return
        if found and self._first_records:
            self._first_records.gather(found, self._client.poll, self._keep, lambda: self._commands)
        size = self._fill(found, most, max_bytes)
        self.ahead, self._wanted.arguments = [], (0, 0, True)
        self.looked = self.polled = time.monotonic()
        if found:
            self._topics.returned(found[-1])
        self._post(Fetched(found, size))
        if found:
            self._topics.check_unheard(busy=True)

    def _fill(self, found: list[Any], most: int, max_bytes: int) -> int:
        """Add the messages that are ready to those of a read. Returns the bytes of all."""
        size = sum(map(size_of, found))
        while len(found) < most and size < max_bytes:
            # As many as probably fit; the instance keeps any excess for the next read.
            room = int((max_bytes - size) * len(found) / size) + 1 if size else _FIRST_CHUNK
            self._gone = False
            batch = self._client.take(max(1, min(most - len(found), room, _CHUNK)))
            if self._gone:
                held = self._assigned.keys
                batch = [each for each in batch if each.error() is not None or partition_of(each) in held]
                size = sum(map(size_of, found))
            if not batch:
                break
            for message in batch:
                if self._keep(message, found):
                    size += size_of(message)
        return size

    def _wait(self) -> Any:
        poll, interval = self._client.poll, POLL_INTERVAL
        with interval:
            while True:
                message = poll(interval.seconds)
                if message is None:
                    self._topics.check_unheard(busy=False)
                if message is not None or self._commands or not self._wanted.most:
                    return message
                if self._topics.due or self._late.due:
                    return None

    def rest(self) -> None:
        """Poll to serve rebalances while no read waits. A record that turns up is kept for the next read."""
        self.polled = time.monotonic()
        message = self._client.poll(0)
        if message is not None:
            self._keep(message, self.ahead)
        if not self.paused and self._assigned and time.monotonic() - self.looked > self.pause_after:
            # The reader is away: drop the records fetched ahead and stop fetching.
            self.paused = True
            self._client.pause(self._assigned)

    def _resume_fetching(self) -> None:
        """Fetch again after a pause.

        The library's broker threads then sleep for up to a second, and a response to any request wakes
        them. So this asks for the ends of the partitions: the next record comes after 4 ms instead of
        400 on average.
        """
        self.paused = False
        self._first_records.expect(self._assigned)
        self._late.resume(self._assigned)
        try:
            self._client.ends(self._assigned, _WAKING_TIMEOUT, oldest=False)
        except PixyError as error:
            logger.info(
                "%s: resumed fetching; looking up the ends of the partitions failed: %s", self._name, error
            )

    def _keep(self, message: Any, found: list[Any]) -> bool:
        error = message.error()
        if self._topics.silent and (error is None or error.code() == PARTITION_END):
            self._topics.heard(message)
        if error is None:
            found.append(message)
            return True
        if ends_consumer(error):
            raise translate(error)
        if not is_transient(error):
            logger.warning("%s: %s", self._name, error.str())
            self._post(Refused(translate(error)))
        return False

    # -- the partitions have changed --------------------------------------------------------------

    def restarted(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions again if nobody reads: a new position, which the client has just got, ends a pause."""
        if self.paused:
            self._client.pause(partitions)

    def replaced(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume fetching: exactly these partitions are assigned now, and the reader is there."""
        # librdkafka keeps the pause of a partition that goes and comes back.
        self.paused = False
        self._late.resume(partitions)
        self.looked = time.monotonic()

    def added(self, partitions: Collection[TopicPartition]) -> None:
        """Note that the group has assigned further partitions: pause them if nobody reads, else fetch them."""
        if self.paused:
            self._client.pause(partitions)
        elif partitions:
            # librdkafka keeps the pause of a partition that was revoked and comes back.
            self._late.resume(partitions)

    def expect(self, starts: Mapping[TopicPartition, int]) -> None:
        """Expect records of partitions that the client now fetches, from these offsets."""
        self._first_records.expect(starts)
        self._topics.started(starts)

    def sought(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop the records fetched ahead of a seek: the reader has chosen new offsets for these partitions."""
        if (late := self._late.drop(offsets)) and not self.paused:
            self._client.resume(late)
        self._topics.moved(offsets)
        self.expect(offsets)
        self.ahead = [message for message in self.ahead if partition_of(message) not in offsets]

    def forget(self, partitions: set[TopicPartition]) -> None:
        """Drop the records of partitions that are no longer assigned, or begin elsewhere."""
        self._first_records.forget(partitions)
        self._late.drop(partitions)
        self.ahead[:] = [message for message in self.ahead if partition_of(message) not in partitions]
        self._gone = True


__all__ = ["POLL_INTERVAL", "InstanceReads", "Wanted"]
