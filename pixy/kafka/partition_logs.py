"""Asks the leaders of partitions where their logs begin and end. Blocking; each partition has its own outcome.

librdkafka's own calls (``offsets_for_times``, ``get_watermark_offsets``) fail for all partitions when one has no
leader, wait for it until their timeout, and hold up the consumer's poll meanwhile. So this asks over connections
of its own, in a thread for each leader: a broker that does not answer delays its own partitions only.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.kafka.group_offsets import bootstrap, error_of, wire_options
from pixy.kafka.settings import Settings
from pixy.kafka.topics import Topics
from pixy.wire.blocking import run
from pixy.wire.connection import Broker, Connection, Settings as WireSettings, connect
from pixy.wire.errors import ErrorCode
from pixy.wire.exceptions import WireError
from pixy.wire.results import NEWEST, OLDEST
from pixy.wire.types import TopicPartition

_TIMEOUT = 5.0
"""Seconds for a connection, and for each request: shorter than an election takes to be given up."""


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


Outcomes = Mapping[TopicPartition, Log | KafkaError]


class PartitionLogs:
    """Looks logs up. For one thread at a time.

    Args:
        settings: a client's settings in librdkafka's terms; see :mod:`pixy.kafka.settings`.
    """

    def __init__(self, settings: Settings) -> None:
        self._bootstrap = bootstrap(settings)
        self._options = wire_options(settings)
        self._options["dial_timeout"] = min(_TIMEOUT, self._options["dial_timeout"])
        self._options["request_timeout"] = min(_TIMEOUT, self._options["request_timeout"])

    def look_up(
        self, partitions: Iterable[TopicPartition], topics: Topics, found: Callable[[Outcomes], None]
    ) -> None:
        """Ask the leaders, and return when all have answered or failed.

        Args:
            partitions: whose logs.
            topics: who leads them.
            found: called with some outcomes at a time, each partition in one call, from several threads.
        """
        by_leader: dict[Broker, list[TopicPartition]] = {}
        failed: dict[TopicPartition, Log | KafkaError] = {}
        for partition in partitions:
            leader = topics.leader(partition)
            if isinstance(leader, Broker):
                by_leader.setdefault(leader, []).append(partition)
            else:
                failed[partition] = leader
        if failed:
            found(failed)
        threads = [
            threading.Thread(
                target=self._ask, args=(leader, theirs, topics, found), name="kafka-logs", daemon=True
            )
            for leader, theirs in by_leader.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(
        self,
        leader: Broker,
        partitions: list[TopicPartition],
        topics: Topics,
        found: Callable[[Outcomes], None],
    ) -> None:
        outcomes: dict[TopicPartition, Log | KafkaError]
        try:
            connection = run(connect(WireSettings(self._bootstrap, **self._options), leader))
            try:
                # In this order the end is never below the others.
                oldest = _list_offsets(connection, partitions, OLDEST, committed=False)
                stable = _list_offsets(connection, partitions, NEWEST, committed=True)
                end = _list_offsets(connection, partitions, NEWEST, committed=False)
            finally:
                connection.close()
        except (WireError, OSError) as error:
            failure = translate(error)
            outcomes = dict.fromkeys(partitions, failure)
        else:
            outcomes = {
                each: _log(topics.ids[each[0]], oldest[each], stable[each], end[each]) for each in partitions
            }
        found(outcomes)


def _log(topic_id: uuid.UUID, *bounds: int | KafkaError) -> Log | KafkaError:
    offsets: list[int] = []
    for bound in bounds:
        if isinstance(bound, KafkaError):
            return bound
        offsets.append(bound)
    return Log(topic_id, *offsets)


def _list_offsets(
    connection: Connection, partitions: list[TopicPartition], timestamp: int, *, committed: bool
) -> dict[TopicPartition, int | KafkaError]:
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append({"PartitionIndex": partition, "Timestamp": timestamp})
    body = {
        "ReplicaId": -1,
        "IsolationLevel": int(committed),
        "Topics": [{"Name": topic, "Partitions": entries} for topic, entries in topics.items()],
    }
    response = run(connection.call("ListOffsets", body))
    missing: int | KafkaError = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = dict.fromkeys(partitions, missing)
    for topic_entry in response["Topics"]:
        for each in topic_entry["Partitions"]:
            code = each["ErrorCode"]
            found[topic_entry["Name"], each["PartitionIndex"]] = error_of(code) if code else each["Offset"]
    return found
