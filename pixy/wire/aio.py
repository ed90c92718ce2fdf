"""The clients of :mod:`pixy.wire.client` on an event loop: the same calls, to be awaited.

Calls on one client wait for each other, for there is one request in flight. A call that is cancelled
closes the connection, as its answer would come to nobody. A bootstrap function may be a coroutine
function; any other runs in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from pixy.wire import cluster, messages
from pixy.wire.batch import Batch
from pixy.wire.blocking import CHUNK
from pixy.wire.cluster import GROUP, Bootstrapper, Link
from pixy.wire.connection import (
    Bootstrap,
    Broker,
    Open,
    Options,
    Receive,
    Resolve,
    Send,
    Settings,
    Step,
    Steps,
)
from pixy.wire.group import CONSUMER, NOBODY, GroupCore, GroupOffset, GroupOffsets, Member
from pixy.wire.partition import NEWEST, FetchResult, OffsetResult, PartitionCore, ProduceResult
from pixy.wire.types import TopicPartition

T = TypeVar("T")


class StreamTransport:
    """A connected stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send everything."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """What has come, or comes."""
        return await self._reader.read(CHUNK)

    def close(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()


async def perform(step: Step) -> Any:
    """Do what a client needs from the outside."""
    match step:
        case Send(transport, data, timeout):
            async with asyncio.timeout(timeout):
                return await transport.send(data)
        case Receive(transport, timeout):
            async with asyncio.timeout(timeout):
                return await transport.receive()
        case Open(host, port, tls, timeout):
            async with asyncio.timeout(timeout):
                return StreamTransport(
                    *await asyncio.open_connection(
                        host, port, ssl=tls, server_hostname=host if tls else None, limit=CHUNK
                    )
                )
        case Resolve(function):
            if inspect.iscoroutinefunction(function):
                return await function()
            return await asyncio.to_thread(function)


async def run(steps: Steps[T]) -> T:
    """Run a client's generator to its end, step by step."""
    outcome, error = None, None
    while True:
        try:
            step = steps.send(outcome) if error is None else steps.throw(error)
        except StopIteration as stop:
            found: T = stop.value
            return found
        try:
            outcome, error = await perform(step), None
        except BaseException as raised:
            error = raised


async def call_api_versions(bootstrap: Bootstrap, **options: Unpack[Options]) -> dict[str, tuple[int, int]]:
    """What a broker speaks: API to (first, last) version."""
    return await run(cluster.api_versions(_bootstrapper(bootstrap, options)))


async def call_metadata(
    bootstrap: Bootstrap,
    topics: Iterable[str] | None = None,
    **options: Unpack[Options],
) -> messages.Body:
    """The body of a MetadataResponse about ``topics``, or all; no topic is created by asking."""
    return await run(cluster.metadata(_bootstrapper(bootstrap, options), topics))


async def call_create_topic(
    bootstrap: Bootstrap,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = 30_000,
    validate_only: bool = False,
    **options: Unpack[Options],
) -> messages.Body:
    """Create a topic; what the controller says of it: a dict with ErrorCode, ErrorMessage and more."""
    return await run(
        cluster.create_topic(
            _bootstrapper(bootstrap, options),
            topic,
            partitions,
            replication_factor,
            configs,
            timeout_ms,
            validate_only,
        )
    )


async def call_find_coordinator(
    bootstrap: Bootstrap,
    key: str,
    key_type: int = GROUP,
    **options: Unpack[Options],
) -> messages.Body:
    """The body of a FindCoordinatorResponse."""
    return await run(cluster.find_coordinator(_bootstrapper(bootstrap, options), key, key_type))


async def get_partition_leader(
    bootstrap: Bootstrap, topic: str, partition: int, **options: Unpack[Options]
) -> Broker:
    """Raises PartitionDoesNotExistError, NoLeaderForPartitionError, KafkaError."""
    return await run(cluster.partition_leader(_bootstrapper(bootstrap, options), topic, partition))


async def get_group_coordinator(bootstrap: Bootstrap, group_id: str, **options: Unpack[Options]) -> Broker:
    """Raises KafkaError if there is no coordinator, perhaps only yet."""
    return await run(cluster.group_coordinator(_bootstrapper(bootstrap, options), group_id))


def _bootstrapper(bootstrap: Bootstrap, options: Options) -> Bootstrapper:
    return Bootstrapper(Settings(bootstrap, **options))


class _Client:
    """What clients of a partition and of a group share."""

    def __init__(self, core: Link) -> None:
        self._lock = asyncio.Lock()
        self._link = core

    async def _run(self, steps: Steps[T]) -> T:
        async with self._lock:
            return await run(steps)

    async def call(self, api: str, body: Mapping[str, Any]) -> messages.Body:
        """Any API, ``"DescribeGroups"``, on this client's connection; the answer's body."""
        return await self._run(self._link.call(api, body))

    def close(self) -> None:
        """Close the connection; the broker stays known, and the next call connects again."""
        self._link.close()

    def forget(self) -> None:
        """Close, and look the broker up anew at the next call: it said that it is another one's turn."""
        self._link.forget()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()


class PartitionClient(_Client):
    """One partition, through one connection to its leader."""

    def __init__(self, bootstrap: Bootstrap, topic: str, partition: int, **options: Unpack[Options]) -> None:
        self.core = PartitionCore(Settings(bootstrap, **options), topic, partition)
        super().__init__(self.core)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.core.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.core.partition

    async def leader(self) -> Broker:
        """The leader, looked up if it is not known."""
        return await self._run(self.core.target())

    async def list_offsets(self, timestamp: int = NEWEST, *, read_committed: bool = False) -> OffsetResult:
        """The first offset whose record is not older than ``timestamp`` (ms), or NEWEST, or OLDEST."""
        return await self._run(self.core.list_offsets(timestamp, read_committed))

    async def produce(
        self, records: bytes | Batch, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> ProduceResult:
        """Append a batch (compressed or not, as it is).

        ``acks``: -1 when all replicas in sync have it, 1 when the leader has it, 0 without any answer.
        """
        return await self._run(self.core.produce(records, acks, timeout_ms))

    async def fetch(
        self,
        offset: int,
        *,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        read_committed: bool = False,
    ) -> FetchResult:
        """Batches from ``offset`` on; the broker waits up to ``max_wait_ms`` until it has ``min_bytes``."""
        return await self._run(
            self.core.fetch(
                offset,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                read_committed=read_committed,
            )
        )


class PartitionProducer(PartitionClient):
    """Appends to one partition, with ``acks`` and ``timeout_ms`` set once."""

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

    async def produce(
        self,
        records: bytes | Batch,
        *,
        acks: int | None = None,
        timeout_ms: int | None = None,
    ) -> ProduceResult:
        """Append a batch."""
        return await super().produce(
            records,
            acks=self.acks if acks is None else acks,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
        )


class PartitionFetcher(PartitionClient):
    """Reads one partition from ``offset`` on. Fetching does not move it: that is for the caller to do."""

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

    async def seek(self, timestamp: int) -> OffsetResult:
        """Go to the first offset not older than ``timestamp`` (ms), or NEWEST, or OLDEST, if there is one."""
        found = await self.list_offsets(timestamp, read_committed=self.read_committed)
        if not found.error_code and found.offset >= 0:
            self.offset = found.offset
        return found

    async def fetch(self, offset: int | None = None, **limits: Any) -> FetchResult:
        """Batches from ``offset``, or where the fetcher is; limits as given once, if not here."""
        return await super().fetch(
            self.offset if offset is None else offset,
            **{
                "min_bytes": self.min_bytes,
                "max_bytes": self.max_bytes,
                "max_wait_ms": self.max_wait_ms,
                "read_committed": self.read_committed,
                **limits,
            },
        )


class GroupClient(_Client):
    """One group, through one connection to its coordinator.

    Bodies that are returned have the names of Kafka's schemas. A first :meth:`join` answers
    MEMBER_ID_REQUIRED (79) and a MemberId: join again with it (KIP-394).
    """

    def __init__(self, bootstrap: Bootstrap, group_id: str, **options: Unpack[Options]) -> None:
        self.core = GroupCore(Settings(bootstrap, **options), group_id)
        super().__init__(self.core)

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.core.group_id

    async def coordinator(self) -> Broker:
        """The coordinator, looked up if it is not known."""
        return await self._run(self.core.target())

    async def join(
        self,
        protocols: Mapping[str, bytes] | Sequence[tuple[str, bytes]],
        member: Member = NOBODY,
        *,
        protocol_type: str = CONSUMER,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        reason: str | None = None,
    ) -> messages.Body:
        """JoinGroup: assignors' names and metadata, the most wanted first (see consumer_protocol)."""
        return await self._run(
            self.core.join(
                protocols,
                member,
                protocol_type=protocol_type,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                reason=reason,
            )
        )

    async def sync(
        self,
        member: Member,
        assignments: Mapping[str, bytes] | None = None,
        *,
        protocol_type: str | None = CONSUMER,
        protocol_name: str | None = None,
    ) -> messages.Body:
        """SyncGroup; the leader gives each member's assignment by member id, the others none."""
        return await self._run(self.core.sync(member, assignments or {}, protocol_type, protocol_name))

    async def heartbeat(self, member: Member) -> messages.Body:
        """Heartbeat."""
        return await self._run(self.core.heartbeat(member))

    async def leave(self, member: Member, reason: str | None = None) -> messages.Body:
        """LeaveGroup."""
        return await self._run(self.core.leave(member, reason))

    async def commit_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        metadata: str | None = "",
        member: Member = NOBODY,
    ) -> int:
        """Commit one offset; the error code."""
        return (await self.commit_offsets({(topic, partition): (offset, metadata)}, member))[topic, partition]

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, str | None]],
        member: Member = NOBODY,
    ) -> dict[TopicPartition, int]:
        """Commit offsets, or (offset, metadata), of several partitions; their error codes."""
        return await self._run(self.core.commit(offsets, member))

    async def fetch_offset(self, topic: str, partition: int) -> GroupOffset:
        """What is committed for a partition."""
        return (await self.fetch_offsets([(topic, partition)])).of(topic, partition)

    async def fetch_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> GroupOffsets:
        """What is committed for some partitions, or for all."""
        return await self._run(self.core.fetch_offsets(partitions))


__all__ = [
    "GroupClient",
    "PartitionClient",
    "PartitionFetcher",
    "PartitionProducer",
    "call_api_versions",
    "call_create_topic",
    "call_find_coordinator",
    "call_metadata",
    "get_group_coordinator",
    "get_partition_leader",
]
