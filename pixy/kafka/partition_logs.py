"""Asks the leaders of partitions about their logs. Blocking; each partition has its own outcome.

librdkafka's own calls (``offsets_for_times``, ``get_watermark_offsets``) fail for all partitions when one has no
leader, wait for it until their timeout, and hold up the consumer's poll meanwhile. So this asks over connections
of its own, several leaders at the same time: a broker that does not answer delays its own partitions only.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pixy.errors import KafkaError
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import error_of
from pixy.kafka.topics import Topics
from pixy.wire.blocking import run
from pixy.wire.connection import Broker, Connection
from pixy.wire.errors import ErrorCode
from pixy.wire.results import NEWEST, OLDEST
from pixy.wire.types import TopicPartition

T = TypeVar("T")

_AT_ONCE = 500
"""Milliseconds. A lookup that takes longer asks where the log ended when it began."""


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's log.

    Args:
        topic_id: another one of the same name is another topic; all zero before Kafka 2.8.
        oldest: the first offset that can be read.
        stable: the offset of the next message, or of the first one of an open transaction.
        end: the offset of the next message.
        first_end: where the log ended at the first attempt to look it up, if that failed and it can be told.
        epoch_end: where the leader epoch that was asked about ends; None: nobody asked, or it cannot be told.
        leader: the leader epoch; -1 if it is not known.
    """

    topic_id: uuid.UUID
    oldest: int
    stable: int
    end: int
    first_end: int | None = None
    epoch_end: int | None = None
    leader: int = -1

    @property
    def valid_end(self) -> int:
        """The offset from which on nothing is what it was under the leader epoch that was asked about."""
        return self.end if self.epoch_end is None else min(self.end, self.epoch_end)

    def newest(self, *, committed: bool = True) -> int:
        """Return the offset at which somebody begins who wants the messages written since he first asked.

        Args:
            committed: he reads committed messages only.
        """
        end = self.stable if committed else self.end
        return end if self.first_end is None else max(self.oldest, min(end, self.first_end))


class FirstAttempt:
    """The first attempt to look a log up. When a later one succeeds, it tells where the log ended then.

    A log without a leader takes no messages, and each election begins a new leader epoch: so what was written later
    lies beyond the end of the epoch that was known then, whatever the clocks say. If the leader had just not answered
    us, its epoch goes on, and only the messages' timestamps tell.

    Attributes:
        at: milliseconds since 1970.
        epoch: the partition's leader epoch then; None if nobody has said.
        attempts: how many were begun.
        leader: a leader epoch of which the caller wants to know where it ends; -1: that of the group's commit.
        established: whether the group that asks had offsets of the topic then; None if its coordinator has not said.
            Later it may have those that it has committed itself for the topic's other partitions.
    """

    __slots__ = ("at", "attempts", "epoch", "established", "leader")

    def __init__(self, leader: int = -1) -> None:
        self.leader = leader
        self.at = _now()
        self.epoch: int | None = None
        self.attempts = 0
        self.established: bool | None = None

    @property
    def past(self) -> bool:
        """True if the log's end may be another one now."""
        return self.attempts > 1 or _now() - self.at > _AT_ONCE


Outcomes = Mapping[TopicPartition, T | KafkaError]


class PartitionLogs:
    """Looks logs up. Any thread may call.

    Args:
        brokers: of the cluster.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def look_up(
        self,
        partitions: Iterable[TopicPartition],
        topics: Topics,
        found: Callable[[Outcomes[Log]], None],
        attempts: Mapping[TopicPartition, FirstAttempt] = MappingProxyType({}),
        asked: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Ask the leaders, and return when all have answered or failed.

        Args:
            partitions: whose logs.
            topics: who leads them.
            found: called with some outcomes at a time, each partition in one call, from several threads.
            attempts: for the :attr:`Log.first_end` of those that have them.
            asked: leader epochs, for the :attr:`Log.epoch_end` of those that have them.
        """
        epochs: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, int] = {}
        for each, first in attempts.items():
            epoch = topics.leader_epoch(each)
            if first.epoch is None:
                first.epoch = epoch
            if first.past:
                if first.epoch is None or first.epoch == epoch:
                    times[each] = first.at
                else:
                    epochs[each] = first.epoch
        self._ask_leaders(
            partitions,
            topics,
            lambda theirs, connection: _logs(connection, theirs, topics, epochs, times, asked),
            found,
        )

    def logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Log]:
        """Return the logs of partitions.

        Args:
            partitions: which.

        Raises:
            KafkaError: the first partition's whose leader cannot be asked, or refuses; or no broker answers.
        """
        wanted = list(partitions)
        found: dict[TopicPartition, Log | KafkaError] = {}
        self.look_up(wanted, self._brokers.topics({topic for topic, _ in wanted}), found.update)
        return settled(wanted, found)

    def offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Find the offset at a time in each partition.

        Args:
            times: milliseconds since 1970, for the first offset whose record is not older, -1 if there is
                none; or :data:`~pixy.wire.results.NEWEST` or :data:`~pixy.wire.results.OLDEST`.

        Raises:
            KafkaError: the first partition's whose leader cannot be asked, or refuses; or no broker answers.
        """
        found: dict[TopicPartition, int | KafkaError] = {}
        self._ask_leaders(
            times,
            self._brokers.topics({topic for topic, _ in times}),
            lambda theirs, connection: _list_offsets(connection, {each: times[each] for each in theirs}),
            found.update,
        )
        return settled(times, found)

    def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        topics: Topics,
        ask: Callable[[Sequence[TopicPartition], Connection], Outcomes[T]],
        found: Callable[[Outcomes[T]], None],
    ) -> None:
        led: dict[Broker, list[TopicPartition]] = {}
        failed: dict[TopicPartition, T | KafkaError] = {}
        for partition in partitions:
            leader = topics.leader(partition)
            if isinstance(leader, Broker):
                led.setdefault(leader, []).append(partition)
            else:
                failed[partition] = leader
        if failed:
            found(failed)

        def done(leader: Broker, outcome: Outcomes[T] | KafkaError) -> None:
            found(dict.fromkeys(led[leader], outcome) if isinstance(outcome, KafkaError) else outcome)

        asks = {leader: partial(ask, theirs) for leader, theirs in led.items()}
        self._brokers.ask_each(asks, done)


def _now() -> int:
    """Return milliseconds since 1970."""
    return int(time.time() * 1000)


def settled(partitions: Iterable[TopicPartition], outcomes: Outcomes[T]) -> dict[TopicPartition, T]:
    """Return the answers of all partitions.

    Args:
        partitions: each has an outcome.
        outcomes: answers or errors.

    Raises:
        KafkaError: the first one among the outcomes, in the order of ``partitions``.
    """
    answers: dict[TopicPartition, T] = {}
    for partition in partitions:
        outcome = outcomes[partition]
        if isinstance(outcome, KafkaError):
            raise outcome
        answers[partition] = outcome
    return answers


def _logs(
    connection: Connection,
    partitions: Sequence[TopicPartition],
    topics: Topics,
    epochs: Mapping[TopicPartition, int],
    times: Mapping[TopicPartition, int],
    asked: Mapping[TopicPartition, int],
) -> Outcomes[Log]:
    # In this order the end is never below the others.
    oldest = _list_offsets(connection, dict.fromkeys(partitions, OLDEST))
    stable = _list_offsets(connection, dict.fromkeys(partitions, NEWEST), committed=True)
    end = _list_offsets(connection, dict.fromkeys(partitions, NEWEST))
    first_ends = {
        **_ends_of_epochs(connection, {each: epochs[each] for each in partitions if each in epochs}),
        **_written_since(connection, {each: times[each] for each in partitions if each in times}),
    }
    epoch_ends = _ends_of_epochs(connection, {each: asked[each] for each in partitions if each in asked})
    return {
        each: _log(
            topics.ids[each[0]],
            (oldest[each], stable[each], end[each]),
            first_ends.get(each),
            epoch_ends.get(each),
            -1 if (leader := topics.leader_epoch(each)) is None else leader,
        )
        for each in partitions
    }


def _log(
    topic_id: uuid.UUID,
    bounds: Iterable[int | KafkaError],
    first_end: int | KafkaError | None,
    epoch_end: int | KafkaError | None,
    leader: int,
) -> Log | KafkaError:
    offsets: list[int] = []
    for bound in bounds:
        if isinstance(bound, KafkaError):
            return bound
        offsets.append(bound)
    oldest, stable, end = offsets
    if isinstance(first_end, KafkaError):
        return first_end
    # Who may not ask about epochs goes on as if nobody had asked.
    if isinstance(epoch_end, KafkaError):
        epoch_end = None
    return Log(topic_id, oldest, stable, end, first_end, epoch_end, leader)


_OF_CONSUMERS: Final = 3
"""The version of OffsetForLeaderEpoch that has a place for the replica's id, which consumers set to -1 (KIP-392)."""


def _ends_of_epochs(
    connection: Connection, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError | None]:
    """Look up where leader epochs end; None where the leader does not know. Empty for Kafka before 2.3, which lets brokers alone ask."""
    if not epochs or connection.version("OffsetForLeaderEpoch") < _OF_CONSUMERS:
        return {}
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), epoch in epochs.items():
        topics.setdefault(topic, []).append({"Partition": partition, "LeaderEpoch": epoch})
    body = {
        "ReplicaId": -1,
        "Topics": [{"Topic": topic, "Partitions": entries} for topic, entries in topics.items()],
    }
    response = run(connection.call("OffsetForLeaderEpoch", body))
    found: dict[TopicPartition, int | KafkaError | None] = {}
    for topic_entry in response["Topics"]:
        for each in topic_entry["Partitions"]:
            code, end = each["ErrorCode"], each["EndOffset"]
            answer = error_of(code) if code else end if end >= 0 else None
            found[topic_entry["Topic"], each["Partition"]] = answer
    return found


def _written_since(
    connection: Connection, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError | None]:
    """Return the first messages with timestamps from the given ones to the present; None if there is none.

    A timestamp beyond the present says nothing about when its message was written.
    """
    if not times:
        return {}
    now = _now()
    return {
        each: result
        if isinstance(result, KafkaError)
        else result["Offset"]
        if times[each] <= result["Timestamp"] <= now
        else None
        for each, result in _list(connection, times).items()
    }


def _list_offsets(
    connection: Connection, times: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, int | KafkaError]:
    results = _list(connection, times, committed=committed)
    return {
        each: result if isinstance(result, KafkaError) else result["Offset"]
        for each, result in results.items()
    }


def _list(
    connection: Connection, times: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, dict[str, Any] | KafkaError]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), at in times.items():
        topics.setdefault(topic, []).append({"PartitionIndex": partition, "Timestamp": at})
    body = {
        "ReplicaId": -1,
        "IsolationLevel": int(committed),
        "Topics": [{"Name": topic, "Partitions": entries} for topic, entries in topics.items()],
    }
    response = run(connection.call("ListOffsets", body))
    missing: dict[str, Any] | KafkaError = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = dict.fromkeys(times, missing)
    for topic_entry in response["Topics"]:
        for each in topic_entry["Partitions"]:
            code = each["ErrorCode"]
            found[topic_entry["Name"], each["PartitionIndex"]] = error_of(code) if code else each
    return found


__all__ = ["FirstAttempt", "Log", "Outcomes", "PartitionLogs", "settled"]
