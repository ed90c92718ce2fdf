"""Offsets, topics and consumers of a cluster. Requests run beside each other, at most so many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors import Actor, ActorRef, Future
from pixy.config.model import Proxy
from pixy.engine.consume import sparse_acks
from pixy.errors import (
    GroupActive,
    InvalidParameter,
    KafkaError,
    PixyError,
    TooManyRequests,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from pixy.kafka import settings
from pixy.kafka.admin import KafkaAdmin, PartitionInfo
from pixy.kafka.consumer import Commit
from pixy.kafka.errors import (
    GROUP_ACTIVE_CODES,
    TRANSIENT_CODES,
    UNSUPPORTED_CODES,
    translate,
    unknown_topic,
)

_TIMEOUT = 15.0
_PATIENCE = 10.0
_NEWEST, _OLDEST = -1, -2

Consumers = dict[str, dict[str, list[int]]]
"""Group to client to sorted partitions."""

LocalMembers = Callable[[], Awaitable[dict[str, dict[str, list[int]]]]]
"""This instance's own groups: group to topic to partitions."""


@dataclass(frozen=True, slots=True)
class GetOffsets:
    """Ask for a group's offsets in a topic: a list of :class:`PartitionOffset`."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class SetOffsets:
    """Commit offsets for a group that nobody consumes. -1 and -2 are stored as they are: who consumes
    next begins at the end, or at the beginning.
    """

    group: str
    topic: str
    offsets: tuple[tuple[int, int, str], ...]
    """(partition, offset, metadata)"""


@dataclass(frozen=True, slots=True)
class GetTopics:
    """Ask for :class:`TopicInfo` of all topics, or of one; each part only if wanted."""

    topic: str | None = None
    with_partitions: bool = False
    with_config: bool = False


@dataclass(frozen=True, slots=True)
class GetConsumers:
    """Ask who consumes a topic: :data:`Consumers`, of one group or of all."""

    topic: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class GetBrokers:
    """Ask for the ids of the brokers, sorted."""


@dataclass(frozen=True, slots=True)
class GetBounds:
    """Ask for the oldest offset of a partition and the next to be written: a pair."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Ask for the first offset whose record is not older than a time (ms since 1970), or for the end
    where there is none; -1 means the end and -2 the beginning. The reply: partition to offset.
    """

    times: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """A partition's range and a group's place in it."""

    partition: int
    begin: int
    end: int
    offset: int
    metadata: str

    @property
    def count(self) -> int:
        """Messages in the partition."""
        return self.end - self.begin

    @property
    def lag(self) -> int:
        """Messages not consumed; 0 without a commit, negative for a commit beyond the end."""
        if self.offset == _NEWEST:
            return 0
        return self.count if self.offset == _OLDEST else self.end - self.offset

    @property
    def sparse_acks(self) -> str:
        """The metadata as ranges relative to the offset; empty if it is something else."""
        return sparse_acks.to_text(self.offset, self.metadata)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; a part that was not asked for is None."""

    name: str
    partitions: tuple[PartitionInfo, ...] | None
    config: dict[str, str] | None


class Catalogue:
    """What consumer instances ask the admin. See :class:`pixy.engine.instances.context.Catalogue`."""

    def __init__(self, admin: ActorRef[Admin]) -> None:
        self._admin = admin

    async def check(self, topic: str) -> None:
        """Raises UnknownTopic if there is no such topic."""
        await self._admin.ask(GetTopics(topic), block=False)

    async def find(self, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """See :class:`FindOffsets`."""
        found: dict[tuple[str, int], int] = await self._admin.ask(FindOffsets(times), block=False)
        return found


class Admin(Actor):
    """Child of the cluster. Its Kafka client is made with the first request."""

    def __init__(self, proxy: Proxy, local_members: LocalMembers) -> None:
        super().__init__()
        self._proxy = proxy
        self._local_members = local_members
        self._client: KafkaAdmin | None = None
        self._active = 0
        self._handlers: dict[type, Callable[[KafkaAdmin, Any], Awaitable[Any]]] = {
            GetOffsets: self._get_offsets,
            SetOffsets: self._set_offsets,
            GetTopics: self._get_topics,
            GetConsumers: self._get_consumers,
            GetBrokers: self._get_brokers,
            GetBounds: self._get_bounds,
            FindOffsets: self._find_offsets,
        }

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        handler = self._handlers.get(type(message))
        if handler is None:
            return super().on_receive(message)
        if self._active >= self._proxy.max_admin_requests:
            raise TooManyRequests("max_admin_requests")
        self._active += 1
        self.start_task(self._serve(handler, message, self.take_reply()))
        return None

    async def _serve(
        self,
        handler: Callable[[KafkaAdmin, Any], Awaitable[Any]],
        message: Any,
        reply: Future[Any],
    ) -> None:
        try:
            if self._client is None:
                self._client = KafkaAdmin(settings.admin(self._proxy), _TIMEOUT)
            reply.try_set(await self._patiently(handler, self._client, message))
        except PixyError as error:
            reply.try_fail(error)
        except Exception as error:
            reply.try_fail(translate(error))
        finally:
            self._active -= 1

    async def _patiently(
        self,
        handler: Callable[[KafkaAdmin, Any], Awaitable[Any]],
        client: KafkaAdmin,
        message: Any,
    ) -> Any:
        """Try again for a while what fails only because a broker or coordinator is on the move."""
        loop = self.system.loop
        deadline = loop.time() + _PATIENCE
        while True:
            try:
                return await handler(client, message)
            except KafkaError as error:
                if error.code not in TRANSIENT_CODES or loop.time() > deadline:
                    raise
            await asyncio.sleep(self._proxy.consumer.retry_backoff)

    async def _partitions(self, client: KafkaAdmin, topic: str, what: str) -> list[int]:
        try:
            return [info.partition for info in await client.partitions(topic)]
        except KafkaError as error:
            raise error.wrapped(what) from error

    async def _get_offsets(self, client: KafkaAdmin, query: GetOffsets) -> list[PartitionOffset]:
        partitions = await self._partitions(client, query.topic, "failed to get topic partitions")
        bounds = await client.bounds(query.topic, partitions)
        offsets = await client.offsets(query.group, query.topic, partitions)
        return [
            PartitionOffset(number, *bounds[number], *offsets.get(number, (_NEWEST, "")))
            for number in partitions
        ]

    async def _set_offsets(self, client: KafkaAdmin, request: SetOffsets) -> None:
        if request.group in await self._local_members():
            raise GroupActive(request.group)
        partitions = await self._partitions(client, request.topic, "failed to commit offsets")
        for partition, offset, metadata in request.offsets:
            if partition not in partitions:
                raise unknown_topic().wrapped(f"failed to commit offset, partition={partition}")
            if offset < _OLDEST:
                raise InvalidParameter(f"bad offset: {offset} of partition {partition}")
            if len(metadata.encode()) > sparse_acks.MAX_METADATA:
                raise InvalidParameter(
                    f"bad metadata of partition {partition}: longer than {sparse_acks.MAX_METADATA} bytes"
                )
        if not request.offsets:
            return
        commits = [Commit(request.topic, *each) for each in request.offsets]
        try:
            await client.set_offsets(request.group, commits)
        except KafkaError as error:
            if error.code in GROUP_ACTIVE_CODES:
                raise GroupActive(request.group) from error
            raise

    async def _get_topics(self, client: KafkaAdmin, query: GetTopics) -> list[TopicInfo]:
        if query.topic is not None:
            try:
                found = {query.topic: await client.partitions(query.topic)}
            except UnknownTopic as error:
                raise error.wrapped("failed to get partitions") from error
        else:
            found = await client.topics()
        configs: dict[str, dict[str, str]] = {}
        if query.with_config and found:
            try:
                configs = await client.configs(sorted(found))
            except KafkaError as error:
                if error.code not in UNSUPPORTED_CODES:
                    raise error.wrapped("failed to fetch topic configuration") from error
        return [
            TopicInfo(
                name,
                found[name] if query.with_partitions else None,
                configs.get(name, {}) if query.with_config else None,
            )
            for name in sorted(found)
        ]

    async def _get_brokers(self, client: KafkaAdmin, _query: GetBrokers) -> list[int]:
        return await client.brokers()

    async def _get_bounds(self, client: KafkaAdmin, query: GetBounds) -> tuple[int, int]:
        if query.partition not in await self._partitions(client, query.topic, "failed to get offsets"):
            missing = unknown_topic()
            raise UnknownPartition(str(missing), missing.code, missing.name)
        found = await client.bounds(query.topic, [query.partition])
        return found[query.partition]

    async def _find_offsets(self, client: KafkaAdmin, query: FindOffsets) -> dict[tuple[str, int], int]:
        return await client.find_offsets(query.times)

    async def _get_consumers(self, client: KafkaAdmin, query: GetConsumers) -> Consumers:
        try:
            return await self._ask_group_coordinators(client, query)
        except KafkaError as error:
            if error.code not in UNSUPPORTED_CODES:
                raise
        # The sandbox does not list groups; its only members are ours.
        own = await self._local_members()
        return {
            group: {self._proxy.client_id: topics[query.topic]}
            for group, topics in own.items()
            if query.topic in topics and query.group in ("", group)
        }

    async def _ask_group_coordinators(self, client: KafkaAdmin, query: GetConsumers) -> Consumers:
        names = await client.groups()
        if query.group:
            if query.group not in names:
                raise UnknownGroup(f"unknown consumer group {query.group}")
            names = [query.group]
        consumers: Consumers = {}
        for info in await client.describe(names):
            members: dict[str, list[int]] = {}
            for client_id, member_id, assigned in info.members:
                partitions = sorted(number for topic, number in assigned if topic == query.topic)
                if partitions:
                    # Two members of one client id are two members all the same.
                    members[member_id if client_id in members else client_id] = partitions
            if members:
                consumers[info.group] = members
        if query.group and not consumers:
            await self._check_consumed(client, query)
        return consumers

    async def _check_consumed(self, client: KafkaAdmin, query: GetConsumers) -> None:
        """Without an owner now: the group has consumed the topic if it has committed in it."""
        partitions: list[int] = []
        try:
            partitions = await self._partitions(client, query.topic, "")
        except UnknownTopic:
            pass
        offsets = await client.offsets(query.group, query.topic, partitions) if partitions else {}
        if all(offset < 0 for offset, _ in offsets.values()):
            raise UnknownGroup(f"topic {query.topic} is not consumed by {query.group}")
