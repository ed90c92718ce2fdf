"""The calls of API handlers, and of programs that embed the engine: one object per cluster.

It resolves an actor's ref once and keeps it; each call then costs one message and one awaited future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from actors import ActorDeadError, ActorRef, MailboxFull, NoAnswer, Request
from pixy.config.model import Proxy
from pixy.engine import shares
from pixy.engine.actor_refs import ATTEMPTS, NO_KEY, ActorRefs, Asked, unless_full
from pixy.engine.admin import Admin
from pixy.engine.admin_messages import (
    AdminChange,
    AdminRequest,
    Consumers,
    GetBounds,
    GetBrokers,
    GetConsumers,
    GetOffsets,
    GetTopics,
    PartitionOffset,
    SetOffsets,
    TopicInfo,
)
from pixy.engine.cluster_admin import ClusterAdmin
from pixy.engine.cluster_messages import GetAdmin, GetFetcher, GetGroup, GetInstances, GetProducer
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.group_messages import AckMessage, Consume
from pixy.engine.consume.long_polls import Delivery, Message
from pixy.engine.fetcher import Fetch, Fetcher
from pixy.engine.instances.client import InstanceClient
from pixy.engine.instances.registry import Instances
from pixy.engine.produce.loss_log import LossLog
from pixy.engine.produce.messages import Produce, ProduceMany
from pixy.engine.produce.pending_records import Record, Written, sizes_of
from pixy.engine.produce.topic_producer import TopicProducer
from pixy.engine.record_headers import read_headers
from pixy.engine.shares import Shares
from pixy.engine.topic_names import check_topic
from pixy.engine.workers import Strays
from pixy.errors import (
    HeadersUnsupported,
    KafkaError,
    NotConsumed,
    PartitionLost,
    PixyError,
    ShuttingDown,
    TooManyRequests,
    Unavailable,
    UnknownTopic,
)
from pixy.kafka.fetcher import Read
from pixy.kafka.settings import group_id, record_headers_unsupported
from pixy.wire.types import RecordHeaders

R = TypeVar("R")

_PERHAPS_WRITTEN = "the topic's producer has failed, the message may or may not be written"
_PERHAPS_CHANGED = "restarting, the change may or may not have been made"


class ClusterClient:
    """The operations on one cluster. All raise errors of :mod:`pixy.errors`.

    Args:
        cluster: the ``ActorRef[Cluster]``, or what starts it.
        proxy: the cluster's configuration.
        stopping: whether the engine stops: then an actor that is gone does not come back.
        strays: acknowledges what other workers of this daemon have delivered; None: there are none.
    """

    def __init__(
        self, cluster: Asked, proxy: Proxy, stopping: Callable[[], bool], strays: Strays | None = None
    ) -> None:
        self.proxy = proxy
        self._strays = strays
        self._stopping = stopping
        self._refs = ActorRefs(cluster, stopping, proxy.producer.max_topics)
        self._headers_unsupported = record_headers_unsupported(proxy)
        self._producers: dict[str, ActorRef[TopicProducer]] = {}
        self._losses = LossLog("topics that do not exist")
        self._groups: dict[str, ActorRef[GroupConsumer]] = {}
        self._admin: dict[str, ActorRef[Admin]] = {}
        self._admin_shares = Shares(proxy.max_admin_requests)
        self._fetcher: dict[str, ActorRef[Fetcher]] = {}
        registry: dict[str, ActorRef[Instances]] = {}
        self.instances = InstanceClient(lambda: self._refs.resolve(registry, "instances", GetInstances()))
        """The consumer instances of the REST API."""
        self.admin = ClusterAdmin(self._ask_admin, proxy.journal.topic)
        """Changes of topics and groups."""

    # -- produce ----------------------------------------------------------------------------------

    async def produce(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: RecordHeaders = ()
    ) -> tuple[int, int]:
        """Write a message and wait for ``required_acks``.

        Args:
            topic: where to write it.
            value: None writes a tombstone.
            key: chooses the partition, also if it is empty; None allows any partition.
            headers: record headers; Kafka has them since 0.11.

        Returns:
            Partition and offset; the offset is -1, not known, with ``required_acks: no_response``.
        """
        ref = self._producers.get(topic)
        if ref is not None and not (headers and self._headers_unsupported):
            # The hot path: a known topic needs no checks.
            try:
                return await ref.ask(Produce(key, value, headers, shares.caller.get()), block=False)
            except NoAnswer as error:
                raise self._cut_off() from error
            except ActorDeadError:
                pass  # it stopped because it was idle: start another
            except MailboxFull as error:
                raise TooManyRequests("producer.channel_buffer_size") from error
        return await self._produced(topic, self._produce_message(topic, value, key, headers))

    async def produce_many(self, topic: str, records: Sequence[Record]) -> list[Written]:
        """Write records of one topic in their order, with one message to the topic's producer.

        Args:
            topic: of all records.
            records: the failure of one does not affect the others.

        Returns:
            For each record its partition and offset as :meth:`produce` returns them, or its error.
        """
        if not records:
            return []
        sizes = None
        if any([record.headers for record in records]):  # noqa: C419
            if self._headers_unsupported:
                raise HeadersUnsupported
            sizes = await sizes_of(records)
        message = ProduceMany(records, sizes, shares.caller.get())
        ref = self._producers.get(topic)
        if ref is None:
            check_topic(topic)
        try:
            return await self._produced(topic, message)
        except KafkaError as error:  # of the look-up: there is no such topic, or no answer
            return [error] * len(records)

    async def produce_built(
        self, topic: str, build: Callable[[], Awaitable[Sequence[Record]]]
    ) -> list[Written]:
        """Write records that are built only once it is known that the caller may write them.

        Args:
            topic: of all records.
            build: returns them.
        """
        return await self.produce_many(topic, await build())

    async def produce_async(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: RecordHeaders = ()
    ) -> None:
        """Write a message without waiting; a failure is only logged. Arguments as in :meth:`produce`.

        Raises:
            ShuttingDown: the engine stops. What it has accepted before is still written.
        """
        if self._stopping():
            raise ShuttingDown
        message = self._produce_message(topic, value, key, headers)
        for _ in range(ATTEMPTS):
            ref = self._producers.get(topic)
            if ref is None or not ref.is_alive():
                try:
                    ref = await self._refs.resolve(self._producers, topic, GetProducer(topic, patient=False))
                except UnknownTopic as error:
                    # Nobody waits for the message: as any other that Kafka refuses later.
                    self._losses.lost(topic, error)
                    return
            try:
                ref.tell(message)
                return
            except MailboxFull as error:
                raise TooManyRequests("producer.channel_buffer_size") from error
            except ActorDeadError:
                self._producers.pop(topic, None)  # it stopped because it was idle: start another
        raise self._refs.gone()

    async def _produced(self, topic: str, message: Request[R]) -> R:
        key = "producer.channel_buffer_size"
        try:
            return await self._refs.ask(
                self._producers, topic, GetProducer(topic), message, key, repeat=False
            )
        except NoAnswer as error:
            raise self._cut_off() from error

    def _cut_off(self) -> PixyError:
        """Return the error for a message whose producer has ended while it was on its way: repeated, it could come twice."""
        return ShuttingDown() if self._stopping() else Unavailable(_PERHAPS_WRITTEN)

    def _produce_message(
        self, topic: str, value: bytes | None, key: bytes | None, headers: RecordHeaders
    ) -> Produce:
        check_topic(topic)
        if headers and self._headers_unsupported:
            raise HeadersUnsupported
        return Produce(key, value, headers, shares.caller.get())

    # -- consume ----------------------------------------------------------------------------------

    async def consume(
        self,
        topic: str,
        group: str,
        *,
        auto_ack: bool = False,
        ack: tuple[int, int] | None = None,
    ) -> Delivery:
        """Wait for a message as a member of the group.

        If the caller is cancelled, the message is offered to the next one.

        Args:
            topic: where to consume.
            group: the id of the group.
            auto_ack: acknowledge the message when :meth:`Delivery.sent` is called.
            ack: (partition, offset) of an earlier message to acknowledge.

        Raises:
            LongPollTimeout: no message came in time.
        """
        check_topic(topic)
        group_id(group)
        caller = shares.caller.get()
        request = Consume(topic, auto_ack, ack, caller, self._stray(topic, group, ack))
        for _ in range(ATTEMPTS):
            ref = self._groups.get(group)
            if ref is None or not ref.is_alive():
                ref = await self._refs.resolve(self._groups, group, GetGroup(group, caller))
            future = ref.ask(request, block=False)
            try:
                return await unless_full(future, "consumer.channel_buffer_size")
            except ActorDeadError:
                self._groups.pop(group, None)
            except asyncio.CancelledError:
                delivery = future.value()
                if delivery is not None:
                    delivery.give_back()
                raise
        raise Unavailable(f"group {group} is restarting, try again")

    async def ack(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Acknowledge a message consumed through this daemon.

        Args:
            topic: of the message.
            group: the id of the group that consumed it.
            partition: of the message.
            offset: of the message.

        Raises:
            NotConsumed: the partition was never assigned to this daemon, or the daemon was restarted since.
            PartitionLost: the partition is assigned to another member now.
            NeverOffered: the message was not delivered.
        """
        check_topic(topic)
        group_id(group)
        try:
            await self.ack_here(topic, group, partition, offset)
        except (NotConsumed, PartitionLost):
            if self._strays is None or not await self._strays.ack(topic, group, partition, offset):
                raise

    def _stray(self, topic: str, group: str, ack: tuple[int, int] | None) -> Callable[[], None] | None:
        """Return what acknowledges a message that another worker may have delivered; None: nobody else has."""
        strays = self._strays
        return None if strays is None or ack is None else lambda: strays.later(topic, group, *ack)

    async def ack_here(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Acknowledge a message consumed through this process; see :meth:`ack`."""
        ref = self._groups.get(group)
        if ref is None or not ref.is_alive():
            raise NotConsumed(group, topic, partition)
        try:
            await unless_full(ref.ask(AckMessage(topic, partition, offset), block=False, urgent=True), NO_KEY)
        except ActorDeadError as error:
            raise NotConsumed(group, topic, partition) from error

    # -- admin --------------------------------------------------------------------------------------

    async def get_offsets(self, topic: str, group: str) -> list[PartitionOffset]:
        """Return the group's offsets in each partition of the topic."""
        check_topic(topic)
        group_id(group)
        return await self._ask_admin(GetOffsets(group, topic))

    async def set_offsets(self, topic: str, group: str, offsets: tuple[tuple[int, int, str], ...]) -> None:
        """Commit offsets for a group that nobody consumes.

        Args:
            topic: of all offsets.
            group: the id of the group.
            offsets: (partition, offset, metadata).

        Raises:
            GroupActive: the group has members.
        """
        check_topic(topic)
        group_id(group)
        await self._ask_admin(SetOffsets(group, topic, offsets))

    async def topics(self, *, with_partitions: bool, with_config: bool) -> list[TopicInfo]:
        """Return all topics, sorted by name; a part that is not asked for is None."""
        return await self._ask_admin(GetTopics(None, with_partitions, with_config))

    async def topic(self, topic: str, *, with_partitions: bool) -> TopicInfo:
        """Return one topic with its configuration. Raises UnknownTopic."""
        check_topic(topic)
        [found] = await self._ask_admin(GetTopics(topic, with_partitions, True))
        return found

    async def brokers(self, *, once: bool = False) -> list[int]:
        """Return the ids of the brokers, sorted; ``once``: fail at once if none answers, instead of trying again for a while."""
        return await self._ask_admin(GetBrokers(once))

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the oldest offset of a partition and the offset of the next record to be written.

        Raises:
            UnknownTopic: there is no such topic.
            UnknownPartition: the topic has no such partition.
        """
        check_topic(topic)
        return await self._ask_admin(GetBounds(topic, partition))

    # -- reads by offset --------------------------------------------------------------------------

    async def fetch(self, read: Read) -> list[Message]:
        """Read messages of a partition from an offset or a time on, outside any group.

        Returns:
            The messages, as soon as there is one; none if none comes within the timeout.

        Raises:
            UnknownTopic: there is no such topic.
            UnknownPartition: the topic has no such partition.
            OffsetOutOfRange: the partition does not hold the offset.
            FetchPoolBusy: ``max_fetches`` reads are under way and none ends soon.
        """
        check_topic(read.topic)
        return await self._refs.ask(
            self._fetcher, "fetcher", GetFetcher(), Fetch(read, shares.caller.get()), "max_waiting_fetches"
        )

    async def read_headers(self, messages: Sequence[Message]) -> None:
        """See :func:`pixy.engine.record_headers.read_headers`."""
        await read_headers(
            messages,
            lambda wanted: self._refs.ask(
                self._fetcher, "fetcher", GetFetcher(), wanted, "max_waiting_fetches"
            ),
        )

    async def consumers(self, topic: str, group: str = "") -> Consumers:
        """Return the consumers of a topic: group to client to partitions.

        Args:
            topic: what they consume.
            group: only this group; empty for all.

        Raises:
            UnknownGroup: there is no such group, or it never consumed the topic.
        """
        check_topic(topic)
        if group:
            group_id(group)
        return await self._ask_admin(GetConsumers(topic, group))

    # -- plumbing ---------------------------------------------------------------------------------

    async def _ask_admin(self, message: AdminRequest[R]) -> R:
        name = shares.caller.get()
        if not self._admin_shares.enter(name):
            raise TooManyRequests("max_admin_requests")
        repeat = not isinstance(message, AdminChange)
        try:
            return await self._refs.ask(
                self._admin, "admin", GetAdmin(), message, "max_admin_requests", repeat=repeat
            )
        except NoAnswer as error:
            raise Unavailable(_PERHAPS_CHANGED) from error
        finally:
            self._admin_shares.leave(name)
