"""Topics and groups of a cluster as one caller may change and see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pixy.auth.principal import Caller
from pixy.auth.rules import Access
from pixy.engine.admin_messages import GroupView
from pixy.engine.cluster_admin import ClusterAdmin, FoundOffsets
from pixy.engine.guard import Guard
from pixy.kafka.group_members import ListedGroup
from pixy.kafka.topic_changes import NewTopic


class GuardedAdmin:
    """See :class:`pixy.engine.guarded.GuardedCluster`; the methods are those of ClusterAdmin."""

    def __init__(self, client: ClusterAdmin, guard: Guard, caller: Caller, cluster: str) -> None:
        self._client = client
        self._guard = guard
        self._caller = caller
        self._cluster = cluster

    def _to(self, verb: str, topic: str | None = None, group: str | None = None) -> Access:
        return Access(verb, self._cluster, topic, group)

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Create a topic: ``admin`` on it. It counts as a new topic of the caller's, unless it is only validated."""
        creates = not validate_only
        with self._guard.begin(self._caller, self._to("admin", topic.name), creates=creates) as operation:
            await operation.carry_out(self._client.create_topic(topic, validate_only=validate_only))

    async def alter_topic(
        self,
        topic: str,
        values: Mapping[str, str],
        defaults: Sequence[str] = (),
        partitions: int = 0,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change a topic: ``admin`` on it."""
        with self._guard.begin(self._caller, self._to("admin", topic)) as operation:
            await operation.carry_out(
                self._client.alter_topic(topic, values, defaults, partitions, validate_only=validate_only)
            )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic: ``admin`` on it."""
        with self._guard.begin(self._caller, self._to("admin", topic)) as operation:
            await operation.carry_out(self._client.delete_topic(topic))

    async def find_offsets(self, topic: str, time: int) -> FoundOffsets:
        """Find offsets at a time: ``describe`` on the topic."""
        with self._guard.begin(self._caller, self._to("describe", topic)):
            return await self._client.find_offsets(topic, time)

    async def groups(self) -> list[ListedGroup]:
        """List groups: those on which the caller has ``describe``."""
        with self._guard.begin(self._caller, self._to("describe")):
            found = await self._client.groups()
        return [
            each for each in found if self._guard.allows(self._caller, self._to("describe", group=each.name))
        ]

    async def group(self, group: str) -> GroupView:
        """Show a group: ``describe`` on it; of its topics those on which the caller has it, too."""
        with self._guard.begin(self._caller, self._to("describe", group=group)):
            found = await self._client.group(group)

        def shown(topic: str) -> bool:
            return self._guard.allows(self._caller, self._to("describe", topic, group))

        members = [
            replace(each, assigned=tuple(place for place in each.assigned if shown(place[0])))
            for each in found.members
        ]
        offsets = {topic: each for topic, each in found.offsets.items() if shown(topic)}
        return replace(found, members=tuple(members), offsets=offsets)

    async def delete_group(self, group: str) -> None:
        """Delete a group: ``admin`` on it."""
        with self._guard.begin(self._caller, self._to("admin", group=group)) as operation:
            await operation.carry_out(self._client.delete_group(group))

    async def brokers(self) -> list[int]:
        """List the brokers: ``describe`` on anything in the cluster."""
        with self._guard.begin(self._caller, self._to("describe")):
            return await self._client.brokers()


__all__ = ["GuardedAdmin"]
