"""Calls about one partition, as generators of steps (:mod:`pixy.wire.steps`).

One connection to the partition's leader, one request at a time, no retries: a transport or parse error closes the
connection, and the next call opens another. Kafka's error codes are part of the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from pixy.wire import cluster
from pixy.wire.batch import Batch
from pixy.wire.cluster import Link, find
from pixy.wire.connection import Bootstrap, Broker, Options, Settings, Steps
from pixy.wire.exceptions import DecodeError
from pixy.wire.results import NEWEST, OLDEST, FetchResult, OffsetResult, ProduceResult

_WHOLE_REQUEST_FAILED: Final = {
    "HighWatermark": -1,
    "LastStableOffset": -1,
    "AbortedTransactions": None,
    "Records": None,
}


class PartitionLink(Link):
    """A partition and the connection to its leader."""

    def __init__(self, bootstrap: Bootstrap, topic: str, partition: int, **options: Unpack[Options]) -> None:
        super().__init__(Settings(bootstrap, **options))
        self.topic = topic
        self.partition = partition

    def look_up(self) -> Steps[Broker]:
        """Ask the cluster for the leader."""
        return (yield from cluster.partition_leader(self.bootstrapper, self.topic, self.partition))


class ProducerLink(PartitionLink):
    """A partition, with the defaults for producing to it (see :func:`produce`)."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        topic: str,
        partition: int,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(bootstrap, topic, partition, **options)
        self.acks = acks
        self.timeout_ms = timeout_ms


class FetcherLink(PartitionLink):
    """A partition, with the position of a reader and its defaults for fetching (see :func:`fetch`)."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        topic: str,
        partition: int,
        *,
        offset: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        read_committed: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(bootstrap, topic, partition, **options)
        self.offset = offset
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.read_committed = read_committed


def leader(link: PartitionLink) -> Steps[Broker]:
    """Return the leader, looking it up if it is not known.

    Raises:
        PartitionDoesNotExistError: the cluster has no such topic or partition.
        NoLeaderForPartitionError: the partition has no leader at present.
        TransportError: no bootstrap broker could be asked.
    """
    return (yield from link.target())


def list_offsets(
    link: PartitionLink, timestamp: int = NEWEST, *, read_committed: bool = False
) -> Steps[OffsetResult]:
    """Find the first offset whose record is not older than a time (ListOffsets, KIP-79).

    Args:
        timestamp: milliseconds since the epoch, or NEWEST or OLDEST.
        read_committed: NEWEST is the last stable offset, not the high watermark.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed, or about another partition.
    """
    connection = yield from link.connected()
    partition = {"PartitionIndex": link.partition, "Timestamp": timestamp}
    body = {
        "ReplicaId": -1,
        "IsolationLevel": int(read_committed),
        "Topics": [{"Name": link.topic, "Partitions": [partition]}],
    }
    response = yield from connection.call("ListOffsets", body)
    found = _own(link, response["Topics"], "Name", "Partitions", "PartitionIndex")
    return OffsetResult(
        connection.broker,
        link.topic,
        link.partition,
        found["ErrorCode"],
        found["Offset"],
        found["Timestamp"],
        found.get("LeaderEpoch", -1),
    )


def produce(
    link: PartitionLink, records: bytes | Batch, *, acks: int = -1, timeout_ms: int = 30_000
) -> Steps[ProduceResult]:
    """Append a batch as it is, compressed or not (Produce).

    Args:
        records: one batch.
        acks: -1 to wait for all in-sync replicas, 1 for the leader, 0 for nobody: the broker sends no response then.
        timeout_ms: how long the leader waits for the replicas.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed, or about another partition.
    """
    connection = yield from link.connected()
    data = records.marshal() if isinstance(records, Batch) else bytes(records)
    partition = {"Index": link.partition, "Records": data}
    body = {
        "Acks": acks,
        "TimeoutMs": timeout_ms,
        "TopicData": [{"Name": link.topic, "PartitionData": [partition]}],
    }
    response = yield from connection.call("Produce", body, answered=acks != 0)
    if acks == 0:
        return ProduceResult(connection.broker, link.topic, link.partition)
    found = _own(link, response["Responses"], "Name", "PartitionResponses", "Index")
    return ProduceResult(
        connection.broker,
        link.topic,
        link.partition,
        response["ThrottleTimeMs"],
        found["ErrorCode"],
        found["BaseOffset"],
        found["LogAppendTimeMs"],
        found.get("LogStartOffset", -1),
        found.get("ErrorMessage"),
    )


def produce_with_defaults(
    link: ProducerLink, records: bytes | Batch, acks: int | None, timeout_ms: int | None
) -> Steps[ProduceResult]:
    """Append a batch, with the producer's own ``acks`` and ``timeout_ms`` for None."""
    acks = link.acks if acks is None else acks
    timeout_ms = link.timeout_ms if timeout_ms is None else timeout_ms
    return (yield from produce(link, records, acks=acks, timeout_ms=timeout_ms))


def fetch(
    link: PartitionLink,
    offset: int,
    *,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
    read_committed: bool = False,
) -> Steps[FetchResult]:
    """Fetch batches (Fetch).

    Args:
        offset: where to begin; the first batch contains it, and may begin before it.
        min_bytes: the broker waits until it has as much, up to ``max_wait_ms`` milliseconds.
        max_bytes: size of the response; the first batch may exceed it (KIP-74).
        max_wait_ms: the longest wait for ``min_bytes``; must be shorter than ``request_timeout``.
        read_committed: read up to the last stable offset, and report aborted transactions (KIP-98).

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed, or about another partition.
    """
    connection = yield from link.connected()
    partition = {"Partition": link.partition, "FetchOffset": offset, "PartitionMaxBytes": max_bytes}
    body = {
        "MaxWaitMs": max_wait_ms,
        "MinBytes": min_bytes,
        "MaxBytes": max_bytes,
        "IsolationLevel": int(read_committed),
        "Topics": [{"Topic": link.topic, "Partitions": [partition]}],
    }
    response = yield from connection.call("Fetch", body)
    if code := response.get("ErrorCode", 0):
        found: dict[str, Any] = {"ErrorCode": code, **_WHOLE_REQUEST_FAILED}
    else:
        found = _own(link, response["Responses"], "Topic", "Partitions", "PartitionIndex")
    return FetchResult(
        connection.broker,
        link.topic,
        link.partition,
        offset,
        response["ThrottleTimeMs"],
        found["ErrorCode"],
        found["HighWatermark"],
        found["LastStableOffset"],
        found.get("LogStartOffset", -1),
        tuple((each["ProducerId"], each["FirstOffset"]) for each in found["AbortedTransactions"] or ()),
        found["Records"] or b"",
        read_committed,
    )


def fetch_with_defaults(
    link: FetcherLink, offset: int | None, limits: Mapping[str, Any]
) -> Steps[FetchResult]:
    """Fetch batches, from the fetcher's own ``offset`` and with its limits by default. Moves nothing."""
    settings = {
        "min_bytes": link.min_bytes,
        "max_bytes": link.max_bytes,
        "max_wait_ms": link.max_wait_ms,
        "read_committed": link.read_committed,
        **limits,
    }
    return (yield from fetch(link, link.offset if offset is None else offset, **settings))


def seek(link: FetcherLink, timestamp: int) -> Steps[OffsetResult]:
    """Move ``offset`` to the first record not older than a time, if there is one.

    Args:
        timestamp: milliseconds since the epoch, or NEWEST or OLDEST.

    Returns:
        The offset found. With an error code or offset -1 the fetcher keeps its position.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed, or about another partition.
    """
    found = yield from list_offsets(link, timestamp, read_committed=link.read_committed)
    if not found.error_code and found.offset >= 0:
        link.offset = found.offset
    return found


def _own(
    link: PartitionLink, topics: list[dict[str, Any]], name: str, partitions: str, index: str
) -> dict[str, Any]:
    """Return the response's part about this partition; close the connection if it is about others."""
    try:
        return find(find(topics, name, link.topic)[partitions], index, link.partition)
    except DecodeError:
        link.close()
        raise


__all__ = [
    "NEWEST",
    "OLDEST",
    "FetchResult",
    "FetcherLink",
    "OffsetResult",
    "PartitionLink",
    "ProduceResult",
    "ProducerLink",
    "fetch",
    "fetch_with_defaults",
    "leader",
    "list_offsets",
    "produce",
    "produce_with_defaults",
    "seek",
]
