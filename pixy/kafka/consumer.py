"""A consumer of one group: typed, synchronous, meant for one thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pixy.errors import PixyError
from pixy.kafka.errors import translate
from pixy.kafka.settings import Settings

Partition = tuple[str, int]

_END, _BEGINNING = -1, -2
_NO_OFFSET = -1001


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset; None if there is none."""

    offset: int | None
    metadata: str


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset to commit."""

    topic: str
    partition: int
    offset: int
    metadata: str


class ConsumerClient:
    """Every method blocks for at most the timeout it names; call all from one thread.

    Args:
        assign: called inside :meth:`poll` with new partitions; it must call :meth:`assign`.
        revoke: called inside :meth:`poll` or :meth:`close` before partitions are taken away.
        lost: called when partitions were taken away already.
        committed: called inside :meth:`poll` with the outcome of :meth:`commit`.
    """

    def __init__(
        self, settings: Settings, *, assign: Callable[[list[Partition]], None],
        revoke: Callable[[list[Partition]], None], lost: Callable[[list[Partition]], None],
        committed: Callable[[PixyError | None, dict[Partition, PixyError]], None],
    ) -> None:
        self._consumer = Consumer({
            **settings,
            "on_commit": lambda error, parts: committed(
                translate(error) if error is not None else None, _errors(parts)
            ),
        })
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

    def assign(self, starts: Iterable[tuple[Partition, int]]) -> None:
        """Begin to fetch newly assigned partitions at the given offsets (inside the callback)."""
        self._consumer.incremental_assign(
            [TopicPartition(topic, partition, at) for (topic, partition), at in starts]
        )

    def seek(self, partition: Partition, offset: int) -> None:
        """Fetch an assigned partition from another offset; what was prefetched is thrown away."""
        self._consumer.seek(TopicPartition(*partition, offset))

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching; what was prefetched is thrown away."""
        self._consumer.pause([TopicPartition(*partition) for partition in partitions])

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch again."""
        self._consumer.resume([TopicPartition(*partition) for partition in partitions])

    def committed(self, partitions: list[Partition], timeout: float) -> dict[Partition, Committed]:
        """The group's committed offsets. Raises PixyError."""
        try:
            found = self._consumer.committed(
                [TopicPartition(*partition) for partition in partitions], timeout=timeout
            )
        except KafkaException as error:
            raise translate(error) from error
        _raise_first(found)
        return {
            (part.topic, part.partition): Committed(
                None if part.offset == _NO_OFFSET else part.offset, part.metadata or ""
            )
            for part in found
        }

    def bounds(self, partitions: list[Partition], timeout: float) -> dict[Partition, tuple[int, int]]:
        """The oldest offset and the next to be written of each partition. Raises PixyError."""
        begin = self._offsets(partitions, _BEGINNING, timeout)
        end = self._offsets(partitions, _END, timeout)
        return {partition: (begin[partition], end[partition]) for partition in partitions}

    def _offsets(
        self, partitions: list[Partition], which: int, timeout: float
    ) -> dict[Partition, int]:
        try:
            # A "time" of -1 or -2 is ListOffsets' latest or earliest: one request per leader,
            # whereas get_watermark_offsets makes one per partition.
            found = self._consumer.offsets_for_times(
                [TopicPartition(*partition, which) for partition in partitions], timeout=timeout
            )
        except KafkaException as error:
            raise translate(error) from error
        _raise_first(found)
        return {(part.topic, part.partition): part.offset for part in found}

    def commit(self, commits: Iterable[Commit], *, wait: bool) -> None:
        """Commit; the outcome comes through ``committed``, or as PixyError with ``wait``."""
        parts = [
            TopicPartition(commit.topic, commit.partition, commit.offset, commit.metadata)
            for commit in commits
        ]
        try:
            if not wait:
                self._consumer.commit(offsets=parts, asynchronous=True)
                return
            done = self._consumer.commit(offsets=parts, asynchronous=False)
        except KafkaException as error:
            raise translate(error) from error
        _raise_first(done or [])

    def close(self) -> None:
        """Leave the group; the revoke callback is called for what is still assigned."""
        self._consumer.close()


def _keys(parts: Iterable[TopicPartition]) -> list[Partition]:
    return [(part.topic, part.partition) for part in parts]


def _errors(parts: Iterable[TopicPartition] | None) -> dict[Partition, PixyError]:
    return {
        (part.topic, part.partition): translate(part.error)
        for part in parts or []
        if part.error is not None
    }


def _raise_first(parts: Iterable[TopicPartition]) -> None:
    for error in _errors(parts).values():
        raise error
