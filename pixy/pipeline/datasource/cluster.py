"""The driver's queries to the brokers: topics, partitions, ids, and offsets.

Each broker gets one ListOffsets request, not one per partition. Connections last for one call. A failure is
retried ``retries`` times, ``interval`` seconds apart; the error names the query.
"""

from __future__ import annotations

import base64
import random
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pixy.pipeline.datasource.access import Access
from pixy.pipeline.datasource.options import Selection, Source
from pixy.pipeline.datasource.positions import EARLIEST, LATEST, Position
from pixy.pipeline.errors import SourceError
from pixy.wire import cluster
from pixy.wire.blocking import run
from pixy.wire.cluster import Bootstrapper
from pixy.wire.connection import Broker, Settings, TransportError, connect
from pixy.wire.errors import ErrorCode, KafkaError, describe, lookup
from pixy.wire.exceptions import WireError
from pixy.wire.types import TopicPartition

T = TypeVar("T")
_MAX_NAMED = 5
"""Topics, partitions or problems that an error text names."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it now.

    Attributes:
        id: Kafka's UUID of the topic; empty if the broker does not send it.
        partitions: numbers of the partitions, ascending.
    """

    id: str
    partitions: tuple[int, ...]


class _RetriableError(Exception):
    """A broker's answer that may be different next time."""


def topic_id(entry: Mapping[str, Any]) -> str:
    """Return a topic's id from a Metadata response, as Kafka writes it; empty if it has none."""
    found = entry.get("TopicId")
    if not isinstance(found, uuid.UUID) or not found.int:
        return ""
    return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")


def metadata(access: Access, topics: Iterable[str] | None) -> dict[str, Any]:
    """Return the Metadata response of the first bootstrap broker that answers.

    Args:
        access: addresses and security of the cluster.
        topics: the topics to describe; None for all.

    Raises:
        WireError: no broker answers, or one refuses.
    """
    addresses = list(access.bootstrap)
    random.shuffle(addresses)
    wanted = None if topics is None else list(topics)
    options, failed = access.options(), TransportError("no bootstrap address")
    for address in addresses:
        try:
            return dict(run(cluster.metadata(Bootstrapper(Settings([address], **options)), wanted)))
        except TransportError as error:
            failed = error
    raise failed


class ClusterReader:
    """Queries a cluster from the driver. Every method raises SourceError if the brokers cannot answer.

    Args:
        access: addresses and security of the cluster.
        retries: attempts after the first one.
        interval: seconds between attempts.
        sleep: waits between attempts; for tests.
    """

    def __init__(
        self, access: Access, retries: int, interval: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._access = access
        self._retries = retries
        self._interval = interval
        self._sleep = sleep

    @classmethod
    def of(cls, source: Source) -> ClusterReader:
        """Return a reader with the limits of the options."""
        return cls(source.access, source.retries, source.retry_interval)

    def topics(self, selection: Selection) -> dict[str, Topic]:
        """Return the selected topics and partitions that exist; missing ones are no error here."""
        body = self._retry(lambda: self._metadata(selection), "for the topics")
        found: dict[str, Topic] = {}
        for each in body["Topics"]:
            name = each["Name"]
            if each["ErrorCode"] or not _is_selected(selection, each):
                continue
            partitions = sorted(part["PartitionIndex"] for part in each["Partitions"])
            if selection.assigned:
                partitions = [number for number in partitions if (name, number) in selection.assigned]
            found[name] = Topic(topic_id(each), tuple(partitions))
        return dict(sorted(found.items()))

    def _metadata(self, selection: Selection) -> dict[str, Any]:
        named = selection.topics or tuple(dict.fromkeys(topic for topic, _ in selection.assigned))
        body = metadata(self._access, named or None)
        for each in body["Topics"]:
            code = each["ErrorCode"]
            if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if lookup(code).retriable:
                    raise _RetriableError(f"topic {each['Name']}: {describe(code)}")
                raise KafkaError(code, each["Name"])
        return body

    def offsets(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """Return offsets by partition; -1 if no record is as late as the timestamp.

        Args:
            wanted: by partition, EARLIEST, LATEST or a timestamp in milliseconds since 1970.
            committed: whether LATEST is the last stable offset, where the first open transaction begins.
        """
        left = dict(wanted)
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            problems = self._list_offsets(left, found, committed)
            for tp in found:
                left.pop(tp, None)
            if left:
                raise _RetriableError("; ".join(problems[:_MAX_NAMED]))

        if left:
            self._retry(ask, "for offsets")
        return found

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, int], committed: bool
    ) -> list[str]:
        """Add the offsets that the leaders return to ``found``; returns the problems that may pass."""
        by_leader, problems = self._leaders(wanted)
        for leader, partitions in by_leader.items():
            timestamps = {tp: wanted[tp] for tp in partitions}
            for tp, part in self._ask_leader(leader, timestamps, committed):
                code = part["ErrorCode"]
                if not code:
                    found[tp] = part["Offset"]
                elif lookup(code).retriable or lookup(code).refresh:
                    problems.append(f"{tp[0]}/{tp[1]}: {describe(code)}")
                else:
                    raise KafkaError(code, f"{tp[0]}/{tp[1]}")
        return problems

    def _ask_leader(
        self, leader: Broker, timestamps: Mapping[TopicPartition, int], committed: bool
    ) -> list[tuple[TopicPartition, dict[str, Any]]]:
        topics: dict[str, list[dict[str, int]]] = defaultdict(list)
        for (topic, partition), timestamp in timestamps.items():
            topics[topic].append({"PartitionIndex": partition, "Timestamp": timestamp})
        request = {
            "ReplicaId": -1,
            "IsolationLevel": int(committed),
            "Topics": [{"Name": name, "Partitions": parts} for name, parts in topics.items()],
        }
        connection = run(connect(Settings([str(leader)], **self._access.options()), leader))
        try:
            body = run(connection.call("ListOffsets", request))
        finally:
            connection.close()
        return [
            ((topic["Name"], part["PartitionIndex"]), part)
            for topic in body["Topics"]
            for part in topic["Partitions"]
        ]

    def _leaders(
        self, wanted: Iterable[TopicPartition]
    ) -> tuple[dict[Broker, list[TopicPartition]], list[str]]:
        partitions = set(wanted)
        body = metadata(self._access, sorted({topic for topic, _ in partitions}))
        brokers = {
            each["NodeId"]: Broker(each["Host"], each["Port"], each["NodeId"]) for each in body["Brokers"]
        }
        leaders = {
            (each["Name"], part["PartitionIndex"]): brokers.get(part["LeaderId"])
            for each in body["Topics"]
            for part in each["Partitions"]
        }
        found: dict[Broker, list[TopicPartition]] = defaultdict(list)
        problems = []
        for tp in sorted(partitions):
            leader = leaders.get(tp)
            if leader is None:
                why = "has no leader" if tp in leaders else "does not exist"
                problems.append(f"{tp[0]}/{tp[1]} {why}")
            else:
                found[leader].append(tp)
        return found, problems

    def _retry(self, ask: Callable[[], T], query: str) -> T:
        for attempt in range(self._retries + 1):
            try:
                return ask()
            except (_RetriableError, WireError, OSError) as error:
                again = isinstance(error, _RetriableError | OSError) or (
                    isinstance(error, KafkaError) and error.error.retriable
                )
                if not again or attempt == self._retries:
                    times = f" ({attempt + 1} attempts, fetchOffset.numRetries)" if attempt else ""
                    raise SourceError(
                        f"brokers {','.join(self._access.bootstrap)}, asked {query}: {error}{times}"
                    ) from error
            self._sleep(self._interval)
        raise AssertionError

    # -- positions -------------------------------------------------------------------------------

    def resolve(
        self, position: Position, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """Return the offset of a position in each partition.

        Args:
            position: the position of an option.
            partitions: the partitions that are read.
            committed: whether LATEST is the last stable offset.

        Raises:
            SourceError: a partition has no record as late as the timestamp, and the position does not allow
                that.
        """
        wanted = position.wanted(partitions)
        asked = {tp: value for tp, value in wanted.items() if value < 0 or position.by_time}
        found = {**wanted, **self.offsets(asked, committed=committed)}
        none = sorted(tp for tp in asked if asked[tp] >= 0 and found[tp] < 0)
        if none and not position.or_latest:
            (topic, partition), time_ = none[0], asked[none[0]]
            raise SourceError(
                f"option {position.option}: {topic}/{partition} has no record at or after {time_}; "
                "startingOffsetsByTimestampStrategy=latest starts at its end"
            )
        if none:
            found |= self.offsets(dict.fromkeys(none, LATEST), committed=committed)
        return found

    def bounds(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of each partition.

        Args:
            partitions: the partitions to ask for.
            committed: whether the end is the last stable offset, not the high watermark.
        """
        every = list(partitions)
        first = self.offsets(dict.fromkeys(every, EARLIEST), committed=committed)
        last = self.offsets(dict.fromkeys(every, LATEST), committed=committed)
        return {tp: (first[tp], last[tp]) for tp in every}


def _is_selected(selection: Selection, entry: Mapping[str, Any]) -> bool:
    if selection.pattern:
        # Like Java's client, whose patterns do not match internal topics such as __consumer_offsets.
        return not entry.get("IsInternal") and bool(re.fullmatch(selection.pattern, entry["Name"]))
    return True


def partitions_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return all partitions of the topics."""
    return [(name, number) for name, topic in topics.items() for number in topic.partitions]


def missing(selection: Selection, topics: Mapping[str, Topic]) -> list[str]:
    """Return the names of selected topics or partitions that do not exist.

    Args:
        selection: the selected topics or partitions.
        topics: the existing ones, from :meth:`ClusterReader.topics`.
    """
    if selection.assigned:
        here = set(partitions_of(topics))
        return [f"{topic}/{number}" for topic, number in selection.assigned if (topic, number) not in here]
    return [name for name in selection.topics if name not in topics]


def check_exist(selection: Selection, topics: Mapping[str, Topic]) -> None:
    """Raise SourceError if a selected topic or partition does not exist.

    Args:
        selection: the selected topics or partitions.
        topics: the existing ones, from :meth:`ClusterReader.topics`.
    """
    absent = missing(selection, topics)
    if absent:
        more = f" and {len(absent) - _MAX_NAMED} more" if len(absent) > _MAX_NAMED else ""
        kind = "partition" if selection.assigned else "topic"
        raise SourceError(f"{kind} {', '.join(absent[:_MAX_NAMED])}{more} does not exist")


__all__ = [
    "ClusterReader",
    "Topic",
    "check_exist",
    "metadata",
    "missing",
    "partitions_of",
    "topic_id",
]
