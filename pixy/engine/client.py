"""What an API handler, or a program that embeds the engine, calls: one object per cluster.

Refs are resolved once and kept; each call then is one message and one awaited future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from actors import ActorDeadError, ActorRef, Future, MailboxFull
from pixy.config.model import Proxy
from pixy.engine.admin import (
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
from pixy.engine.cluster import (
    GetAdmin,
    GetFetcher,
    GetGroup,
    GetInstances,
    GetProducer,
    record_headers_unsupported,
)
from pixy.engine.consume.group_messages import AckMessage, Consume
from pixy.engine.consume.long_polls import Delivery, Message
from pixy.engine.fetcher import Fetch
from pixy.engine.instances.client import InstanceClient
from pixy.engine.produce.messages import Produce, ProduceMany
from pixy.engine.produce.pending_records import Record, Written
from pixy.errors import (
    HeadersUnsupported,
    InvalidParameter,
    NotConsumed,
    PixyError,
    ShuttingDown,
    TooManyRequests,
    Unavailable,
)
from pixy.kafka.fetcher import Read
from pixy.kafka.settings import group_id
from pixy.wire.types import RecordHeaders

T = TypeVar("T")

_ATTEMPTS = 3
_MAX_NAME = 249
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_topic(topic: str) -> None:
    """Kafka's own rule for topic names. Raises InvalidParameter."""
    if not topic or topic in (".", "..") or len(topic) > _MAX_NAME or not _NAME_CHARS.issuperset(topic):
        raise InvalidParameter(
            f"bad topic: {topic!r} must be 1 to {_MAX_NAME} characters of a-z, A-Z, 0-9, '.', '_' and '-'"
        )


class ClusterClient:
    """The operations on one cluster. All raise :mod:`pixy.errors`."""

    def __init__(self, cluster: ActorRef[Any], proxy: Proxy, stopping: Callable[[], bool]) -> None:
        self.proxy = proxy
        self._cluster = cluster
        self._stopping = stopping
        self._headers_unsupported = record_headers_unsupported(proxy)
        self._producers: dict[str, ActorRef[Any]] = {}
        self._groups: dict[str, ActorRef[Any]] = {}
        self._admin: dict[str, ActorRef[Any]] = {}
        self._fetcher: dict[str, ActorRef[Any]] = {}
        registry: dict[str, ActorRef[Any]] = {}
        self.instances = InstanceClient(lambda: self._resolve(registry, "instances", GetInstances()))
        """Consumer instances of the REST API."""

    # -- produce ----------------------------------------------------------------------------------

    async def produce(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: RecordHeaders = ()
    ) -> tuple[int, int]:
        """Write a message and wait for ``required_acks``; return its partition and offset.

        ``key`` None goes to any partition, an empty one to that of the empty key. ``value`` None is
        a tombstone. The offset means nothing with ``required_acks: no_response``.
        """
        ref = self._producers.get(topic)
        if ref is not None and not (headers and self._headers_unsupported):
            # The hot path: a topic that is known needs no checks.
            try:
                return await ref.ask(Produce(key, value, headers), block=False)
            except ActorDeadError:
                pass  # it was idle for long: there is a new one
            except MailboxFull as error:
                raise TooManyRequests("producer.channel_buffer_size") from error
        message = self._produce_message(topic, value, key, headers)
        return await self._with_ref(  # type: ignore[no-any-return]
            self._producers, topic, GetProducer(topic), message, "producer.channel_buffer_size"
        )

    async def produce_many(self, topic: str, records: Sequence[Record]) -> list[Written]:
        """Write records of one topic in their order; what became of each, in the same order.

        One message to the topic's producer, however many records. A record that fails does so
        alone: its element is the error.
        """
        if not records:
            return []
        if self._headers_unsupported and any(record.headers for record in records):
            raise HeadersUnsupported
        message = ProduceMany(records)
        ref = self._producers.get(topic)
        if ref is None:
            check_topic(topic)
        found: list[Written] = await self._with_ref(
            self._producers, topic, GetProducer(topic), message, "producer.channel_buffer_size"
        )
        return found

    async def produce_async(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: RecordHeaders = ()
    ) -> None:
        """Take a message on; what becomes of it is only logged."""
        message = self._produce_message(topic, value, key, headers)
        ref = self._producers.get(topic)
        if ref is None or not ref.is_alive():
            ref = await self._resolve(self._producers, topic, GetProducer(topic))
        try:
            ref.tell(message)
        except MailboxFull as error:
            raise TooManyRequests("producer.channel_buffer_size") from error
        except ActorDeadError as error:
            raise ShuttingDown from error

    def _produce_message(
        self, topic: str, value: bytes | None, key: bytes | None, headers: RecordHeaders
    ) -> Produce:
        check_topic(topic)
        if headers and self._headers_unsupported:
            raise HeadersUnsupported
        return Produce(key, value, headers)

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

        Args:
            auto_ack: acknowledge the message when :meth:`Delivery.sent` is called.
            ack: (partition, offset) of an earlier message to acknowledge.

        Raises:
            LongPollTimeout: nothing came in time.

        A caller that is cancelled meanwhile gets nothing and loses nothing.
        """
        check_topic(topic)
        group_id(group)
        request = Consume(topic, auto_ack, ack)
        for _ in range(_ATTEMPTS):
            ref = self._groups.get(group)
            if ref is None or not ref.is_alive():
                ref = await self._resolve(self._groups, group, GetGroup(group))
            future = ref.ask(request, block=False)
            try:
                return await self._reply(future, "consumer.channel_buffer_size")
            except ActorDeadError:
                self._groups.pop(group, None)
            except asyncio.CancelledError:
                delivery = future.value()
                if delivery is not None:
                    delivery.give_back()
                raise
        raise Unavailable(f"group {group} is restarting, try again")

    async def ack(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Acknowledge a message consumed through this instance.

        Raises:
            NotConsumed: the partition was never assigned to this instance.
            PartitionLost: it belongs to another member by now.
            NeverOffered: the offset was not handed out.
        """
        check_topic(topic)
        group_id(group)
        ref = self._groups.get(group)
        if ref is None or not ref.is_alive():
            raise NotConsumed(group, topic, partition)
        try:
            await self._reply(
                ref.ask(AckMessage(topic, partition, offset), block=False, urgent=True),
                "consumer.channel_buffer_size",
            )
        except ActorDeadError as error:
            raise NotConsumed(group, topic, partition) from error

    # -- admin --------------------------------------------------------------------------------------

    async def get_offsets(self, topic: str, group: str) -> list[PartitionOffset]:
        """The group's offsets in each partition of the topic."""
        check_topic(topic)
        group_id(group)
        found: list[PartitionOffset] = await self._ask_admin(GetOffsets(group, topic))
        return found

    async def set_offsets(self, topic: str, group: str, offsets: tuple[tuple[int, int, str], ...]) -> None:
        """Commit (partition, offset, metadata) for a group that nobody consumes."""
        check_topic(topic)
        group_id(group)
        await self._ask_admin(SetOffsets(group, topic, offsets))

    async def topics(self, *, with_partitions: bool, with_config: bool) -> list[TopicInfo]:
        """All topics, by name."""
        found: list[TopicInfo] = await self._ask_admin(GetTopics(None, with_partitions, with_config))
        return found

    async def topic(self, topic: str, *, with_partitions: bool) -> TopicInfo:
        """One topic with its configuration. Raises UnknownTopic."""
        check_topic(topic)
        found: list[TopicInfo] = await self._ask_admin(GetTopics(topic, with_partitions, True))
        return found[0]

    async def brokers(self) -> list[int]:
        """The ids of the brokers."""
        found: list[int] = await self._ask_admin(GetBrokers())
        return found

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The oldest offset of a partition and the next to be written.

        Raises:
            UnknownTopic, UnknownPartition: it is not there.
        """
        check_topic(topic)
        found: tuple[int, int] = await self._ask_admin(GetBounds(topic, partition))
        return found

    # -- reads by offset --------------------------------------------------------------------------

    async def fetch(self, read: Read) -> list[Message]:
        """Messages of a partition from an offset or a time on, outside any group; as soon as there
        is one, and none if none comes within the timeout.

        Raises:
            UnknownTopic, UnknownPartition: it is not there.
            OffsetOutOfRange: the partition does not hold the offset.
            FetchPoolBusy: ``max_fetches`` are under way and none ends soon.
        """
        check_topic(read.topic)
        found: list[Message] = await self._with_ref(
            self._fetcher, "fetcher", GetFetcher(), Fetch(read), "max_waiting_fetches"
        )
        return found

    async def consumers(self, topic: str, group: str = "") -> Consumers:
        """Who consumes the topic: group to client to partitions."""
        check_topic(topic)
        if group:
            group_id(group)
        found: Consumers = await self._ask_admin(GetConsumers(topic, group))
        return found

    # -- plumbing ---------------------------------------------------------------------------------

    async def _ask_admin(self, message: Any) -> Any:
        return await self._with_ref(self._admin, "admin", GetAdmin(), message, "max_admin_requests")

    async def _with_ref(
        self,
        cache: dict[str, ActorRef[Any]],
        name: str,
        get: Any,
        message: Any,
        bound: str,
    ) -> Any:
        for _ in range(_ATTEMPTS):
            ref = await self._resolve(cache, name, get)
            try:
                return await self._reply(ref.ask(message, block=False), bound)
            except ActorDeadError:
                cache.pop(name, None)
        raise self._gone()

    async def _resolve(self, cache: dict[str, ActorRef[Any]], name: str, get: Any) -> ActorRef[Any]:
        ref = cache.get(name)
        if ref is not None and ref.is_alive():
            return ref
        try:
            found: ActorRef[Any] = await self._reply(
                self._cluster.ask(get, block=False), "producer.channel_buffer_size"
            )
        except ActorDeadError as error:
            raise self._gone() from error
        if len(cache) > self.proxy.producer.max_topics:
            cache.clear()  # names of actors that stopped long ago
        cache[name] = found
        return found

    @staticmethod
    def _reply(future: Future[T], bound: str) -> Coroutine[Any, Any, T]:
        return _unless_full(future, bound)

    def _gone(self) -> PixyError:
        return ShuttingDown() if self._stopping() else Unavailable("restarting, try again")


async def _unless_full(future: Future[T], bound: str) -> T:
    try:
        return await future
    except MailboxFull as error:
        raise TooManyRequests(bound) from error
