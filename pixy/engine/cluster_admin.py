"""Topics and groups of one cluster as API handlers see them: checks the arguments, and asks the admin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from pixy.engine.admin_messages import (
    AdminRequest,
    AlterTopic,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    DescribeGroup,
    FindOffsets,
    GetBrokers,
    GetTopics,
    GroupView,
    ListGroups,
)
from pixy.engine.topic_names import check_topic
from pixy.errors import InvalidParameter
from pixy.kafka.group_members import ListedGroup
from pixy.kafka.settings import group_id
from pixy.kafka.topic_changes import NewTopic

R = TypeVar("R")

MOST_PARTITIONS: Final = 10_000
MOST_REPLICAS: Final = 100
MOST_SETTINGS: Final = 100
MOST_GROUPS: Final = 10_000
"""Groups in one answer."""
_LONGEST: Final = 10_000
"""Characters of a setting's name or value."""


class FoundOffsets(NamedTuple):
    """Offsets of a topic by partition, and the topic's id; empty if the broker gives none."""

    offsets: dict[int, int]
    topic_id: str


class Ask(Protocol):
    """Asks an admin, and returns its answer."""

    async def __call__(self, request: AdminRequest[R], /) -> R: ...


class ClusterAdmin:
    """The operations on topics and groups. All raise errors of :mod:`pixy.errors`.

    Args:
        ask: asks the cluster's :class:`~pixy.engine.admin.Admin`.
        journal: the journal's topic, which no client may change; empty if there is none.
    """

    def __init__(self, ask: Ask, journal: str) -> None:
        self._ask = ask
        self._journal = journal

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Create a topic.

        Args:
            topic: its name, partitions (0 to 10,000) and replicas (0 to 100; 0: the broker's default), and settings.
            validate_only: check the request, create nothing.

        Raises:
            TopicExists: the name is taken.
            ChangesForbidden: ``admin_changes`` is off.
        """
        self._check_changed(topic.name)
        _check_number("partitions", topic.partitions, MOST_PARTITIONS)
        _check_number("replication_factor", topic.replicas, MOST_REPLICAS)
        _check_settings(topic.config, ())
        await self._ask(CreateTopic(topic, validate_only))

    async def alter_topic(
        self,
        topic: str,
        values: Mapping[str, str],
        defaults: Sequence[str] = (),
        partitions: int = 0,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change a topic's settings, or add partitions.

        Args:
            topic: its name.
            values: settings to set.
            defaults: names of settings that go back to the broker's default.
            partitions: how many it shall have, more than it has; 0 leaves them.
            validate_only: check the request, change nothing.

        Raises:
            UnknownTopic: there is no such topic.
            ChangesForbidden: ``admin_changes`` is off.
        """
        self._check_changed(topic)
        _check_number("partitions", partitions, MOST_PARTITIONS)
        _check_settings(values, defaults)
        if not (values or defaults or partitions):
            raise InvalidParameter("nothing to change: neither settings nor partitions are given")
        await self._ask(AlterTopic(topic, values, tuple(defaults), partitions, validate_only))

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic. Raises UnknownTopic, ChangesForbidden."""
        self._check_changed(topic)
        await self._ask(DeleteTopic(topic))

    async def find_offsets(self, topic: str, time: int) -> FoundOffsets:
        """Find the offset at a time in each partition of a topic.

        Args:
            topic: its name.
            time: milliseconds since 1970; -1 for the end, -2 for the beginning.

        Raises:
            UnknownTopic: there is no such topic.
        """
        check_topic(topic)
        if time < -2:
            raise InvalidParameter(f"bad time: {time} is neither milliseconds since 1970 nor -1 nor -2")
        [found] = await self._ask(GetTopics(topic, with_partitions=True))
        partitions = [(topic, each.partition) for each in found.partitions or ()]
        offsets = await self._ask(FindOffsets(dict.fromkeys(partitions, time)))
        # The id first: offsets of a topic that is made again in between come with the old one, and the next answer tells.
        return FoundOffsets({number: offset for (_, number), offset in sorted(offsets.items())}, found.id)

    async def groups(self) -> list[ListedGroup]:
        """Return all consumer groups, sorted by name."""
        return await self._ask(ListGroups())

    async def group(self, group: str) -> GroupView:
        """Return a group's state, members and offsets. Raises UnknownGroup."""
        group_id(group)
        return await self._ask(DescribeGroup(group))

    async def delete_group(self, group: str) -> None:
        """Delete a group with its offsets.

        Raises:
            UnknownGroup: there is no such group.
            GroupHasMembers: it has members.
            ChangesForbidden: ``admin_changes`` is off.
        """
        group_id(group)
        await self._ask(DeleteGroup(group))

    async def brokers(self) -> list[int]:
        """Return the ids of the brokers, sorted."""
        return await self._ask(GetBrokers())

    def _check_changed(self, topic: str) -> None:
        check_topic(topic)
        if topic == self._journal:
            raise InvalidParameter(f"bad topic: {topic!r} is the journal of this daemon (`journal.topic`)")


def _check_number(name: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise InvalidParameter(f"bad {name}: {value} is not between 0 and {most}")


def _check_settings(values: Mapping[str, str], defaults: Sequence[str]) -> None:
    if len(values) + len(defaults) > MOST_SETTINGS:
        raise InvalidParameter(f"too many settings, a request may have {MOST_SETTINGS}")
    if any(len(text) > _LONGEST for text in (*values, *values.values(), *defaults)):
        raise InvalidParameter(f"bad config: a name or value is longer than {_LONGEST} characters")
    if both := set(values) & set(defaults):
        raise InvalidParameter(f"bad config: {sorted(both)[0]!r} is to be set and to be deleted")


__all__ = ["MOST_GROUPS", "ClusterAdmin"]
