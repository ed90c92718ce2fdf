"""Groups of the sandbox, which can neither list nor describe them: what this daemon and its committed offsets tell instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pixy.engine.admin_messages import NEWEST, Consumers, GetConsumers, GroupView, PartitionOffset
from pixy.errors import UnknownGroup
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.group_members import EMPTY, GroupMember, ListedGroup

LocalMembers = Callable[[], Awaitable[dict[str, dict[str, list[int]]]]]
"""Returns the groups that this daemon consumes for: group to topic to partitions."""
KnownGroups = Callable[[], Awaitable[list[str]]]
"""Returns the groups that this daemon consumes for, or has consumed for."""
Offsets = Callable[[str, str], Awaitable[list[PartitionOffset]]]
"""Returns the offsets of a group in a topic."""


class SandboxGroups:
    """Answers questions about groups; their only members are this daemon's.

    Args:
        client_id: of the daemon, which stands for its members.
        local_members: asks the cluster.
        known_groups: asks the cluster.
    """

    def __init__(self, client_id: str, local_members: LocalMembers, known_groups: KnownGroups) -> None:
        self._client_id = client_id
        self._local_members = local_members
        self._known_groups = known_groups

    async def consumers(self, query: GetConsumers) -> Consumers:
        """Return who consumes a topic."""
        own = await self._local_members()
        return {
            group: {self._client_id: topics[query.topic]}
            for group, topics in own.items()
            if query.topic in topics and query.group in ("", group)
        }

    async def listed(self) -> list[ListedGroup]:
        """List the groups that have members here, or had some."""
        own = await self._local_members()
        names = sorted(own.keys() | set(await self._known_groups()))
        return [ListedGroup(name, "Stable" if name in own else EMPTY, "classic") for name in names]

    async def describe(self, group: str, kafka: KafkaAdmin, offsets: Offsets) -> GroupView:
        """Describe a group.

        Args:
            group: its id.
            kafka: lists the topics in which to look for offsets, if the group has no members.
            offsets: looks them up in one topic.

        Raises:
            UnknownGroup: it has neither members nor offsets, and had no members before.
        """
        topics = (await self._local_members()).get(group)
        if topics is not None:
            assigned = tuple((topic, number) for topic in sorted(topics) for number in topics[topic])
            member = GroupMember(self._client_id, self._client_id, assigned)
            return GroupView(
                group, "Stable", (member,), {topic: await offsets(group, topic) for topic in sorted(topics)}
            )
        found = {topic: await offsets(group, topic) for topic in sorted(await kafka.topics())}
        committed = {
            topic: theirs for topic, theirs in found.items() if any(each.offset != NEWEST for each in theirs)
        }
        if not committed and group not in await self._known_groups():
            raise UnknownGroup(f"unknown consumer group {group}")
        return GroupView(group, EMPTY, (), committed)


__all__ = ["KnownGroups", "LocalMembers", "Offsets", "SandboxGroups"]
