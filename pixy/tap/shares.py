"""Share groups (KIP-932): ShareGroupHeartbeat, ShareFetch, ShareAcknowledge.

Members share partitions; a record is acquired by one member at a time, which accepts, releases or rejects it. A member that
does neither within the lock's time loses the record, and the broker hands it out again: nothing on the wire says so, but its
delivery count does.
"""

from __future__ import annotations

from typing import Any, Final

from pixy.tap.assignments import report_assignment
from pixy.tap.groups import Group, Member, State, partitions_of
from pixy.tap.heartbeats import FENCED, JOIN_EPOCH, LEAVE_EPOCH
from pixy.tap.registry import Peer, Registry
from pixy.tap.share_decoders import ShareSummary

_ACKNOWLEDGED: Final = {0: "gaps", 1: "accepted", 2: "released", 3: "rejected", 4: "renewed"}
"""Acknowledgement types; 4 is of Kafka 4.2 and later."""

Body = dict[str, Any]


class ShareGroups:
    """Update share groups from their members' requests and responses."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def heartbeat(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process a ShareGroupHeartbeat and its response.

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
        group.claim("share")
        if request["MemberEpoch"] == LEAVE_EPOCH:
            self._registry.gone(group, member_id, "left", at)
            return
        if request["MemberEpoch"] != JOIN_EPOCH:
            self._registry.revive(group, member_id, at)
        is_new = member_id not in group.members
        member = self._seen(group, member_id, peer, at)
        if request["SubscribedTopicNames"] is not None:
            member.subscription = tuple(request["SubscribedTopicNames"])
        member.generation = body["MemberEpoch"]
        group.generation = max(group.generation, body["MemberEpoch"])
        if is_new:
            self._registry.joined(group, member, at)
        if body["Assignment"] is not None:
            found = partitions_of(body["Assignment"]["TopicPartitions"], "TopicId")
            report_assignment(self._registry, group, member, found, at, member.generation)
        group.state = State.STABLE

    def answered(self, at: float, peer: Peer, request: Body, summary: ShareSummary) -> None:
        """Process a ShareFetch or ShareAcknowledge request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request.
            summary: the response.
        """
        if not request.get("GroupId") or not request.get("MemberId") or summary.error:
            return
        group = self._registry.group(request["GroupId"])
        group.claim("share")
        member = self._seen(group, request["MemberId"], peer, at)
        refused = set(summary.refused)
        for topic in request["Topics"]:
            for partition in topic["Partitions"]:
                if (topic["TopicId"], partition["PartitionIndex"]) not in refused:
                    _count(member, partition["AcknowledgementBatches"])
        for each in summary.acquired:
            member.acquired += each.records
            member.redelivered += each.redelivered

    def _seen(self, group: Group, member_id: str, peer: Peer, at: float) -> Member:
        member = self._registry.heard(group, member_id, peer, at)
        member.joined_at = member.joined_at or at
        return member


def _count(member: Member, batches: list[Body]) -> None:
    """Count acknowledged records: a batch has one type for all of its offsets, or one for each."""
    for batch in batches:
        types = batch["AcknowledgeTypes"]
        records = batch["LastOffset"] - batch["FirstOffset"] + 1
        counted = [(types[0], records)] if len(types) == 1 else [(each, 1) for each in types]
        for each, number in counted:
            name = _ACKNOWLEDGED.get(each, "unknown")
            member.acknowledged[name] = member.acknowledged.get(name, 0) + max(0, number)


__all__ = ["ShareGroups"]
