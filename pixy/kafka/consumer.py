"""A consumer of one group: typed, synchronous, meant for one thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition as LibraryPartition

from pixy.errors import PixyError, Unavailable
from pixy.kafka.errors import translate
from pixy.kafka.group_offsets import Commit, Committed, GroupOffsets, parse_member
from pixy.kafka.settings import Settings
from pixy.wire.client import Member
from pixy.wire.types import TopicPartition

_END, _BEGINNING = -1, -2
_PATIENCE = 5.0


class ConsumerClient:
    """Every method blocks for at most the timeout it names; call all from one thread.

    Args:
        assign: called inside :meth:`poll` with new partitions; it must call :meth:`assign`.
        revoke: called inside :meth:`poll` or :meth:`close` before partitions are taken away.
        lost: called when partitions were taken away already.
        committed: called in another thread with the outcome of a :meth:`commit` that is not waited for.
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
        try:
            self._consumer = Consumer(settings)
        except RuntimeError as error:
            # Each takes one of the C library's keys of thread-local storage: PTHREAD_KEYS_MAX, 1024.
            raise Unavailable(f"this process has as many Kafka clients as it can have: {error}") from error
        self._offsets = GroupOffsets(settings, settings["group.id"])
        self._on_commit = committed
        self._under_way: threading.Thread | None = None
        self._on_assign = lambda _consumer, parts: assign(_keys(parts))
        self._on_revoke = lambda _consumer, parts: revoke(_keys(parts))
        self._on_lost = lambda _consumer, parts: lost(_keys(parts))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription; an empty one leaves the group."""
        wanted = sorted(topics)
        if wanted:
            self._consumer.subscribe(
                wanted, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        else:
            self._consumer.unsubscribe()

    def poll(self, timeout: float) -> Any:
        """A message or an error event, or None; runs the rebalance callbacks."""
        return self._consumer.poll(timeout)

    def take(self, most: int) -> list[Any]:
        """What is ready, at most ``most``; never waits.

        ``consume(n, timeout)`` waits out its whole timeout unless n messages are there, hence 0.
        """
        return list(self._consumer.consume(most, 0))

    def assign(self, starts: Iterable[tuple[TopicPartition, int]]) -> None:
        """Begin to fetch newly assigned partitions at the given offsets (inside the callback)."""
        self._consumer.incremental_assign(
            [LibraryPartition(topic, partition, at) for (topic, partition), at in starts]
        )

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Fetch an assigned partition from another offset; what was prefetched is thrown away."""
        self._consumer.seek(LibraryPartition(*partition, offset))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching; what was prefetched is thrown away."""
        self._consumer.pause([LibraryPartition(*partition) for partition in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch again."""
        self._consumer.resume([LibraryPartition(*partition) for partition in partitions])

    def committed(self, partitions: list[TopicPartition], timeout: float) -> dict[TopicPartition, Committed]:
        """The group's committed offsets. Raises PixyError."""
        self._settle()
        return self._offsets.committed(partitions, patience=timeout)

    def bounds(
        self, partitions: list[TopicPartition], timeout: float
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The oldest offset and the next to be written of each partition. Raises PixyError."""
        begin = self._list_offsets(partitions, _BEGINNING, timeout)
        end = self._list_offsets(partitions, _END, timeout)
        return {partition: (begin[partition], end[partition]) for partition in partitions}

    def _list_offsets(
        self, partitions: list[TopicPartition], which: int, timeout: float
    ) -> dict[TopicPartition, int]:
        try:
            # A "time" of -1 or -2 is ListOffsets' latest or earliest: one request per leader,
            # whereas get_watermark_offsets makes one per partition.
            found = self._consumer.offsets_for_times(
                [LibraryPartition(*partition, which) for partition in partitions], timeout=timeout
            )
        except KafkaException as error:
            raise translate(error) from error
        _raise_first(found)
        return {(part.topic, part.partition): part.offset for part in found}

    def commit(self, commits: Iterable[Commit], *, wait: bool) -> None:
        """Commit as this member, after what is under way; the outcome goes to ``committed``, or is a
        PixyError with ``wait``.

        With ``wait`` a coordinator that is on the move is waited for. Without it, another thread waits
        for the answer: messages go on to come while a coordinator does not answer.
        """
        batch = tuple(commits)
        self._settle()
        try:
            if wait and not any(commit.metadata for commit in batch):
                self._commit_plain(batch)
                return
            member = parse_member(self._consumer.consumer_group_metadata())
        except KafkaException as error:
            raise translate(error) from error
        if wait:
            for failure in self._offsets.commit(batch, member, patience=_PATIENCE).values():
                raise failure
            return
        # A daemon: the end of the process does not wait for a coordinator that does not answer, as it
        # would for an executor's thread.
        self._under_way = threading.Thread(
            target=self._commit_aside, args=(batch, member), name="kafka-commit", daemon=True
        )
        self._under_way.start()

    def _commit_aside(self, batch: tuple[Commit, ...], member: Member) -> None:
        try:
            errors: dict[TopicPartition, PixyError] = {**self._offsets.commit(batch, member)}
        except Exception as error:
            self._on_commit(error if isinstance(error, PixyError) else translate(error), {})
        else:
            self._on_commit(None, errors)

    def _settle(self) -> None:
        # One commit at a time, in their order, over one connection.
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.join()

    def _commit_plain(self, batch: tuple[Commit, ...]) -> None:
        # Without metadata the library does nothing wrong, and it has its connection already: with 200
        # instances that read, a commit's p99 was 47 ms so and 72 ms over a connection of its own.
        parts = [LibraryPartition(each.topic, each.partition, each.offset) for each in batch]
        _raise_first(self._consumer.commit(offsets=parts, asynchronous=False) or [])

    def close(self) -> None:
        """Leave the group; the revoke callback is called for what is still assigned."""
        try:
            self._consumer.close()
        finally:
            self._settle()
            self._offsets.close()
            # Freed now, its key of thread-local storage with it, and not when the cyclic collector
            # comes: it and our callbacks know each other.
            del self._consumer


def _keys(parts: Iterable[LibraryPartition]) -> list[TopicPartition]:
    return [(part.topic, part.partition) for part in parts]


def _raise_first(parts: Iterable[LibraryPartition]) -> None:
    for part in parts:
        if part.error is not None:
            raise translate(part.error)


__all__ = [
    "Commit",
    "Committed",
    "ConsumerClient",
]
