"""Describe and change groups in Kafka, for the :class:`~pixy.engine.admin.Admin`."""

from __future__ import annotations

from dataclasses import replace

from pixy.engine.admin_messages import (
    AdminChange,
    AlterTopic,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    GroupView,
    PartitionOffset,
)
from pixy.errors import (
    GroupHasMembers,
    InvalidParameter,
    KafkaError,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.errors import GROUP_ACTIVE_CODES, UNSUPPORTED_CODES
from pixy.kafka.group_members import DEAD, GroupMember
from pixy.kafka.sandbox import PARTITIONS
from pixy.kafka.topic_changes import TopicChanges
from pixy.wire.errors import ErrorCode
from pixy.wire.types import TopicPartition


async def describe_group(kafka: KafkaAdmin, group: str) -> GroupView:
    """Return a group with its offsets. Raises UnknownGroup."""
    found = await kafka.describe_group(group)
    if found.state == DEAD and not found.members:
        raise UnknownGroup(f"unknown consumer group {group}")
    committed = await kafka.committed(group)
    bounds = await _bounds(kafka, sorted(committed))
    offsets: dict[str, list[PartitionOffset]] = {}
    for topic, number in sorted(bounds):
        offset, metadata = committed[topic, number]
        begin, end = bounds[topic, number]
        offsets.setdefault(topic, []).append(PartitionOffset(number, begin, end, offset, metadata))
    return GroupView(group, found.state, found.members, offsets)


async def members(kafka: KafkaAdmin, group: str) -> tuple[GroupMember, ...]:
    """Return the members of a consumer group, as its coordinator knows them: lists of groups come from brokers of which one
    may not answer.

    Raises:
        UnknownGroup: there is no such group, and it has no committed offsets.
    """
    found = await kafka.describe_group(group)
    if not found.consumers or (
        found.state == DEAD and not found.members and not await kafka.committed(group)
    ):
        raise UnknownGroup(f"unknown consumer group {group}")
    return found.members


async def _bounds(
    kafka: KafkaAdmin, partitions: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the bounds of partitions, without those of topics that do not exist any more."""
    try:
        return await kafka.logs(partitions) if partitions else {}
    except UnknownTopic:
        known = await kafka.topics()
        exist = {(topic, info.partition) for topic, infos in known.items() for info in infos}
        return await kafka.logs([each for each in partitions if each in exist])


async def change(kafka: KafkaAdmin, wanted: AdminChange) -> None:
    """Make a change. Raises PixyError."""
    try:
        await _change(kafka, wanted)
    except KafkaError as error:
        if error.code not in UNSUPPORTED_CODES:
            raise
        raise InvalidParameter(
            f"{error}: it is too old, or the sandbox, which deletes and alters nothing"
        ) from error


async def _change(kafka: KafkaAdmin, wanted: AdminChange) -> None:
    match wanted:
        case CreateTopic():
            await _create(kafka, wanted)
        case AlterTopic():
            await kafka.partitions(wanted.topic)  # without it, an old broker takes settings of any name
            await kafka.change(lambda to: _alter(to, wanted))
        case DeleteTopic():
            await kafka.change(lambda to: to.delete(wanted.topic))
        case DeleteGroup():
            await _delete_group(kafka, wanted.group)


async def _create(kafka: KafkaAdmin, wanted: CreateTopic) -> None:
    try:
        await kafka.change(lambda to: to.create(wanted.topic, validate_only=wanted.validate_only))
    except KafkaError as error:
        if error.code not in UNSUPPORTED_CODES:
            raise
        await _create_in_sandbox(kafka, wanted)


async def _create_in_sandbox(kafka: KafkaAdmin, wanted: CreateTopic) -> None:
    topic = wanted.topic
    if topic.partitions not in (0, PARTITIONS) or topic.replicas not in (0, 1) or topic.config:
        raise InvalidParameter(
            f"the sandbox makes topics with {PARTITIONS} partitions, one replica and no settings of their own"
        )
    if topic.name in await kafka.topics():
        raise TopicExists(topic.name)
    if not wanted.validate_only:
        await kafka.change(lambda to: to.create_by_use(topic.name))


def one_by_one(wanted: AlterTopic) -> list[AlterTopic]:
    """Split a change into those that take one request each, so that one can be tried again without the other.

    Partitions cannot be taken away again. So settings that come with them are checked first.
    """
    partitions, settings = replace(wanted, values={}, defaults=()), replace(wanted, partitions=0)
    if not (settings.values or settings.defaults):
        return [partitions] if wanted.partitions else []
    if not wanted.partitions:
        return [settings]
    return [replace(settings, validate_only=True), partitions, settings]


def _alter(to: TopicChanges, wanted: AlterTopic) -> None:
    if wanted.partitions:
        to.add_partitions(wanted.topic, wanted.partitions, validate_only=wanted.validate_only)
    if wanted.values or wanted.defaults:
        to.alter_config(wanted.topic, wanted.values, wanted.defaults, validate_only=wanted.validate_only)


async def _delete_group(kafka: KafkaAdmin, group: str) -> None:
    try:
        await kafka.change(lambda to: to.delete_group(group))
    except KafkaError as error:
        if error.code in GROUP_ACTIVE_CODES:
            raise GroupHasMembers(group) from error
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise UnknownGroup(f"unknown consumer group {group}") from error
        raise


__all__ = ["change", "describe_group", "members", "one_by_one"]
