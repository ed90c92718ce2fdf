"""A cluster as one caller may use it: :class:`~pixy.engine.client.ClusterClient`'s methods behind the guard.

It is no subclass, so that an operation that is added there and forgotten here does not exist for clients, rather than
being open to all. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pixy.auth.principal import Caller
from pixy.auth.rules import Access
from pixy.config.model import Proxy
from pixy.engine.admin_messages import Consumers, PartitionOffset, TopicInfo
from pixy.engine.client import ClusterClient
from pixy.engine.consume.long_polls import Delivery, Message
from pixy.engine.guard import Guard
from pixy.engine.guarded_admin import GuardedAdmin
from pixy.engine.guarded_instances import GuardedInstances, message_size
from pixy.engine.produce.pending_records import Record, Written
from pixy.kafka.fetcher import Read
from pixy.wire.types import RecordHeaders


class GuardedCluster:
    """The operations on one cluster that a caller may use. Arguments and errors are those of ClusterClient's methods.

    All raise Forbidden.

    Args:
        client: does the work.
        guard: decides.
        caller: who calls.
        cluster: the cluster's configured name.
    """

    def __init__(self, client: ClusterClient, guard: Guard, caller: Caller, cluster: str) -> None:
        self._client = client
        self._guard = guard
        self._caller = caller
        self._cluster = cluster

    @property
    def instances(self) -> GuardedInstances:
        """The caller's consumer instances."""
        return GuardedInstances(self._client.instances, self._guard, self._caller, self._cluster)

    @property
    def admin(self) -> GuardedAdmin:
        """Topics and groups."""
        return GuardedAdmin(self._client.admin, self._guard, self._caller, self._cluster)

    @property
    def proxy(self) -> Proxy:
        """The cluster's configuration."""
        return self._client.proxy

    def _to(self, verb: str, topic: str | None = None, group: str | None = None) -> Access:
        return Access(verb, self._cluster, topic, group)

    # -- produce ----------------------------------------------------------------------------------

    async def produce(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: RecordHeaders = ()
    ) -> tuple[int, int]:
        """Write a message: ``produce`` on the topic."""
        with self._guard.begin(self._caller, Access("produce", self._cluster, topic)) as operation:
            operation.carries(lambda: _size(value, key, headers))
            return await operation.carry_out(self._client.produce(topic, value, key, headers))

    async def produce_many(self, topic: str, records: Sequence[Record]) -> list[Written]:
        """Write records: ``produce`` on the topic."""
        with self._guard.begin(self._caller, Access("produce", self._cluster, topic)) as operation:
            operation.carries(lambda: _size_of_all(records))
            return await operation.carry_out(self._client.produce_many(topic, records))

    async def produce_built(
        self, topic: str, build: Callable[[], Awaitable[Sequence[Record]]]
    ) -> list[Written]:
        """Build records, and write them: ``produce`` on the topic, also for building them."""
        with self._guard.begin(self._caller, Access("produce", self._cluster, topic)) as operation:
            records = await build()
            operation.carries(lambda: _size_of_all(records))
            return await operation.carry_out(self._client.produce_many(topic, records))

    async def produce_async(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: RecordHeaders = ()
    ) -> None:
        """Write a message without waiting: ``produce`` on the topic."""
        with self._guard.begin(self._caller, Access("produce", self._cluster, topic)) as operation:
            operation.carries(lambda: _size(value, key, headers))
            await operation.carry_out(self._client.produce_async(topic, value, key, headers))

    # -- consume ----------------------------------------------------------------------------------

    async def consume(
        self, topic: str, group: str, *, auto_ack: bool = False, ack: tuple[int, int] | None = None
    ) -> Delivery:
        """Wait for a message: ``consume`` on topic and group, and ``ack`` if the request acknowledges anything."""
        wanted = [self._to("consume", topic, group)]
        if auto_ack or ack is not None:
            wanted.append(self._to("ack", topic, group))
        with self._guard.begin(self._caller, *wanted, polls=True) as operation:
            if ack is not None:
                operation.changes()
            delivery = await self._client.consume(topic, group, auto_ack=auto_ack, ack=ack)
            operation.carries(lambda: message_size(delivery.message))
            return delivery

    async def ack(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Acknowledge a message: ``ack`` on topic and group."""
        with self._guard.begin(self._caller, self._to("ack", topic, group)) as operation:
            await operation.carry_out(self._client.ack(topic, group, partition, offset))

    async def fetch(self, read: Read) -> list[Message]:
        """Read by offset: ``consume`` on the topic; there is no group."""
        with self._guard.begin(self._caller, self._to("consume", read.topic), polls=True) as operation:
            found = await self._client.fetch(read)
            operation.carries(lambda: sum(map(message_size, found)))
            return found

    async def read_headers(self, messages: Sequence[Message]) -> None:
        """Read the headers of messages that the caller has been given already."""
        await self._client.read_headers(messages)

    # -- admin ------------------------------------------------------------------------------------

    async def get_offsets(self, topic: str, group: str) -> list[PartitionOffset]:
        """Show a group's offsets: ``describe`` on topic and group."""
        with self._guard.begin(self._caller, self._to("describe", topic, group)):
            return await self._client.get_offsets(topic, group)

    async def set_offsets(self, topic: str, group: str, offsets: tuple[tuple[int, int, str], ...]) -> None:
        """Set a group's offsets: ``admin`` on topic and group."""
        with self._guard.begin(self._caller, self._to("admin", topic, group), creates=True) as operation:
            await operation.carry_out(self._client.set_offsets(topic, group, offsets))

    async def topics(self, *, with_partitions: bool, with_config: bool) -> list[TopicInfo]:
        """List topics: those on which the caller has ``describe``."""
        with self._guard.begin(self._caller, self._to("describe")):
            found = await self._client.topics(with_partitions=with_partitions, with_config=with_config)
        return [info for info in found if self._guard.allows(self._caller, self._to("describe", info.name))]

    async def topic(self, topic: str, *, with_partitions: bool) -> TopicInfo:
        """Show a topic: ``describe`` on it."""
        with self._guard.begin(self._caller, self._to("describe", topic)):
            return await self._client.topic(topic, with_partitions=with_partitions)

    async def brokers(self) -> list[int]:
        """List the brokers: ``describe`` on anything in the cluster."""
        with self._guard.begin(self._caller, self._to("describe")):
            return await self._client.brokers()

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Show the bounds of a partition: ``describe`` on the topic."""
        with self._guard.begin(self._caller, self._to("describe", topic)):
            return await self._client.bounds(topic, partition)

    async def consumers(self, topic: str, group: str = "") -> Consumers:
        """Show who consumes a topic: ``describe`` on it and on the group; without one, the groups that it allows."""
        with self._guard.begin(self._caller, self._to("describe", topic, group or None)):
            found = await self._client.consumers(topic, group)
        return {
            name: members
            for name, members in found.items()
            if self._guard.allows(self._caller, self._to("describe", topic, name))
        }


def _size_of_all(records: Sequence[Record]) -> int:
    return sum(_size(each.value, each.key, each.headers or ()) for each in records)


def _size(value: bytes | None, key: bytes | None, headers: RecordHeaders) -> int:
    return len(value or b"") + len(key or b"") + sum(len(name) + len(each or b"") for name, each in headers)


AnyCluster = ClusterClient | GuardedCluster
"""The result of :meth:`pixy.engine.engine.Engine.cluster`."""

__all__ = ["AnyCluster", "GuardedCluster"]
