"""What an operator may do to a running daemon. Nobody's rights are checked here: the admin listener does that.

Each action says what it has done as a document for JSON. It holds for this process alone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from actors import ActorRef, ActorSystem
from pixy.engine.client import ClusterClient
from pixy.engine.cluster import Cluster
from pixy.engine.cluster_messages import HoldGroup, LetGroupGo
from pixy.engine.consume.group_messages import Leave, PausesChanged
from pixy.engine.consume.partition_messages import TakeBack
from pixy.engine.counters import ClusterCounters
from pixy.engine.diagnostics import Diagnostics
from pixy.engine.inspector import GroupRef, Inspector
from pixy.engine.pauses import Pause, Pauses
from pixy.engine.restarting import Restartable, RestartWanted
from pixy.engine.topic_names import check_topic
from pixy.errors import IllegalState, InvalidParameter, NotConsumed, UnknownCluster
from pixy.kafka.settings import group_id
from pixy.wire.types import TopicPartition

_LEAVING: Final = 15.0
"""Seconds beyond ``drain_timeout`` for the last commit and the departure of a member."""


@dataclass(frozen=True, slots=True)
class Place:
    """A group, one of its topics, or one of its partitions.

    Attributes:
        cluster: the configured name.
        group: the group's name.
        topic: empty: the whole group.
        partition: None: the whole group or topic.
    """

    cluster: str
    group: str
    topic: str = ""
    partition: int | None = None

    @property
    def at(self) -> TopicPartition | None:
        """The partition, if it is one."""
        return None if self.partition is None else (self.topic, self.partition)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        shown: dict[str, Any] = {"cluster": self.cluster, "group": self.group}
        if self.topic:
            shown["topic"] = self.topic
        if self.partition is not None:
            shown["partition"] = self.partition
        return shown

    def __str__(self) -> str:
        part = "" if self.partition is None else f"/{self.partition}"
        return f"group {self.group}" + (f" in {self.topic}{part}" if self.topic else "")


class Operator:
    """The actions. All raise InvalidParameter for a cluster that there is not, and names that Kafka cannot have.

    Args:
        inspector: finds the actors.
        counters: of the clusters, with what is paused there.
        clients: of the clusters.
        system: all actors.
        diagnostics: has the sampler.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        inspector: Inspector,
        counters: Mapping[str, ClusterCounters],
        clients: Mapping[str, ClusterClient],
        system: ActorSystem,
        diagnostics: Diagnostics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._inspector = inspector
        self._counters = counters
        self._clients = clients
        self._system = system
        self._diagnostics = diagnostics
        self._wall = wall

    async def pause(self, place: Place, by: str) -> dict[str, Any]:
        """Offer no more messages of a group or partition. What clients have stays theirs to acknowledge.

        The group need not be consumed here now: the pause waits for it.

        Args:
            place: what to pause.
            by: who wants it.

        Raises:
            TooManyRequests: there are too many pauses.
            Unavailable: the group does not answer; the pause stands.
        """
        pauses = self._pauses(place)
        changed = pauses.add(Pause(place.group, place.at, by, self._wall()))
        return {"action": "pause", **place.document(), "changed": changed, **await self._tell(place)}

    async def resume(self, place: Place) -> dict[str, Any]:
        """Offer messages of a group or partition again; of a group also those of partitions that were paused one by one.

        Args:
            place: what to resume.

        Raises:
            IllegalState: the partition's whole group is paused.
            Unavailable: the group does not answer; it is resumed nevertheless.
        """
        pauses = self._pauses(place)
        if place.at is not None and pauses.whole(place.group):
            raise IllegalState(
                f"the whole group {place.group} is paused; resume it without topic and partition"
            )
        changed = pauses.remove(place.group, place.at) > 0
        return {"action": "resume", **place.document(), "changed": changed, **await self._tell(place)}

    def _pauses(self, place: Place) -> Pauses:
        _check(place)
        counters = self._counters.get(place.cluster)
        if counters is None:
            raise UnknownCluster(place.cluster)
        return counters.pauses

    async def _tell(self, place: Place) -> dict[str, Any]:
        """Have the group do what its pauses say. Once this returns, no owner of a paused partition makes an offer."""
        paused: list[str] = []
        unacked = 0
        refs = await self._inspector.group_refs(place.cluster, place.group)
        for ref in refs:
            partitions = await self._inspector.ask(ref, PausesChanged())
            # The owners answer after the requests that the group had handed to them.
            found = await self._inspector.offers(ref, partitions)
            paused += [f"{topic}/{number}" for topic, number in partitions]
            unacked += sum(each.total for each in found.values())
        return {"consumed_here": bool(refs), "paused": paused, "unacked": unacked}

    async def give_back(self, place: Place, offset: int) -> dict[str, Any]:
        """Take a message from the client that has it: the next request gets it. An ack of that client still counts.

        Args:
            place: the partition.
            offset: of the message.

        Raises:
            NotConsumed: the partition is not assigned to this daemon.
            IllegalState: no client has the message.
            Unavailable: the group does not answer.
        """
        assert place.partition is not None
        error: NotConsumed | None = None
        for ref in await self._members(place):
            try:
                attempts = await self._inspector.ask(ref, TakeBack(place.topic, place.partition, offset))
            except NotConsumed as problem:
                error = problem
                continue
            return {"action": "give-back", **place.document(), "offset": offset, "attempts": attempts}
        raise error or NotConsumed(place.group, place.topic, place.partition)

    async def drain(self, place: Place) -> dict[str, Any]:
        """Have this daemon's member of a group leave: acks that come in time are committed, and other members get its partitions.

        The next request for the group has it join again.

        Args:
            place: the group.

        Raises:
            IllegalState: this daemon does not consume for it.
            Unavailable: the group takes too long; it goes on leaving.
        """
        members = await self._leave(place)
        if not members:
            raise IllegalState(f"this daemon does not consume for group {place.group}")
        return {"action": "drain", **place.document(), "members": members}

    async def reset(self, place: Place, time_ms: int) -> dict[str, Any]:
        """Set the offsets of a group in all partitions of a topic by a time. This daemon's member leaves for that, and its requests wait.

        Args:
            place: the group and the topic.
            time_ms: milliseconds since 1970: the first message that is not older comes next, or the end; -1: the end; -2: the beginning.

        Raises:
            UnknownTopic: there is no such topic.
            GroupActive: the group has other members.
            IllegalState: another reset of the group is under way.
            Unavailable: the member takes too long to leave; it goes on leaving.
        """
        _check(place)
        client = self._client(place)
        found = await client.admin.find_offsets(place.topic, time_ms)
        offsets = tuple((partition, offset, "") for partition, offset in sorted(found.offsets.items()))
        async with self._held(place):
            await self._leave(place)
            await client.set_offsets(place.topic, place.group, offsets)
        shown = {str(partition): offset for partition, offset, _ in offsets}
        return {"action": "reset", **place.document(), "time": time_ms, "offsets": shown}

    @asynccontextmanager
    async def _held(self, place: Place) -> AsyncIterator[None]:
        """Let the group's requests wait for an ``async with`` block, so that it stays away once it has left."""
        held: list[ActorRef[Cluster]] = []
        try:
            for cluster in self._inspector.actors(place.cluster):
                held.append(cluster)
                if not await self._inspector.ask(cluster, HoldGroup(place.group)):
                    held.pop()
                    raise IllegalState(f"the offsets of group {place.group} are being reset already")
            yield
        finally:
            for cluster in held:
                cluster.notify(LetGroupGo(place.group), urgent=True)

    async def _leave(self, place: Place) -> int:
        """Have the group's members here leave; return how many there were."""
        refs = await self._members(place)
        patience = self._client(place).proxy.consumer.drain_timeout + _LEAVING
        for ref in refs:
            await self._inspector.ask(ref, Leave(stopping=False), patience)
        return len(refs)

    def restart(self, path: str, by: str) -> dict[str, Any]:
        """Have an actor fail, so that supervision restarts it: it begins again where its kind does after any failure.

        Args:
            path: of the actor.
            by: who wants it.

        Raises:
            InvalidParameter: there is no such actor.
            IllegalState: actors of its kind are not restarted one by one, or it ends just now.
        """
        ref = self._system.lookup(path)
        if ref is None:
            raise InvalidParameter("there is no such actor; GET /debug/actors lists them")
        if not issubclass(ref.actor_class, Restartable):
            raise IllegalState(
                f"{ref.path} is a {ref.actor_class.__name__}: only groups, owners of partitions, producers of topics, admin and "
                "fetcher can be restarted"
            )
        if not ref.notify(RestartWanted(by), urgent=True):
            raise IllegalState(f"{ref.path} has just ended")
        return {"action": "restart", "path": ref.path, "restarts": ref.statistics().restarts}

    def restartable(self, path: str) -> bool:
        """Whether there is an actor at a path, and :meth:`restart` restarts its kind."""
        ref = self._system.lookup(path)
        return ref is not None and issubclass(ref.actor_class, Restartable)

    @property
    def sampling(self) -> bool:
        """Whether the sampler runs."""
        return self._diagnostics.sampling

    def sample(self, on: bool) -> dict[str, Any]:
        """Switch the sampler on or off, which finds the code that blocks the event loop.

        Args:
            on: whether it is to run.
        """
        return {"action": "sampler", "changed": self._diagnostics.sample(on), "on": on}

    async def _members(self, place: Place) -> list[GroupRef]:
        _check(place)
        return await self._inspector.group_refs(place.cluster, place.group)

    def _client(self, place: Place) -> ClusterClient:
        client = self._clients.get(place.cluster)
        if client is None:
            raise UnknownCluster(place.cluster)
        return client


def _check(place: Place) -> None:
    group_id(place.group)
    if place.topic:
        check_topic(place.topic)


__all__ = ["Operator", "Place"]
