"""A model of a group's coordinator: members, generations, cooperative rebalances, commits.

A rebalance takes two steps, as in Kafka: the members join a new generation, then they get their assignments.
A partition that moves is revoked first; its member joins again after it has released it, and only then
another member gets it (KIP-429).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit
from pixy.kafka.errors import error_of
from pixy.wire.types import TopicPartition
from tests.model.log import Kafka

if TYPE_CHECKING:
    from tests.model.session import ModelSession

UNKNOWN_TOPIC, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 3, 16, 22, 25, 27
STEP, HEARTBEAT, METADATA = 0.02, 0.1, 0.1
"""The longest durations in seconds: until members have their assignments, until a member hears of a rebalance or
that it is none, and until members see a change of the metadata."""


class Group:
    """A group's coordinator. It outlives the members' sessions.

    Args:
        kafka: the topics, and the offsets that were committed.
        rng: for the durations.
        name: the group's name.
        forward_only: whether a commit that goes back is a defect of the committer.
    """

    def __init__(
        self, kafka: Kafka, rng: random.Random, name: str = "g", *, forward_only: bool = True
    ) -> None:
        self.kafka, self.committed = kafka, kafka.committed[name]
        self.generation = 0
        self.epochs = itertools.count(1)
        """The numbers of assignments and seeks, of all sessions."""
        self._forward_only = forward_only
        self._rng = rng
        self._members: list[ModelSession] = []
        self._state = "stable"
        self._again = False
        self._seen: set[TopicPartition] = set()
        self._cut: set[ModelSession] = set()
        """Members whose connection to the coordinator is gone, as their next commit may find out."""
        kafka.watchers.append(self._look)

    # -- members ----------------------------------------------------------------------------------

    def join(self, member: ModelSession) -> None:
        """Add a member, or note its new subscription."""
        if member not in self._members:
            self._members.append(member)
        self._rebalance()

    def leave(self, member: ModelSession) -> None:
        """Remove a member, whose partitions are free now."""
        if member in self._members:
            self._members.remove(member)
            self._rebalance()

    def expel(self, member: ModelSession) -> None:
        """Remove a member whose heartbeats did not come. It learns that a while later, and joins anew."""
        if member in self._members:
            self._members.remove(member)
            member.generation = -1
            self._rebalance()
            self._later(HEARTBEAT, member.noticed)

    def released(self) -> None:
        """A member has released what it had to."""
        self._rebalance()

    # -- commits ----------------------------------------------------------------------------------

    def coordinator_dies(self) -> None:
        """Another broker coordinates the group; a commit to the dead one fails."""
        self._cut = set(self._members)

    def cut_off(self, member: ModelSession) -> KafkaError | None:
        """The failure of a whole commit, if it goes to a coordinator that is dead."""
        if member not in self._cut:
            return None
        self._cut.discard(member)
        return None if self._rng.random() < 0.5 else error_of(NOT_COORDINATOR)

    def commit(
        self, member: ModelSession, generation: int, commits: Iterable[Commit]
    ) -> dict[TopicPartition, KafkaError]:
        """Commit offsets; return the errors by partition. The coordinator does not ask who owns a partition."""
        made: Sequence[Commit] = tuple(commits)
        code = 0
        if member not in self._members:
            code = UNKNOWN_MEMBER
        elif generation != self.generation:
            code = ILLEGAL_GENERATION
        elif self._state == "completing":
            code = REBALANCING
        errors = {}
        for each in made:
            partition = (each.topic, each.partition)
            if code or self.kafka.find(partition) is None:
                errors[partition] = error_of(code or UNKNOWN_TOPIC)
                continue
            before = self.committed.get(partition, (0, ""))[0]
            assert each.offset >= before or not self._forward_only, (
                f"{partition} goes back from {before} to {each.offset}"
            )
            self.committed[partition] = (each.offset, each.metadata)
        return errors

    # -- rebalances -------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._existing() != self._seen and self._members:
            self._later(METADATA, self._refreshed)

    def _refreshed(self) -> None:
        """Members see in the metadata what exists: the partitions of a deleted topic are lost, not revoked."""
        exist = self._existing()
        for member in self._members:
            member.lose(sorted(member.holds - exist))
        if exist != self._seen:
            self._rebalance()

    def _existing(self) -> set[TopicPartition]:
        topics = {topic for member in self._members for topic in member.topics}
        return {each for each in self.kafka.partitions() if each[0] in topics}

    def _rebalance(self) -> None:
        if self._state != "stable":
            self._again = True
            return
        if not self._members:
            return
        self._state = "preparing"
        self._later(HEARTBEAT, self._joined)

    def _joined(self) -> None:
        if any(member.revoking for member in self._members):  # it joins once it has released them
            self._state, self._again = "stable", False
            return
        self.generation += 1
        self._state = "completing"
        self._later(STEP, self._synced)

    def _synced(self) -> None:
        self._state = "stable"
        self._seen = self._existing()
        shares = self._shares()
        held = {partition for member in self._members for partition in member.holds}
        for member, share in shares.items():
            member.generation = self.generation
            member.rebalanced(sorted(member.holds - share), sorted(share - held))
        if self._again:
            self._again = False
            self._rebalance()

    def _shares(self) -> dict[ModelSession, set[TopicPartition]]:
        """Share the partitions evenly; each member keeps as many of its own as it may."""
        shares: dict[ModelSession, set[TopicPartition]] = {member: set() for member in self._members}
        free = sorted(self._seen)
        most = -(-len(free) // max(1, len(self._members)))
        for member in self._members:
            kept = sorted(each for each in member.holds if each in self._seen and each[0] in member.topics)
            shares[member].update(kept[-most:])
        taken = {partition for share in shares.values() for partition in share}
        for partition in free:
            if partition not in taken:
                able = [member for member in self._members if partition[0] in member.topics]
                shares[min(able, key=lambda member: len(shares[member]))].add(partition)
        return shares

    def _later(self, most: float, act: object) -> None:
        asyncio.get_running_loop().call_later(self._rng.random() * most, act)  # type: ignore[arg-type]
