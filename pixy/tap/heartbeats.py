"""KIP-848 groups: ConsumerGroupHeartbeat alone. A null means that nothing has changed since the last heartbeat."""

from __future__ import annotations

from typing import Any, Final

from pixy.tap import rebalances
from pixy.tap.groups import Group, Member, Path, State, partitions_of
from pixy.tap.rebalances import Trigger
from pixy.tap.registry import Peer, Registry

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
_FENCED: Final = frozenset({25, 82, 110})
"""UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH: the member has lost its partitions, and joins again."""

Body = dict[str, Any]


class ConsumerGroups:
    """What members of KIP-848 groups say and are told."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answered(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """A heartbeat and its answer."""
        group = self._registry.group(request["GroupId"])
        member_id = body["MemberId"] or request["MemberId"]  # v0 members are told their id
        if body["ErrorCode"] in _FENCED:
            self._registry.gone(group, member_id, "expelled", at)
            self._settle(group, at)
            return
        if body["ErrorCode"]:
            return
        group.kind, group.path, group.protocol_type = "consumer", Path.HEARTBEAT, "consumer"
        if request["MemberEpoch"] < 0:
            self._left(group, at, request, member_id)
            return
        is_new = member_id not in group.members
        member = self._registry.member(group, member_id)
        self._registry.touch(member, peer, at)
        changed = self._take_request(member, request)
        if is_new:
            self._replace_static(group, member, at)
            if request["MemberEpoch"] == JOIN_EPOCH:
                self._begin(group, at, Trigger(rebalances.JOIN, member_id, peer.client_id))
            self._registry.joined(group, member, at)
        elif changed:
            self._begin(group, at, Trigger(rebalances.SUBSCRIPTION, member_id, peer.client_id))
        self._take_answer(group, member, body, at)
        self._settle(group, at)

    def _begin(self, group: Group, at: float, trigger: Trigger) -> None:
        """Each cause is an entry of its own, also while members still follow the one before."""
        if group.rebalance is not None:
            self._registry.finish(group, at)
        self._registry.begin(group, at, trigger)

    def _left(self, group: Group, at: float, request: Body, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if request["MemberEpoch"] == STATIC_LEAVE_EPOCH:
            # It keeps its partitions until it is back, or its session is over.
            member.lost_at = at
            return
        if len(group.members) > 1:
            self._begin(group, at, Trigger(rebalances.LEAVE, member_id, member.client_id))
        self._registry.gone(group, member_id, "left", at)
        self._settle(group, at)

    def _take_request(self, member: Member, request: Body) -> bool:
        """What the member says; whether its subscription has changed since it joined."""
        before = (member.subscription, member.pattern)
        member.path = Path.HEARTBEAT
        member.session_timeout = self._registry.config.session_timeout
        if request["MemberEpoch"] == JOIN_EPOCH:  # a fresh start: everything is said
            member.partitions, member.owned, member.pattern = frozenset(), frozenset(), None
        if request["InstanceId"] is not None:
            member.instance_id = request["InstanceId"]
        if request["RebalanceTimeoutMs"] > 0:
            member.rebalance_timeout = request["RebalanceTimeoutMs"] / 1000
        if request["SubscribedTopicNames"] is not None:
            member.subscription = tuple(request["SubscribedTopicNames"])
        if request.get("SubscribedTopicRegex") is not None:
            member.pattern = request["SubscribedTopicRegex"] or None
        if request["ServerAssignor"] is not None:
            member.assignors = (request["ServerAssignor"],)
        if request["TopicPartitions"] is not None:
            member.owned = partitions_of(request["TopicPartitions"], "TopicId")
        return (
            request["MemberEpoch"] != JOIN_EPOCH
            and bool(any(before))
            and (member.subscription, member.pattern) != before
        )

    def _take_answer(self, group: Group, member: Member, body: Body, at: float) -> None:
        epoch = body["MemberEpoch"]
        if epoch > group.generation:
            group.generation = epoch
            if group.rebalance is None and group.state is State.STABLE:
                self._registry.begin(group, at, self._unseen(group, at)).before = max(member.generation, 0)
        member.generation = epoch
        if body["Assignment"] is not None:
            found = partitions_of(body["Assignment"]["TopicPartitions"], "TopicId")
            if found != member.partitions:
                member.partitions = found
                show = self._registry.topics.show
                named: dict[str, list[int]] = {}
                for topic, partition in found:
                    named.setdefault(show(topic), []).append(partition)
                self._registry.emit(
                    "assignment",
                    at,
                    group=group.id,
                    generation=epoch,
                    member=member.id,
                    client_id=member.client_id,
                    partitions={topic: sorted(named[topic]) for topic in sorted(named)},
                    path=member.path.value,
                )

    def _unseen(self, group: Group, at: float) -> Trigger:
        topics = self._registry.topics
        if any(topics.count(topic) != count for topic, count in group.counts.items()):
            return Trigger(rebalances.METADATA)
        return self._registry.cause(group, at)

    def _replace_static(self, group: Group, member: Member, at: float) -> None:
        if member.instance_id is None:
            return
        for other in group.alive():
            if other.instance_id == member.instance_id and other.id != member.id:
                self._registry.gone(group, other.id, "replaced", at)

    def _settle(self, group: Group, at: float) -> None:
        """At rest when all members are in the same epoch and have confirmed what they were given."""
        members = group.alive()
        settled = all(
            member.generation == group.generation
            and (member.owned is None or member.owned == member.partitions)
            for member in members
            if member.seen_here and member.lost_at is None
        )
        if not settled:
            if group.rebalance is not None:
                group.state = State.RECONCILING
            return
        group.counts = {topic: self._registry.topics.count(topic) for topic in group.subscribed()}
        self._registry.finish(group, at)
