"""Streams groups (KIP-1071), from StreamsGroupHeartbeat. Members own tasks: partitions of subtopologies, not of topics."""

from __future__ import annotations

from typing import Any

from pixy.tap import rebalances
from pixy.tap.assignments import report_assignment
from pixy.tap.groups import Partition, State
from pixy.tap.heartbeats import FENCED, JOIN_EPOCH
from pixy.tap.rebalances import Trigger
from pixy.tap.registry import Peer, Registry

Body = dict[str, Any]


class StreamsGroups:
    """Update Streams groups from their members' heartbeats."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def heartbeat(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a StreamsGroupHeartbeat and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            body: the response.
        """
        group = self._registry.group(request["GroupId"])
        member_id = request["MemberId"]
        if body["ErrorCode"] in FENCED:
            self._registry.gone(group, member_id, "expelled", at)
        if body["ErrorCode"]:
            return
        group.claim("streams")
        if request["MemberEpoch"] < 0:
            member = group.members.get(member_id)
            if member is not None and len(group.members) > 1:
                self._registry.begin(group, at, Trigger(rebalances.LEAVE, member_id, member.client_id))
            self._registry.gone(group, member_id, "left", at)
            return
        if request["MemberEpoch"] != JOIN_EPOCH:
            self._registry.revive(group, member_id, at)
        is_new = member_id not in group.members
        member = self._registry.heard(group, member_id, peer, at)
        member.instance_id = request["InstanceId"] or member.instance_id
        if request["Topology"] is not None:
            member.subscription = tuple(
                sorted(
                    {topic for each in request["Topology"]["Subtopologies"] for topic in each["SourceTopics"]}
                )
            )
        if is_new:
            if request["MemberEpoch"] == JOIN_EPOCH:
                self._registry.begin(group, at, Trigger(rebalances.JOIN, member_id, peer.client_id))
            self._registry.joined(group, member, at)
        group.generation = max(group.generation, body["MemberEpoch"])
        member.generation = body["MemberEpoch"]
        if body["ActiveTasks"] is not None:
            report_assignment(
                self._registry, group, member, _tasks(body["ActiveTasks"]), at, member.generation
            )
        waiting = [body[name] for name in ("StandbyTasks", "WarmupTasks") if body[name] is not None]
        if waiting:
            member.standby = frozenset().union(*map(_tasks, waiting))
        if all(each.generation == group.generation for each in group.alive() if each.seen_here):
            self._registry.finish(group, at)
        else:
            group.state = State.RECONCILING


def _tasks(found: list[Body]) -> frozenset[Partition]:
    return frozenset((each["SubtopologyId"], number) for each in found for number in each["Partitions"])


__all__ = ["StreamsGroups"]
