"""A consumer in a group: typed, synchronous, for one thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError as LibraryError,
    KafkaException,
    TopicPartition as LibraryPartition,
)

from pixy.errors import PixyError, Unavailable
from pixy.kafka.errors import translate
from pixy.kafka.group_offsets import Check, Commit, CommittedOffset, GroupOffsets, parse_member
from pixy.kafka.heartbeat_log import HeartbeatLog
from pixy.kafka.joining_members import JoiningMember
from pixy.kafka.settings import Settings, logger
from pixy.wire.client import Member
from pixy.wire.types import TopicPartition

_PATIENCE = 5.0
_LEARN_TIMEOUT = 1.0

PARTITION_END = LibraryError._PARTITION_EOF
"""The code of an event: the end of a partition was reached, at the event's offset."""
OUT_OF_RANGE = LibraryError._AUTO_OFFSET_RESET
"""The code of an event: the log has no such offset, and the partition is fetched no more."""


class ConsumerClient:
    """A member of a group. Call all methods from one thread; each blocks for at most its timeout.

    Args:
        settings: see :func:`pixy.kafka.settings.consumer`.
        assign: called inside :meth:`poll` with newly assigned partitions; it must call :meth:`assign`.
        revoke: called inside :meth:`poll` or :meth:`close` before partitions are revoked.
        lost: called with partitions that the member has lost already.
        committed: called in another thread with the outcome of a :meth:`commit` without ``wait``.

    Raises:
        Unavailable: this process has too many Kafka clients.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        assign: Callable[[list[TopicPartition]], None],
        revoke: Callable[[list[TopicPartition]], None],
        lost: Callable[[list[TopicPartition]], None],
        committed: Callable[[PixyError | None, dict[TopicPartition, PixyError]], None],
    ) -> None:
        self._log = HeartbeatLog(settings.get("logger", logger))
        try:
            self._consumer = Consumer({**settings, "logger": self._log})
        except RuntimeError as error:
            # Each takes a key of the C library's thread-local storage, of which there are 1024.
            raise Unavailable(f"this process has as many Kafka clients as it can have: {error}") from error
        except KafkaException as error:  # librdkafka refuses a value of the configuration
            raise translate(error) from error
        self._offsets = GroupOffsets(settings, settings["group.id"])
        self._joining = JoiningMember(settings, self._member, self.wake)
        self._subscribed = False
        self._on_commit = committed
        self._under_way: threading.Thread | None = None
        self._wanted: list[str] | None = None
        """The subscription that waits for the member's id."""
        self._was_assigned = False
        """True if this member has had an assignment since it began to subscribe."""

        def assigned(_consumer: Any, parts: list[LibraryPartition]) -> None:
            self._was_assigned = True
            assign(_keys(parts))

        self._on_assign = assigned
        self._on_revoke = lambda _consumer, parts: revoke(_keys(parts))
        self._on_lost = lambda _consumer, parts: lost(_keys(parts))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; an empty one leaves the group.

        A member that its group has lost has no id until it has joined again. librdkafka (2.16, classic groups) ends the
        process if a topic that is new to it is subscribed to meanwhile (an assertion in ``rd_kafka_cgrp_modify_subscription``):
        so a change waits for the id.
        """
        self._wanted = sorted(topics)
        self._subscribe()

    def _subscribe(self) -> None:
        wanted = self._wanted
        if not wanted:
            with self._leaving():
                self._consumer.unsubscribe()
            self._wanted, self._was_assigned, self._subscribed = None, False, False
        elif not self._was_assigned or self.member_id():
            self._wanted, self._subscribed = None, True
            self._consumer.subscribe(
                wanted, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def poll(self, timeout: float) -> Any:
        """Return the next message or error event, None after ``timeout`` seconds. Runs rebalance callbacks."""
        if self._wanted is not None:
            self._subscribe()
        return self._consumer.poll(timeout)

    def take(self, most: int) -> list[Any]:
        """Return the messages that are ready, at most ``most``, without waiting.

        ``consume(n, timeout)`` waits for its whole timeout unless n messages are ready; hence 0.
        """
        return list(self._consumer.consume(most, 0))

    def assign(self, starts: Iterable[tuple[TopicPartition, int]]) -> None:
        """Begin to fetch newly assigned partitions at the given offsets. Call it inside ``assign``."""
        self._consumer.incremental_assign(
            [LibraryPartition(topic, partition, at) for (topic, partition), at in starts]
        )

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching assigned partitions; no message of theirs follows. Call it inside ``revoke`` and ``lost``
        for those that :meth:`assign` was called for, with none if there is none.
        """
        self._consumer.incremental_unassign([LibraryPartition(*partition) for partition in partitions])

    def restart(self, partition: TopicPartition, offset: int) -> None:
        """Fetch an assigned partition from another offset, paused or not, whatever its state.

        Unlike a seek: librdkafka refuses that until it has begun to fetch, and after an offset was out of range.
        """
        self.unassign([partition])
        self.assign([(partition, offset)])
        self.resume([partition])  # librdkafka keeps the pause of a partition that comes back

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Fetch an assigned partition from another offset. Discards prefetched messages."""
        self._consumer.seek(LibraryPartition(*partition, offset))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching. Discards prefetched messages."""
        self._consumer.pause([LibraryPartition(*partition) for partition in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue fetching."""
        self._consumer.resume([LibraryPartition(*partition) for partition in partitions])

    def learn(self, topics: Iterable[str]) -> None:
        """Have librdkafka ask for topics now, and so learn of partitions that were added. A failure is logged.

        Not inside a callback: see :meth:`pixy.kafka.instance_consumer.InstanceConsumer.layout`.
        """
        for topic in sorted(topics):
            try:
                self._consumer.list_topics(topic, timeout=_LEARN_TIMEOUT)
            except KafkaException as error:
                logger.info("looking up topic %s failed: %s", topic, error)

    def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, after a commit in progress. Raises PixyError.

        Args:
            partitions: which.
            timeout: seconds to keep trying while the coordinator moves.
        """
        self._settle()
        return self._offsets.committed(partitions, patience=timeout)

    def _list_offsets(
        self, partitions: list[TopicPartition], which: int, timeout: float
    ) -> dict[TopicPartition, int]:
        try:
            # A "time" of -1 or -2 means latest or earliest in ListOffsets: this makes one request per
            # leader, get_watermark_offsets one per partition.
            found = self._consumer.offsets_for_times(
                [LibraryPartition(*partition, which) for partition in partitions], timeout=timeout
            )
        except KafkaException as error:
            raise translate(error) from error
        _raise_first(found)
        return {(part.topic, part.partition): part.offset for part in found}

    def under_way(self) -> threading.Thread | None:
        """Return the commit in progress: whoever reads committed offsets elsewhere joins it first."""
        return self._under_way

    def wake(self) -> None:
        """Make librdkafka's main thread look at its timers now.

        It sends heartbeats, and takes the steps of a rebalance, only when something wakes it, or else once a
        second, whatever ``heartbeat.interval.ms`` says. Anything that is handed to it is a reason to wake. A commit of
        nothing is handed over without waiting for an answer; a question, such as for the member's id, would hold the
        GIL until that thread has had its turn: 19 against 4 microseconds, and milliseconds on a busy machine.
        """
        with suppress(KafkaException):  # it is being closed
            self._consumer.commit(offsets=[], asynchronous=True)

    def generation(self) -> int:
        """Return the group's generation (the member's epoch with KIP-848): 1 at a group's first assignment.

        Raises:
            PixyError: the library does not know it.
        """
        return self._member().generation_id

    def member_id(self) -> str:
        """Return the id under which the group knows this member; empty before it has joined. Raises as :meth:`generation`."""
        return self._member().member_id

    def _member(self) -> Member:
        try:
            return parse_member(self._consumer.consumer_group_metadata())
        except KafkaException as error:
            raise translate(error) from error

    @property
    def unanswered_heartbeats(self) -> int:
        """KIP-848's heartbeats so far that the coordinator has not answered in time."""
        return self._log.unanswered

    def commit(self, commits: Iterable[Commit], *, wait: bool, check: Check | None = None) -> None:
        """Commit as this member, after a commit that is in progress, never through librdkafka: it sends a commit again on its own
        when a connection ends, up to a minute later, and its topic may have been made again since.

        Args:
            commits: what to commit.
            wait: return when the coordinator has answered, and wait for one that moves. Without it another
                thread waits and calls ``committed``: messages keep coming while a coordinator does not
                answer.
            check: called with the coordinator's client and the commits, in the thread that commits.

        Raises:
            PixyError: with ``wait``, the commit or a partition of it was refused; without, it could not be begun.
        """
        batch = tuple(commits)
        self._settle()
        member = self._member()
        if wait:
            for failure in self._offsets.commit(batch, member, patience=_PATIENCE, check=check).values():
                raise failure
            return
        # A daemon thread, unlike an executor's, does not delay the end of the process when the coordinator
        # does not answer.
        thread = threading.Thread(
            target=self._commit_aside, args=(batch, member, check), name="kafka-commit", daemon=True
        )
        # At a limit of threads the committer tries again; a last commit needs none.
        try:
            thread.start()
        except RuntimeError as error:
            raise Unavailable(f"cannot commit now: {error}") from error
        self._under_way = thread

    def _commit_aside(self, batch: tuple[Commit, ...], member: Member, check: Check | None) -> None:
        try:
            errors: dict[TopicPartition, PixyError] = {**self._offsets.commit(batch, member, check=check)}
        except Exception as error:
            self._on_commit(error if isinstance(error, PixyError) else translate(error), {})
        else:
            self._on_commit(None, errors)

    def _settle(self) -> None:
        # One commit at a time, in order, over one connection.
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.join()

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Have the group forget this member in any case, around what makes librdkafka leave."""
        joining: Member | None = None
        with suppress(Exception):  # librdkafka is told to leave in any case
            if self._subscribed and not self._consumer.assignment():
                joining = self._joining.find()
        try:
            yield
        finally:
            if joining is not None:
                self._settle()
                self._joining.remove(joining, self._offsets)

    def close(self) -> None:
        """Leave the group; calls ``revoke`` with the partitions that are still assigned."""
        try:
            with self._leaving():
                self._consumer.close()
        finally:
            self._settle()
            self._offsets.close()
            # Free it now, and its key of thread-local storage: it and our callbacks form a cycle, which
            # otherwise waits for the garbage collector.
            del self._consumer


def _keys(parts: Iterable[LibraryPartition]) -> list[TopicPartition]:
    return [(part.topic, part.partition) for part in parts]


def _raise_first(parts: Iterable[LibraryPartition]) -> None:
    for part in parts:
        if part.error is not None:
            raise translate(part.error)


__all__ = [
    "OUT_OF_RANGE",
    "PARTITION_END",
    "Check",
    "Commit",
    "CommittedOffset",
    "ConsumerClient",
]
