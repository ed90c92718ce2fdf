"""Asks the leaders of partitions about their logs. Blocking; each partition has its own outcome.

librdkafka's own calls (``offsets_for_times``, ``get_watermark_offsets``) fail for all partitions when one has no
leader, wait for it until their timeout, and hold up the consumer's poll meanwhile. So this asks over connections
of its own, several leaders at the same time: a broker that does not answer delays its own partitions only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

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


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's log.

    Args:
        topic_id: another one of the same name is another topic; all zero before Kafka 2.8.
        oldest: the first offset that can be read.
        stable: the offset of the next message, or of the first one of an open transaction.
        end: the offset of the next message.
    """

    topic_id: uuid.UUID
    oldest: int
    stable: int
    end: int


Outcomes = Mapping[TopicPartition, T | KafkaError]


class PartitionLogs:
    """Looks logs up. Any thread may call.

    Args:
        brokers: of the cluster.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def look_up(
        self, partitions: Iterable[TopicPartition], topics: Topics, found: Callable[[Outcomes[Log]], None]
    ) -> None:
        """Ask the leaders, and return when all have answered or failed.

        Args:
            partitions: whose logs.
            topics: who leads them.
            found: called with some outcomes at a time, each partition in one call, from several threads.
        """
        self._ask_leaders(
            partitions, topics, lambda theirs, connection: _logs(connection, theirs, topics), found
        )

    def logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Log]:
        """The logs of partitions.

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


def settled(partitions: Iterable[TopicPartition], outcomes: Outcomes[T]) -> dict[TopicPartition, T]:
    """Return the answers of all partitions, or raise the first one's error."""
    answers: dict[TopicPartition, T] = {}
    for partition in partitions:
        outcome = outcomes[partition]
        if isinstance(outcome, KafkaError):
            raise outcome
        answers[partition] = outcome
    return answers


def _logs(connection: Connection, partitions: Sequence[TopicPartition], topics: Topics) -> Outcomes[Log]:
    # In this order the end is never below the others.
    oldest = _list_offsets(connection, dict.fromkeys(partitions, OLDEST))
    stable = _list_offsets(connection, dict.fromkeys(partitions, NEWEST), committed=True)
    end = _list_offsets(connection, dict.fromkeys(partitions, NEWEST))
    return {each: _log(topics.ids[each[0]], oldest[each], stable[each], end[each]) for each in partitions}


def _log(topic_id: uuid.UUID, *bounds: int | KafkaError) -> Log | KafkaError:
    offsets: list[int] = []
    for bound in bounds:
        if isinstance(bound, KafkaError):
            return bound
        offsets.append(bound)
    return Log(topic_id, *offsets)


def _list_offsets(
    connection: Connection, times: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, int | KafkaError]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), at in times.items():
        topics.setdefault(topic, []).append({"PartitionIndex": partition, "Timestamp": at})
    body = {
        "ReplicaId": -1,
        "IsolationLevel": int(committed),
        "Topics": [{"Name": topic, "Partitions": entries} for topic, entries in topics.items()],
    }
    response = run(connection.call("ListOffsets", body))
    missing: int | KafkaError = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = dict.fromkeys(times, missing)
    for topic_entry in response["Topics"]:
        for each in topic_entry["Partitions"]:
            code = each["ErrorCode"]
            found[topic_entry["Name"], each["PartitionIndex"]] = error_of(code) if code else each["Offset"]
    return found


__all__ = ["Log", "Outcomes", "PartitionLogs", "settled"]
