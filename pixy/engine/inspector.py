"""Looks into the running engine: asks clusters, groups and owners what they have, by messages.

Every question has a deadline, and an actor that is gone, or does not answer in time, is left out of the answer: the
console of a daemon that hangs is the one that is needed most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from actors import ActorDeadError, ActorError, ActorRef, Request
from pixy.engine.admin_messages import PartitionOffset
from pixy.engine.client import ClusterClient
from pixy.engine.cluster import Cluster
from pixy.engine.cluster_messages import ClusterView, GroupRefs, ViewCluster
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.views import (
    GroupView,
    MessageView,
    OffersView,
    ViewGroup,
    ViewMessage,
    ViewPartition,
)
from pixy.errors import NotConsumed, PixyError, Unavailable, UnknownCluster, UnknownGroup
from pixy.kafka.topics import PartitionInfo

T = TypeVar("T")
K = TypeVar("K")

PATIENCE: Final = 1.0
"""Seconds that an actor has to describe itself; an idle one takes less than a millisecond."""
KAFKA_PATIENCE: Final = 5.0
"""Seconds that Kafka has to answer."""
AT_ONCE: Final = 64
"""Actors that are asked before the first answers are awaited: they are bounded, and the loop does other things in between."""

GroupRef = ActorRef[GroupConsumer]


class Inspector:
    """Describes clusters, groups and partitions. Nobody's rights are checked here.

    Args:
        clusters: the actors, by the names of the clusters.
        clients: the same for requests to Kafka.
        identities: returns the actors of a cluster's Kafka identities that are in use.
    """

    def __init__(
        self,
        clusters: Mapping[str, ActorRef[Cluster]],
        clients: Mapping[str, ClusterClient],
        identities: Callable[[str], Iterable[ActorRef[Cluster]]] = lambda _cluster: (),
    ) -> None:
        self._clusters = clusters
        self._clients = clients
        self._identities = identities

    def clusters(self) -> list[str]:
        """Return the names of the clusters."""
        return list(self._clients)

    async def cluster(self, name: str) -> ClusterView:
        """Describe a cluster.

        Raises:
            Unavailable: its actor does not answer.
        """
        return await _answer(self._cluster(name).ask(ViewCluster(), block=False, urgent=True))

    async def groups(self, cluster: str) -> dict[str, GroupRef]:
        """Return the groups that this daemon consumes for.

        Raises:
            Unavailable: the cluster's actor does not answer.
        """
        return await _answer(self._cluster(cluster).ask(GroupRefs(), block=False, urgent=True))

    async def group_refs(self, cluster: str, group: str) -> list[GroupRef]:
        """Return the actors that consume for a group: the daemon's own, and those of Kafka identities.

        Raises:
            Unavailable: an actor does not answer.
        """
        found = [await self.ask(each, GroupRefs()) for each in self.actors(cluster)]
        return [refs[group] for refs in found if group in refs]

    def actors(self, cluster: str) -> list[ActorRef[Cluster]]:
        """Return a cluster's actor, and those of its Kafka identities."""
        return [self._cluster(cluster), *self._identities(cluster)]

    async def ask(self, ref: ActorRef[Any], request: Request[T], patience: float = PATIENCE) -> T:
        """Ask any actor something.

        Raises:
            Unavailable: it does not answer.
            PixyError: its answer.
        """
        return await _answer(ref.ask(request, block=False, urgent=True), patience)

    async def views(self, refs: Mapping[str, GroupRef]) -> dict[str, GroupView]:
        """Describe groups, by name; those that do not answer are missing."""
        wanted = list(refs.items())
        found: dict[str, GroupView] = {}
        for at in range(0, len(wanted), AT_ONCE):
            part = wanted[at : at + AT_ONCE]
            found |= await _gather(
                {name: ref.ask(ViewGroup(), block=False, urgent=True) for name, ref in part}
            )
        return found

    async def group(self, cluster: str, group: str) -> tuple[GroupRef, GroupView]:
        """Describe one group.

        Raises:
            NotConsumed: this daemon does not consume for it.
            Unavailable: it does not answer.
        """
        ref = (await self.groups(cluster)).get(group)
        if ref is None:
            raise NotConsumed(group, "", -1)
        return ref, await _answer(ref.ask(ViewGroup(), block=False, urgent=True))

    async def offers(
        self, ref: GroupRef, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], OffersView]:
        """Sum up the un-acked messages of partitions of a group; those that do not answer are missing."""
        wanted = list(partitions)
        found: dict[tuple[str, int], OffersView] = {}
        for at in range(0, len(wanted), AT_ONCE):
            part = wanted[at : at + AT_ONCE]
            found |= await _gather(
                {each: ref.ask(ViewPartition(*each, limit=0), block=False, urgent=True) for each in part}
            )
        return found

    async def page(self, ref: GroupRef, query: ViewPartition) -> OffersView:
        """List un-acked messages of one partition.

        Raises:
            NotConsumed: it is not assigned to this daemon.
            Unavailable: its owner does not answer.
        """
        return await _answer(ref.ask(query, block=False, urgent=True))

    async def messages(
        self, refs: Mapping[str, GroupRef], topic: str, partition: int, offset: int
    ) -> dict[str, MessageView]:
        """Ask groups for one message, by name; those that do not own its partition, or do not answer, are missing."""
        wanted, query = list(refs.items()), ViewMessage(topic, partition, offset)
        found: dict[str, MessageView] = {}
        for at in range(0, len(wanted), AT_ONCE):
            part = wanted[at : at + AT_ONCE]
            found |= await _gather({name: ref.ask(query, block=False, urgent=True) for name, ref in part})
        return found

    async def offsets(self, cluster: str, topic: str, group: str) -> list[PartitionOffset]:
        """Ask Kafka for a group's offsets. Raises PixyError."""
        return await _answer(self._client(cluster).get_offsets(topic, group), KAFKA_PATIENCE)

    async def group_names(self, cluster: str) -> list[str]:
        """Ask Kafka for its consumer groups. Raises PixyError."""
        return [each.name for each in await _answer(self._client(cluster).admin.groups(), KAFKA_PATIENCE)]

    async def bounds(self, cluster: str, topic: str, partition: int) -> tuple[int, int]:
        """Ask Kafka for the oldest offset of a partition and the next one to be written. Raises PixyError."""
        return await _answer(self._client(cluster).bounds(topic, partition), KAFKA_PATIENCE)

    async def at_time(self, cluster: str, topic: str, time: int) -> dict[int, int]:
        """Ask Kafka for the offset at a time in each partition.

        Args:
            cluster: its name.
            topic: of the partitions.
            time: milliseconds since 1970; -1 for the ends, -2 for the beginnings.

        Raises:
            PixyError: no answer, or there is no such topic.
        """
        found = await _answer(self._client(cluster).admin.find_offsets(topic, time), KAFKA_PATIENCE)
        return found.offsets

    async def partitions(self, cluster: str, topic: str) -> tuple[PartitionInfo, ...]:
        """Ask Kafka for a topic's partitions. Raises PixyError."""
        found = await _answer(self._client(cluster).topic(topic, with_partitions=True), KAFKA_PATIENCE)
        return found.partitions or ()

    async def members(self, cluster: str, topic: str, group: str) -> dict[str, list[int]]:
        """Ask Kafka which member of a group owns which partitions of a topic, wherever it is. Raises PixyError."""
        try:
            found = await _answer(self._client(cluster).consumers(topic, group), KAFKA_PATIENCE)
        except UnknownGroup:
            return {}
        return {name: list(owned) for members in found.values() for name, owned in members.items()}

    async def owned(self, cluster: str, topic: str, group: str) -> set[int]:
        """Ask Kafka which partitions of a topic the members of a group own, wherever they are. Raises PixyError."""
        found = await self.members(cluster, topic, group)
        return {number for owned in found.values() for number in owned}

    async def brokers(self, cluster: str) -> list[int]:
        """Ask Kafka for its brokers, once. Raises PixyError."""
        return await _answer(self._client(cluster).brokers(once=True), KAFKA_PATIENCE)

    def _cluster(self, name: str) -> ActorRef[Cluster]:
        found = self._clusters.get(name)
        if found is None:
            raise UnknownCluster(name)
        return found

    def _client(self, name: str) -> ClusterClient:
        found = self._clients.get(name)
        if found is None:
            raise UnknownCluster(name)
        return found


async def _answer(asked: Awaitable[T], patience: float = PATIENCE) -> T:
    try:
        async with asyncio.timeout(patience):
            return await asked
    except TimeoutError:
        raise Unavailable(f"no answer within {patience:g} s") from None
    except (ActorError, ActorDeadError) as error:
        raise Unavailable(str(error)) from error


async def _gather(asked: Mapping[K, Awaitable[T]]) -> dict[K, T]:
    """Wait for answers; those that do not come in time, or are errors, are left out."""
    found: dict[K, T] = {}
    until = asyncio.get_running_loop().time() + PATIENCE
    for name, answer in asked.items():
        try:
            async with asyncio.timeout_at(until):
                found[name] = await answer
        except (TimeoutError, ActorError, ActorDeadError, PixyError):
            continue
    return found


__all__ = ["GroupRef", "Inspector"]
