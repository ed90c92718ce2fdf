"""Low-level clients that block the caller's thread: one partition or one group, one connection, one request at a time.

    producer = PartitionProducer("localhost:9092", "events", 0)
    result = producer.produce(Builder().add(b"key", b"value").build())
    fetcher = PartitionFetcher("localhost:9092", "events", 0, offset=result.base_offset)
    for record in fetcher.fetch().records(): ...

The clients retry nothing. A transport or parse error (TransportError, DecodeError) closes the connection, and the
next call opens another; an error code of Kafka is part of the result. Two threads must not use a client at the same
time. Every constructor and function takes the keywords of :class:`pixy.wire.connection.Settings`.

:mod:`pixy.wire.partition`, :mod:`pixy.wire.group` and :mod:`pixy.wire.cluster` implement the calls once for this module
and for :mod:`pixy.wire.aio`.
"""

from __future__ import annotations

from typing import Any, Self

from pixy.wire import cluster, group, partition
from pixy.wire.batch import Batch
from pixy.wire.blocking import blocking
from pixy.wire.cluster import Link, NoLeaderForPartitionError, PartitionDoesNotExistError
from pixy.wire.connection import (
    AuthenticationError,
    Broker,
    RequestTimedOutError,
    Sasl,
    Settings,
    Steps,
    TransportError,
)
from pixy.wire.group import GroupLink, GroupOffset, GroupOffsets, Member
from pixy.wire.partition import FetcherLink, PartitionLink, ProducerLink
from pixy.wire.results import NEWEST, OLDEST, FetchResult, OffsetResult, ProduceResult

call_api_versions = blocking(cluster.api_versions)
call_metadata = blocking(cluster.metadata)
call_create_topic = blocking(cluster.create_topic)
call_find_coordinator = blocking(cluster.find_coordinator)
get_partition_leader = blocking(cluster.partition_leader)
get_group_coordinator = blocking(cluster.group_coordinator)


class _Client(Link):
    call = blocking(cluster.call)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class PartitionClient(_Client, PartitionLink):
    """Calls about one partition, on one connection to its leader."""

    leader = blocking(partition.leader)
    list_offsets = blocking(partition.list_offsets)
    produce = blocking(partition.produce)
    fetch = blocking(partition.fetch)


class PartitionProducer(PartitionClient, ProducerLink):
    """Appends to one partition, with ``acks`` and ``timeout_ms`` set once."""

    @blocking
    def produce(
        self, records: bytes | Batch, *, acks: int | None = None, timeout_ms: int | None = None
    ) -> Steps[ProduceResult]:
        """Append a batch as :meth:`PartitionClient.produce` does; None stands for the producer's own setting."""
        return partition.produce_with_defaults(self, records, acks, timeout_ms)


class PartitionFetcher(PartitionClient, FetcherLink):
    """Reads one partition from ``offset`` on. A fetch leaves ``offset`` as it is; the caller advances it."""

    seek = blocking(partition.seek)

    @blocking
    def fetch(self, /, offset: int | None = None, **limits: Any) -> Steps[FetchResult]:
        """Fetch as :meth:`PartitionClient.fetch` does, from the fetcher's ``offset`` and with its limits by default."""
        return partition.fetch_with_defaults(self, offset, limits)


class GroupClient(_Client, GroupLink):
    """Calls of a member of one classic consumer group, on one connection to its coordinator.

    Response bodies have the field names of Kafka's schemas. The first :meth:`join` of a new member is answered
    MEMBER_ID_REQUIRED (79) and a MemberId: join again with it (KIP-394).
    """

    coordinator = blocking(group.coordinator)
    join = blocking(group.join)
    sync = blocking(group.sync)
    heartbeat = blocking(group.heartbeat)
    leave = blocking(group.leave)
    commit_offset = blocking(group.commit_offset)
    commit_offsets = blocking(group.commit_offsets)
    fetch_offset = blocking(group.fetch_offset)
    fetch_offsets = blocking(group.fetch_offsets)


__all__ = [
    "NEWEST",
    "OLDEST",
    "AuthenticationError",
    "Broker",
    "FetchResult",
    "GroupClient",
    "GroupOffset",
    "GroupOffsets",
    "Member",
    "NoLeaderForPartitionError",
    "OffsetResult",
    "PartitionClient",
    "PartitionDoesNotExistError",
    "PartitionFetcher",
    "PartitionProducer",
    "ProduceResult",
    "RequestTimedOutError",
    "Sasl",
    "Settings",
    "TransportError",
    "call_api_versions",
    "call_create_topic",
    "call_find_coordinator",
    "call_metadata",
    "get_group_coordinator",
    "get_partition_leader",
]
