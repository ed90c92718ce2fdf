"""The clients of :mod:`pixy.wire.client` for asyncio: the same names and arguments, to be awaited.

A client has one request in flight, so concurrent calls on it run one after the other. Cancelling a call closes the
connection, because its answer may still arrive and would be taken for the next call's. A bootstrap function may be a
coroutine function; any other runs in a thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pixy.wire import cluster, group, partition, srv
from pixy.wire.batch import Batch
from pixy.wire.blocking import CHUNK, described_by
from pixy.wire.cluster import Link
from pixy.wire.connection import Compute, LookUpSrv, Open, Receive, Resolve, Send, Step, Steps
from pixy.wire.dialing import open_socket
from pixy.wire.group import GroupLink
from pixy.wire.partition import FetcherLink, PartitionLink, ProducerLink
from pixy.wire.results import FetchResult, ProduceResult

P = ParamSpec("P")
L = TypeVar("L", bound=Link)
T = TypeVar("T")


class StreamTransport:
    """A connected stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises OSError."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Wait for bytes; empty at the end of the stream. Raises OSError."""
        return await self._reader.read(CHUNK)

    def close(self) -> None:
        """Drop the connection, without sending what is still buffered."""
        self._writer.transport.abort()


async def perform(step: Step) -> Any:
    """Do what one step asks for and return its outcome."""
    match step:
        case Send(transport, data, timeout):
            async with asyncio.timeout(timeout):
                return await transport.send(data)
        case Receive(transport, timeout):
            async with asyncio.timeout(timeout):
                return await transport.receive()
        case Open(host, port, tls, timeout):
            async with asyncio.timeout(timeout):
                return await _open(host, port, tls)
        case Resolve(function):
            if inspect.iscoroutinefunction(function):
                return await function()
            return await asyncio.to_thread(function)
        case Compute(function):
            return await asyncio.to_thread(function)
        case LookUpSrv(name, timeout):
            return await srv.lookup_async(name, timeout=timeout)


async def _open(host: str, port: int, tls: ssl.SSLContext | None) -> StreamTransport:
    connected = await open_socket(host, port)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return StreamTransport(
            *await asyncio.open_connection(
                sock=connected, ssl=tls, server_hostname=host if tls else None, limit=CHUNK
            )
        )
    except BaseException:
        connected.close()
        raise


async def run(steps: Steps[T]) -> T:
    """Run a generator of steps to its end and return its result. Raises what the generator raises."""
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


def _function(steps: Callable[P, Steps[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn a generator function of steps into a coroutine function."""

    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await run(steps(*args, **kwargs))

    return described_by(call, steps)


def _method(
    steps: Callable[Concatenate[L, P], Steps[T]],
) -> Callable[Concatenate[L, P], Coroutine[Any, Any, T]]:
    """Turn a generator function of steps into a coroutine method of a client, one call at a time."""

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._lock:
            return await run(steps(self, *args, **kwargs))

    return described_by(call, steps)


call_api_versions = _function(cluster.api_versions)
call_metadata = _function(cluster.metadata)
call_create_topic = _function(cluster.create_topic)
call_find_coordinator = _function(cluster.find_coordinator)
get_partition_leader = _function(cluster.partition_leader)
get_group_coordinator = _function(cluster.group_coordinator)


class _Client(Link):
    call = _method(cluster.call)

    @functools.cached_property
    def _lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()


class PartitionClient(_Client, PartitionLink):
    """Calls about one partition, on one connection to its leader."""

    leader = _method(partition.leader)
    list_offsets = _method(partition.list_offsets)
    produce = _method(partition.produce)
    fetch = _method(partition.fetch)


class PartitionProducer(PartitionClient, ProducerLink):
    """Appends to one partition, with ``acks`` and ``timeout_ms`` set once."""

    @_method
    def produce(
        self, records: bytes | Batch, *, acks: int | None = None, timeout_ms: int | None = None
    ) -> Steps[ProduceResult]:
        """Append a batch as :meth:`PartitionClient.produce` does; None stands for the producer's own setting."""
        return partition.produce_with_defaults(self, records, acks, timeout_ms)


class PartitionFetcher(PartitionClient, FetcherLink):
    """Reads one partition from ``offset`` on. A fetch leaves ``offset`` as it is; the caller advances it."""

    seek = _method(partition.seek)

    @_method
    def fetch(self, /, offset: int | None = None, **limits: Any) -> Steps[FetchResult]:
        """Fetch as :meth:`PartitionClient.fetch` does, from the fetcher's ``offset`` and with its limits by default."""
        return partition.fetch_with_defaults(self, offset, limits)


class GroupClient(_Client, GroupLink):
    """Calls of a member of one classic consumer group, on one connection to its coordinator.

    Response bodies have the field names of Kafka's schemas. The first :meth:`join` of a new member is answered
    MEMBER_ID_REQUIRED (79) and a MemberId: join again with it (KIP-394).
    """

    coordinator = _method(group.coordinator)
    join = _method(group.join)
    sync = _method(group.sync)
    heartbeat = _method(group.heartbeat)
    leave = _method(group.leave)
    commit_offset = _method(group.commit_offset)
    commit_offsets = _method(group.commit_offsets)
    fetch_offset = _method(group.fetch_offset)
    fetch_offsets = _method(group.fetch_offsets)


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
