"""What the driver asks the brokers: topics, their partitions and ids, first and last offsets, offsets of times.

One ListOffsets a broker, not one a partition. Connections live as long as a call. Failures are tried again
``retries`` times, ``interval`` seconds apart, then told with what was asked.
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
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it now."""

    id: str
    partitions: tuple[int, ...]


class _Again(Exception):
    """What a broker says it may not say the next time."""


def topic_id(entry: Mapping[str, Any]) -> str:
    """Kafka's id of a topic from Metadata, as Kafka writes it; empty where the broker tells none."""
    found = entry.get("TopicId")
    if not isinstance(found, uuid.UUID) or not found.int:
        return ""
    return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")


def metadata(access: Access, topics: Iterable[str] | None) -> dict[str, Any]:
    """A MetadataResponse from whichever bootstrap broker answers. Raises WireError."""
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
    """A cluster, asked by the driver. Every method raises SourceError."""

    def __init__(
        self, access: Access, retries: int, interval: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._access = access
        self._retries = retries
        self._interval = interval
        self._sleep = sleep

    @classmethod
    def of(cls, source: Source) -> ClusterReader:
        """With the bounds that the options set."""
        return cls(source.access, source.retries, source.retry_interval)

    def topics(self, selection: Selection) -> dict[str, Topic]:
        """The topics and partitions that are meant.

        A topic or partition that is named and does not exist is left out: who asks knows what that means.
        """
        body = self._retry(lambda: self._metadata(selection), "which topics there are")
        found: dict[str, Topic] = {}
        for each in body["Topics"]:
            name = each["Name"]
            if each["ErrorCode"] or not _meant(selection, each):
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
                    raise _Again(f"topic {each['Name']}: {describe(code)}")
                raise KafkaError(code, each["Name"])
        return body

    def offsets(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """By partition: the offset of EARLIEST, LATEST or of a time (ms); -1 if no record is as late.

        ``committed``: LATEST is where the first open transaction begins.
        """
        left = dict(wanted)
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            problems = self._ask(left, found, committed)
            for place in found:
                left.pop(place, None)
            if left:
                raise _Again("; ".join(problems[:_NAMED]))

        if left:
            self._retry(ask, "which offsets there are")
        return found

    def _ask(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, int], committed: bool
    ) -> list[str]:
        by_leader, problems = self._leaders(wanted)
        options = self._access.options()
        for broker, places in by_leader.items():
            topics: dict[str, list[dict[str, int]]] = defaultdict(list)
            for topic, partition in places:
                topics[topic].append({"PartitionIndex": partition, "Timestamp": wanted[topic, partition]})
            connection = run(connect(Settings([str(broker)], **options), broker))
            try:
                body = run(
                    connection.call(
                        "ListOffsets",
                        {
                            "ReplicaId": -1,
                            "IsolationLevel": int(committed),
                            "Topics": [{"Name": name, "Partitions": parts} for name, parts in topics.items()],
                        },
                    )
                )
            finally:
                connection.close()
            for topic in body["Topics"]:
                for part in topic["Partitions"]:
                    place, code = (topic["Name"], part["PartitionIndex"]), part["ErrorCode"]
                    if not code:
                        found[place] = part["Offset"]
                    elif lookup(code).retriable or lookup(code).refresh:
                        problems.append(f"{place[0]}/{place[1]}: {describe(code)}")
                    else:
                        raise KafkaError(code, f"{place[0]}/{place[1]}")
        return problems

    def _leaders(
        self, wanted: Iterable[TopicPartition]
    ) -> tuple[dict[Broker, list[TopicPartition]], list[str]]:
        places = set(wanted)
        body = metadata(self._access, sorted({topic for topic, _ in places}))
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
        for place in sorted(places):
            leader = leaders.get(place)
            if leader is None:
                why = "has no leader" if place in leaders else "does not exist"
                problems.append(f"{place[0]}/{place[1]} {why}")
            else:
                found[leader].append(place)
        return found, problems

    def _retry(self, ask: Callable[[], T], what: str) -> T:
        for attempt in range(self._retries + 1):
            try:
                return ask()
            except (_Again, WireError, OSError) as error:
                again = isinstance(error, _Again | OSError) or (
                    isinstance(error, KafkaError) and error.error.retriable
                )
                if not again or attempt == self._retries:
                    times = f" ({attempt + 1} attempts, fetchOffset.numRetries)" if attempt else ""
                    raise SourceError(
                        f"brokers {','.join(self._access.bootstrap)}, asked {what}: {error}{times}"
                    ) from error
            self._sleep(self._interval)
        raise AssertionError

    # -- together --------------------------------------------------------------------------------

    def resolve(
        self, position: Position, places: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """The offset that a position means in each partition.

        A time without a record as late is the end, where the position allows it; else SourceError.
        """
        wanted = position.wanted(places)
        asked = {place: value for place, value in wanted.items() if value < 0 or position.by_time}
        found = {**wanted, **self.offsets(asked, committed=committed)}
        none = sorted(place for place in asked if asked[place] >= 0 and found[place] < 0)
        if none and not position.or_latest:
            (topic, partition), time_ = none[0], asked[none[0]]
            raise SourceError(
                f"option {position.option}: {topic}/{partition} has no record at or after {time_}; "
                "startingOffsetsByTimestampStrategy=latest begins at its end"
            )
        if none:
            found |= self.offsets(dict.fromkeys(none, LATEST), committed=committed)
        return found

    def bounds(
        self, places: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The oldest offset and the next one of each partition."""
        every = list(places)
        first = self.offsets(dict.fromkeys(every, EARLIEST), committed=committed)
        last = self.offsets(dict.fromkeys(every, LATEST), committed=committed)
        return {place: (first[place], last[place]) for place in every}


def _meant(selection: Selection, entry: Mapping[str, Any]) -> bool:
    if selection.pattern:
        # As Java's client, whose patterns leave __consumer_offsets and its like out.
        return not entry.get("IsInternal") and bool(re.fullmatch(selection.pattern, entry["Name"]))
    return True


def places_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """All partitions."""
    return [(name, number) for name, topic in topics.items() for number in topic.partitions]


def missing(selection: Selection, topics: Mapping[str, Topic]) -> list[str]:
    """What is named and is not there."""
    if selection.assigned:
        here = set(places_of(topics))
        return [f"{topic}/{number}" for topic, number in selection.assigned if (topic, number) not in here]
    return [name for name in selection.topics if name not in topics]


def check_there(selection: Selection, topics: Mapping[str, Topic]) -> None:
    """Raise SourceError for what is named and does not exist, or for a pattern that matches nothing."""
    gone = missing(selection, topics)
    if gone:
        more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
        kind = "partition" if selection.assigned else "topic"
        raise SourceError(f"{kind} {', '.join(gone[:_NAMED])}{more} does not exist")


__all__ = [
    "ClusterReader",
    "Topic",
    "check_there",
    "metadata",
    "missing",
    "places_of",
    "topic_id",
]
