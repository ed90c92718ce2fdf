"""Offsets, topics and consumers of a cluster: a bounded number of requests run concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from actors import ActorRef, Future, handles
from pixy.config.model import Proxy
from pixy.engine import admin_groups
from pixy.engine.admin_messages import (
    NEWEST,
    OLDEST,
    AdminChange,
    AdminRequest,
    AlterTopic,
    Consumers,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    DescribeGroup,
    FindOffsets,
    GetBounds,
    GetBrokers,
    GetConsumers,
    GetOffsets,
    GetTopics,
    GroupView,
    HasCommits,
    HasMembers,
    ListGroups,
    PartitionOffset,
    SetOffsets,
    TopicInfo,
)
from pixy.engine.consume import sparse_acks
from pixy.engine.instances.topic_patterns import TopicPattern
from pixy.engine.restarting import Restartable
from pixy.engine.sandbox_groups import KnownGroups, LocalMembers, SandboxGroups
from pixy.errors import (
    ChangesForbidden,
    GroupActive,
    GroupHasMembers,
    InvalidParameter,
    KafkaError,
    PixyError,
    TooManyRequests,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from pixy.kafka import settings
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.consumer import Commit
from pixy.kafka.errors import (
    GROUP_ACTIVE_CODES,
    TRANSIENT_CODES,
    UNSUPPORTED_CODES,
    translate,
    unknown_topic,
)
from pixy.kafka.group_members import ListedGroup
from pixy.wire.errors import ErrorCode
from pixy.wire.types import TopicPartition

T = TypeVar("T")

_TIMEOUT = 15.0
"""Seconds for one request to Kafka."""
_PATIENCE = 10.0
"""Seconds within which a request is tried again."""
_NOT_CHANGED = frozenset({*(code for code in TRANSIENT_CODES if code > 0), ErrorCode.NOT_CONTROLLER})
"""A broker's answers which say that it has not made a change: the change may be asked for again."""
_NAMES_KNOWN = 1.0
"""Seconds for which a list of all topics serves further looks."""

Owners = Callable[[str, str], Awaitable[Consumers]]
"""Returns who owns the partitions of a topic, in one group or (empty) in all of them. Without a topic it returns the members
of the group, each without partitions. Raises PixyError."""


async def _no_groups() -> list[str]:
    return []


class Catalogue:
    """The admin as consumer instances see it: :class:`pixy.engine.instances.context.Catalogue`."""

    def __init__(self, admin: ActorRef[Admin]) -> None:
        self._admin = admin
        self._names: asyncio.Task[list[TopicInfo]] | None = None
        self._asked_at = 0.0

    async def check(self, topic: str) -> None:
        """Raise UnknownTopic if there is no such topic."""
        await self._admin.ask(GetTopics(topic), block=False)

    async def matching(self, pattern: TopicPattern) -> tuple[str, ...]:
        """Return the topics that match a pattern. All instances share a look at the cluster, which is a second old at most."""
        now = asyncio.get_running_loop().time()
        if self._names is None or now - self._asked_at > _NAMES_KNOWN:
            self._names, self._asked_at = asyncio.create_task(self._topics()), now
        names = [topic.name for topic in await asyncio.shield(self._names)]
        return await asyncio.to_thread(pattern.matching, names)

    async def _topics(self) -> list[TopicInfo]:
        return await self._admin.ask(GetTopics(), block=False)

    async def find(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See :class:`FindOffsets`."""
        return await self._admin.ask(FindOffsets(times), block=False)


class Admin(Restartable):
    """Child of the cluster. The first request creates its Kafka client.

    Args:
        proxy: the cluster's configuration.
        local_members: asks the cluster.
        owners: asks who owns partitions, where Kafka does not know it; None where it does.
        known_groups: asks the cluster, for the sandbox, which cannot list groups.
    """

    def __init__(
        self,
        proxy: Proxy,
        local_members: LocalMembers,
        owners: Owners | None = None,
        known_groups: KnownGroups | None = None,
    ) -> None:
        super().__init__()
        self._owners = owners
        self._sandbox = SandboxGroups(proxy.client_id, local_members, known_groups or _no_groups)
        self._proxy = proxy
        self._local_members = local_members
        self._client: KafkaAdmin | None = None
        self._active = 0

    def on_stop(self) -> None:
        """Close the connections to Kafka."""
        if self._client is not None:
            self._client.close()

    def on_receive(self, message: Any) -> Any:
        """Serve an :class:`AdminRequest` in a task of its own, unless too many are under way."""
        if not isinstance(message, AdminRequest):
            return super().on_receive(message)
        if self._active >= self._proxy.max_admin_requests:
            raise TooManyRequests("max_admin_requests")
        self._active += 1
        self.start_task(
            self._serve(partial(super().on_receive, message), self.take_reply(), _passing(message))
        )
        return None

    async def _serve(
        self, attempt: Callable[[], Awaitable[Any]], reply: Future[Any], codes: frozenset[int]
    ) -> None:
        try:
            reply.try_set(await self._retry(attempt, codes))
        except PixyError as error:
            reply.try_fail(error)
        except Exception as error:
            reply.try_fail(translate(error))
        finally:
            self._active -= 1

    async def _retry(self, attempt: Callable[[], Awaitable[T]], codes: frozenset[int]) -> T:
        """Try again for a while after errors that pass once a broker or coordinator has moved."""
        loop = self.system.loop
        deadline = loop.time() + _PATIENCE
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code not in codes or loop.time() > deadline:
                    raise
            await asyncio.sleep(self._proxy.consumer.retry_backoff)

    @property
    def _kafka(self) -> KafkaAdmin:
        if self._client is None:
            self._client = KafkaAdmin(settings.admin(self._proxy), _TIMEOUT, self._proxy.max_admin_requests)
        return self._client

    async def _partitions(self, topic: str, what: str) -> list[int]:
        try:
            return [info.partition for info in await self._kafka.partitions(topic)]
        except KafkaError as error:
            raise error.wrapped(what) from error

    @handles(GetOffsets)
    async def _get_offsets(self, query: GetOffsets) -> list[PartitionOffset]:
        partitions = await self._partitions(query.topic, "failed to get topic partitions")
        # In this order: no commit is beyond an end that is read later, so no lag is below 0 because of it.
        offsets = await self._kafka.offsets(query.group, query.topic, partitions)
        bounds = await self._kafka.bounds(query.topic, partitions)
        return [
            PartitionOffset(number, *bounds[number], *offsets.get(number, (NEWEST, "")))
            for number in partitions
        ]

    @handles(SetOffsets)
    async def _set_offsets(self, request: SetOffsets) -> None:
        if request.group in await self._local_members() or await self._is_owned(request.group, request.topic):
            raise GroupActive(request.group)
        partitions = await self._partitions(request.topic, "failed to commit offsets")
        for partition, offset, metadata in request.offsets:
            if partition not in partitions:
                raise unknown_topic().wrapped(f"failed to commit offset, partition={partition}")
            if offset < OLDEST:
                raise InvalidParameter(f"bad offset: {offset} of partition {partition}")
            if len(metadata.encode()) > sparse_acks.MAX_METADATA:
                raise InvalidParameter(
                    f"bad metadata of partition {partition}: longer than {sparse_acks.MAX_METADATA} bytes"
                )
        if not request.offsets:
            return
        commits = [Commit(request.topic, *each) for each in request.offsets]
        try:
            await self._kafka.set_offsets(request.group, commits)
        except KafkaError as error:
            if error.code not in GROUP_ACTIVE_CODES:
                raise
            if not await self._in_sandbox(request.group):
                raise GroupActive(request.group) from error
            # Its members are this daemon's, and there are none: it remembers those that have left.
            consumer = settings.consumer(self._proxy, request.group)
            await self._kafka.set_sandbox_offsets(request.group, commits, consumer)

    async def _in_sandbox(self, group: str) -> bool:
        """Return whether the cluster is the sandbox, which can describe no group."""
        try:
            await self._kafka.describe_group(group)
        except KafkaError as error:
            return error.code in UNSUPPORTED_CODES
        return False

    async def _is_owned(self, group: str, topic: str = "") -> bool:
        """Return whether a group has members (that own partitions of the topic, if one is given) of which Kafka knows nothing."""
        if self._owners is None:
            return False
        try:
            return bool(await self._owners(topic, group))
        except UnknownGroup:
            return False

    @handles(GetTopics)
    async def _get_topics(self, query: GetTopics) -> list[TopicInfo]:
        topic_id = ""
        if query.topic is not None:
            try:
                partitions, topic_id = await self._kafka.topic(query.topic)
                found = {query.topic: partitions}
            except UnknownTopic as error:
                raise error.wrapped("failed to get partitions") from error
        else:
            found = await self._kafka.topics()
        configs: dict[str, dict[str, str]] = {}
        if query.with_config and found:
            try:
                configs = await self._kafka.configs(sorted(found))
            except KafkaError as error:
                if error.code not in UNSUPPORTED_CODES:
                    raise error.wrapped("failed to fetch topic configuration") from error
        return [
            TopicInfo(
                name,
                found[name] if query.with_partitions else None,
                configs.get(name, {}) if query.with_config else None,
                topic_id,
            )
            for name in sorted(found)
        ]

    @handles(GetBrokers)
    async def _get_brokers(self, _query: GetBrokers) -> list[int]:
        return await self._kafka.brokers()

    @handles(GetBounds)
    async def _get_bounds(self, query: GetBounds) -> tuple[int, int]:
        if query.partition not in await self._partitions(query.topic, "failed to get offsets"):
            missing = unknown_topic()
            raise UnknownPartition(str(missing), missing.code, missing.name)
        found = await self._kafka.bounds(query.topic, [query.partition])
        return found[query.partition]

    @handles(FindOffsets)
    async def _find_offsets(self, query: FindOffsets) -> dict[TopicPartition, int]:
        return await self._kafka.find_offsets(query.times)

    @handles(GetConsumers)
    async def _get_consumers(self, query: GetConsumers) -> Consumers:
        if self._owners is not None:
            return await self._owners(query.topic, query.group)
        try:
            return await self._ask_group_coordinators(query)
        except KafkaError as error:
            if error.code not in UNSUPPORTED_CODES:
                raise
        return await self._sandbox.consumers(query)

    @handles(ListGroups)
    async def _list_groups(self, _query: ListGroups) -> list[ListedGroup]:
        try:
            return await self._kafka.listed_groups()
        except KafkaError as error:
            if error.code not in UNSUPPORTED_CODES:
                raise
        return await self._sandbox.listed()

    @handles(DescribeGroup)
    async def _describe_group(self, query: DescribeGroup) -> GroupView:
        try:
            return await admin_groups.describe_group(self._kafka, query.group)
        except KafkaError as error:
            if error.code not in UNSUPPORTED_CODES:
                raise
        return await self._sandbox.describe(query.group, self._kafka, self._offsets_in)

    async def _offsets_in(self, group: str, topic: str) -> list[PartitionOffset]:
        return await self._get_offsets(GetOffsets(group, topic))

    async def _change(self, wanted: AdminChange) -> None:
        self._check_changes()
        await admin_groups.change(self._kafka, wanted)

    def _check_changes(self) -> None:
        if not self._proxy.admin_changes:
            raise ChangesForbidden

    @handles(CreateTopic)
    async def _create_topic(self, wanted: CreateTopic) -> None:
        await self._change(wanted)

    @handles(AlterTopic)
    async def _alter_topic(self, wanted: AlterTopic) -> None:
        for each in admin_groups.one_by_one(wanted):
            await self._retry(partial(self._change, each), _NOT_CHANGED)

    @handles(DeleteTopic)
    async def _delete_topic(self, wanted: DeleteTopic) -> None:
        await self._change(wanted)

    @handles(DeleteGroup)
    async def _delete_group(self, wanted: DeleteGroup) -> None:
        self._check_changes()
        if wanted.group in await self._local_members() or await self._is_owned(wanted.group):
            raise GroupHasMembers(wanted.group)
        await self._change(wanted)

    @handles(HasMembers)
    async def _has_members(self, query: HasMembers) -> bool:
        try:
            return any((await self._kafka.describe([query.group])).values())
        except KafkaError as error:
            if error.code not in UNSUPPORTED_CODES:
                raise
            return False  # the sandbox has no groups

    async def _ask_group_coordinators(self, query: GetConsumers) -> Consumers:
        if query.group:
            groups = {query.group: await admin_groups.members(self._kafka, query.group)}
        else:
            groups = await self._kafka.describe(await self._kafka.groups())
        consumers: Consumers = {}
        for group, found in groups.items():
            members: dict[str, list[int]] = {}
            for each in found:
                partitions = sorted(number for topic, number in each.assigned if topic == query.topic)
                if partitions:
                    # Two members may have the same client id.
                    members[each.member_id if each.client_id in members else each.client_id] = partitions
            if members:
                consumers[group] = members
        if query.group and not consumers:
            await self._check_consumed(query)
        return consumers

    async def _check_consumed(self, query: GetConsumers) -> None:
        """Raise UnknownGroup if a group without members has no committed offset in the topic."""
        if not await self._has_commits(HasCommits(query.group, query.topic)):
            raise UnknownGroup(f"topic {query.topic} is not consumed by {query.group}")

    @handles(HasCommits)
    async def _has_commits(self, query: HasCommits) -> bool:
        partitions: list[int] = []
        try:
            partitions = await self._partitions(query.topic, "")
        except UnknownTopic:
            pass
        offsets = await self._kafka.offsets(query.group, query.topic, partitions) if partitions else {}
        return any(offset >= 0 for offset, _ in offsets.values())


def _passing(message: AdminRequest[Any]) -> frozenset[int]:
    """Return the codes of errors after which a request is handled again: the error passes, and a change was not made."""
    if isinstance(message, AlterTopic):
        return frozenset()  # its handler tries the two halves again, each by itself
    if isinstance(message, GetBrokers) and message.once:
        return frozenset()
    return _NOT_CHANGED if isinstance(message, AdminChange) else TRANSIENT_CODES
