"""What an operator may do to a running daemon. Nobody's rights are checked here: the admin listener does that.

Each action says what it has done as a document for JSON. It holds for this process alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pixy.engine.consume.group_messages import PausesChanged
from pixy.engine.counters import ClusterCounters
from pixy.engine.inspector import Inspector
from pixy.engine.pauses import Pause, Pauses
from pixy.engine.topic_names import check_topic
from pixy.errors import IllegalState, UnknownCluster
from pixy.kafka.settings import group_id
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Place:
    """A group, or one of its partitions.

    Attributes:
        cluster: the configured name.
        group: the group's name.
        partition: None: the whole group.
    """

    cluster: str
    group: str
    partition: TopicPartition | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        shown: dict[str, Any] = {"cluster": self.cluster, "group": self.group}
        if self.partition is not None:
            shown |= {"topic": self.partition[0], "partition": self.partition[1]}
        return shown


class Operator:
    """The actions.

    Args:
        inspector: finds the actors.
        counters: of the clusters, with what is paused there.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        inspector: Inspector,
        counters: Mapping[str, ClusterCounters],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._inspector = inspector
        self._counters = counters
        self._wall = wall

    async def pause(self, place: Place, by: str) -> dict[str, Any]:
        """Offer no more messages of a group or partition. What clients have stays theirs to acknowledge.

        The group need not be consumed here now: the pause waits for it.

        Args:
            place: what to pause.
            by: who wants it.

        Raises:
            InvalidParameter: there is no such cluster, or there can be no such group or topic.
            TooManyRequests: there are too many pauses.
            Unavailable: the group does not answer; the pause stands.
        """
        pauses = self._pauses(place)
        changed = pauses.add(Pause(place.group, place.partition, by, self._wall()))
        return {"action": "pause", **place.document(), "changed": changed, **await self._tell(place)}

    async def resume(self, place: Place) -> dict[str, Any]:
        """Offer messages of a group or partition again; of a group also those of partitions that were paused one by one.

        Args:
            place: what to resume.

        Raises:
            InvalidParameter: there is no such cluster, or there can be no such group or topic.
            IllegalState: the partition's whole group is paused.
            Unavailable: the group does not answer; it is resumed nevertheless.
        """
        pauses = self._pauses(place)
        if place.partition is not None and pauses.whole(place.group):
            raise IllegalState(
                f"the whole group {place.group} is paused; resume it without topic and partition"
            )
        changed = pauses.remove(place.group, place.partition) > 0
        return {"action": "resume", **place.document(), "changed": changed, **await self._tell(place)}

    def _pauses(self, place: Place) -> Pauses:
        counters = self._counters.get(place.cluster)
        if counters is None:
            raise UnknownCluster(place.cluster)
        group_id(place.group)
        if place.partition is not None:
            check_topic(place.partition[0])
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


__all__ = ["Operator", "Place"]
