"""KIP-848 groups, from ConsumerGroupHeartbeat alone. A null field means "unchanged since the last heartbeat".

The coordinator calls a group Stable once each member is in the group's epoch and has been given all that is meant for it.
The second half does not show in a heartbeat. But the coordinator gives a free partition to its new owner in the owner's next
heartbeat. So the tap waits for those partitions that a member had to give up (``awaited``), and no longer than until
each member has sent two heartbeats in which nothing changed.
"""

from __future__ import annotations

from typing import Any, Final

from pixy.tap import rebalances
from pixy.tap.assignments import report_assignment
from pixy.tap.groups import Group, Member, State, partitions_of
from pixy.tap.rebalances import Trigger
from pixy.tap.registry import Peer, Registry

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
_QUIET_BEATS: Final = 2
FENCED: Final = frozenset({25, 82, 110})
"""UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH: the member loses its partitions and joins again."""

Body = dict[str, Any]


class ConsumerGroups:
    """Update KIP-848 groups from their members' heartbeats."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def heartbeat(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a heartbeat and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            body: the response.
        """
        group = self._registry.group(request["GroupId"])
        member_id = body["MemberId"] or request["MemberId"]  # in v0 the coordinator chooses the id
        if body["ErrorCode"] in FENCED:
            if self._registry.gone(group, member_id, "expelled", at) is not None:
                self._expect_epoch(group)
            self._settle(group, at)
            return
        if body["ErrorCode"]:
            return
        if group.kind != "consumer":  # a classic group that migrates has no assignor and no leader any more
            group.protocol_name, group.leader = None, ""
            group.expected.clear()
        group.claim("consumer")
        if request["MemberEpoch"] < 0:
            self._left(group, at, request, member_id)
            return
        if request["MemberEpoch"] != JOIN_EPOCH:
            self._registry.revive(group, member_id, at)
        is_new = member_id not in group.members
        member = self._registry.heard(group, member_id, peer, at)
        member.beats += 1
        changed = self._apply_request(member, request)
        if is_new:
            self._replace_static(group, member, at)
            if request["MemberEpoch"] == JOIN_EPOCH:
                self._begin(group, at, Trigger(rebalances.JOIN, member_id, peer.client_id))
            self._registry.joined(group, member, at)
        elif changed:
            self._begin(group, at, Trigger(rebalances.SUBSCRIPTION, member_id, peer.client_id))
        self._apply_response(group, member, body, at)
        self._settle(group, at)

    def _begin(self, group: Group, at: float, trigger: Trigger) -> None:
        """Begin a rebalance for each cause, even while members still follow the previous one."""
        if group.rebalance is not None:
            self._registry.finish(group, at)
        self._registry.begin(group, at, trigger)

    def _left(self, group: Group, at: float, request: Body, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if request["MemberEpoch"] == STATIC_LEAVE_EPOCH:
            # The member keeps its partitions until it returns or its session times out.
            member.disconnected_at = at
            return
        if len(group.members) > 1:
            self._begin(group, at, Trigger(rebalances.LEAVE, member_id, member.client_id))
        self._registry.gone(group, member_id, "left", at)
        self._expect_epoch(group)
        self._settle(group, at)

    def _expect_epoch(self, group: Group) -> None:
        """Wait for the epoch that the coordinator begins when a member has gone: its response does not tell it."""
        group.epoch_due = len(group.members) > 0
        group.stir()

    def _apply_request(self, member: Member, request: Body) -> bool:
        """Apply a member's request; return whether its subscription has changed since it joined."""
        before = (member.subscription, member.pattern)
        if request["MemberEpoch"] == JOIN_EPOCH:  # a joining member sends everything
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

    def _apply_response(self, group: Group, member: Member, body: Body, at: float) -> None:
        epoch = body["MemberEpoch"]
        if epoch > group.generation:
            group.generation, group.epoch_due = epoch, False
            group.stir()
            if group.rebalance is None and group.state is State.STABLE:
                self._registry.begin(group, at, self._unseen_cause(group, at)).before = max(
                    member.generation, 0
                )
        member.generation = epoch
        if body["Assignment"] is not None:
            found = partitions_of(body["Assignment"]["TopicPartitions"], "TopicId")
            if found != member.partitions:
                given_up = (member.partitions or frozenset()) - found
                group.awaited |= given_up
                group.awaited -= found
                if given_up:
                    group.stir()
                report_assignment(self._registry, group, member, found, at, member.generation)

    def _unseen_cause(self, group: Group, at: float) -> Trigger:
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
        """Finish the rebalance once the coordinator calls the group Stable."""
        members = [each for each in group.alive() if each.seen_here and each.disconnected_at is None]
        if members and all(each.beats >= _QUIET_BEATS for each in members):
            group.awaited.clear()
            group.epoch_due = False
        held = {partition for each in members for partition in each.partitions or ()}
        group.awaited -= held
        if group.epoch_due or group.awaited or any(each.generation != group.generation for each in members):
            if len(group.members):
                group.state = State.RECONCILING
            return
        group.counts = {topic: self._registry.topics.count(topic) for topic in group.subscribed()}
        self._registry.finish(group, at)
