"""Groups as a coordinator describes them, in responses to DescribeGroups, ConsumerGroupDescribe and the like.

Somebody's admin client has asked. The response names all members, also those that do not connect through this tap.
"""

from __future__ import annotations

from typing import Any, Final

from pixy.tap.assignments import report_assignment
from pixy.tap.groups import Group, Member, Partition, Path, State, partitions_of
from pixy.tap.member_metadata import CONSUMER, topics_of
from pixy.tap.registry import Registry
from pixy.wire.consumer_protocol import decode_assignment
from pixy.wire.exceptions import WireError

_NOT_FOUND: Final = 69
_DEAD: Final = "Dead"
_STATES: Final = {each.value: each for each in State}
_KINDS: Final = {15: "classic", 69: "consumer", 77: "share", 89: "streams"}
KEYS: Final = frozenset(_KINDS)
"""API keys of DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe."""

Body = dict[str, Any]


class Described:
    """Update groups from descriptions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def described(self, at: float, asked_at: float | None, key: int, body: Body) -> None:
        """Process a response that describes groups.

        Args:
            at: when it passed, in seconds since the epoch.
            asked_at: when its request passed, None if that was not seen.
            key: the API key.
            body: the response.
        """
        for each in body["Groups"]:
            if each["ErrorCode"] == _NOT_FOUND or (key == 15 and each["GroupState"] == _DEAD):
                known = self._registry.groups.get(each["GroupId"])
                # A consumer group is no classic group, and the other way round: only a group of this kind is gone.
                if known is not None and known.kind in {_KINDS[key], "offsets"} and not len(known.members):
                    self._registry.deleted(each["GroupId"], at)
            elif not each["ErrorCode"]:
                self._take(at, key, each)

    def _take(self, at: float, key: int, body: Body) -> None:
        group = self._registry.group(body["GroupId"])
        group.broker_state = (body["GroupState"], at)
        if key == 15:
            if group.kind in {"consumer", "share", "streams"}:
                return
            group.kind = "classic"
            group.protocol_type = body["ProtocolType"] or group.protocol_type
            group.protocol_name = body["ProtocolData"] or group.protocol_name
        else:
            group.claim(_KINDS[key])
            if key == 69:
                group.protocol_name = body["AssignorName"] or None
            group.generation = max(group.generation, body["GroupEpoch"])
        if group.rebalance is None and body["GroupState"] in _STATES:
            group.state = _STATES[body["GroupState"]]
        self._members(at, key, group, body)

    def _members(self, at: float, key: int, group: Group, body: Body) -> None:
        listed = {each["MemberId"] for each in body["Members"]}
        if group.rebalance is None:
            for member in group.alive():
                if member.id not in listed and member.last_seen < at - 1 and member.joined_at < at - 1:
                    self._registry.gone(group, member.id, "not in the coordinator's list", at)
        for each in body["Members"]:
            is_new = each["MemberId"] not in group.members
            member = self._registry.member(group, each["MemberId"])
            if not member.seen_here:
                member.client_id, member.host = each["ClientId"], each["ClientHost"].lstrip("/")
                member.path = Path.DESCRIBED
            instance = each.get("GroupInstanceId") or each.get("InstanceId")
            member.instance_id = instance or member.instance_id
            if is_new:
                self._registry.joined(group, member, at)
            self._assign(at, key, group, member, each)

    def _assign(self, at: float, key: int, group: Group, member: Member, body: Body) -> None:
        found: frozenset[Partition] | None = None
        if key == 15:
            if group.protocol_type == CONSUMER and body["MemberAssignment"]:
                member.subscription = topics_of(body["MemberMetadata"]) or member.subscription
                try:
                    assigned = decode_assignment(body["MemberAssignment"]).body["AssignedPartitions"]
                except WireError:
                    return
                found = partitions_of(assigned, "Topic")
        elif key in {69, 77}:
            member.subscription = tuple(body["SubscribedTopicNames"] or ())
            member.generation = max(member.generation, body["MemberEpoch"])
            found = partitions_of(body["Assignment"]["TopicPartitions"], "TopicId")
            self._registry.topics.learn(
                {"Name": each["TopicName"], "TopicId": each["TopicId"]}
                for each in body["Assignment"]["TopicPartitions"]
            )
        elif key == 89:
            member.generation = max(member.generation, body["MemberEpoch"])
            found = frozenset(
                (each["SubtopologyId"], number)
                for each in body["Assignment"]["ActiveTasks"]
                for number in each["Partitions"]
            )
        # What the member itself was told is newer, or the same.
        if found is not None and (member.partitions is None or not member.seen_here):
            report_assignment(self._registry, group, member, found, at, member.generation)


__all__ = ["KEYS", "Described"]
