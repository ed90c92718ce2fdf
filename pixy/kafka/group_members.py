"""Asks brokers which groups they coordinate, who is a member and has which partitions. Blocking.

Each call looks the coordinators up again: a group's may have moved, or its broker may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pixy.errors import KafkaError
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import error_of, unsupported
from pixy.wire.blocking import run
from pixy.wire.cluster import GROUP
from pixy.wire.connection import Broker, Connection
from pixy.wire.consumer_protocol import decode_assignment
from pixy.wire.errors import ErrorCode
from pixy.wire.exceptions import UnsupportedVersionError
from pixy.wire.group import CONSUMER
from pixy.wire.types import TopicPartition

DEAD: Final = "Dead"
"""The state of a group that does not exist."""
EMPTY: Final = "Empty"
"""The state of a group without members."""
_GROUPS_AT_ONCE: Final = 100
_NOT_THIS_PROTOCOL: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_CONSUMERS: Final = frozenset({CONSUMER, ""})
"""The protocol types of consumer groups; one that only commits has none."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group in Kafka's own protocols, classic or KIP-848."""

    client_id: str
    member_id: str
    assigned: tuple[TopicPartition, ...]
    host: str = field(default="", compare=False)
    epoch: int = field(default=0, compare=False)
    """With KIP-848, the epoch of the assignment that the member has taken over."""


Groups = dict[str, tuple[GroupMember, ...]]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a broker's list; an old broker leaves state and type empty."""

    name: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as its coordinator knows it; ``Dead`` is the state of one that does not exist."""

    state: str
    members: tuple[GroupMember, ...]
    epoch: int = field(default=0, compare=False)
    """With KIP-848, the epoch of the assignment that its members should have."""
    consumers: bool = field(default=True, compare=False)
    """True if its members, if it has any, are consumers, and not those of Kafka Connect or another program."""

    def behind(self, member_id: str) -> int | None:
        """Return the epoch of a member that has not taken over the group's assignment; None if it has."""
        epochs = (each.epoch for each in self.members if each.member_id == member_id)
        return next((epoch for epoch in epochs if epoch < self.epoch), None)


_Described = dict[str, DescribedGroup]


class GroupMembers:
    """Looks groups up. Any thread may call.

    Args:
        brokers: of the cluster.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def names(self) -> list[str]:
        """Return the ids of all consumer groups, sorted; see :meth:`listed`."""
        return [each.name for each in self.listed()]

    def listed(self) -> list[ListedGroup]:
        """Return all consumer groups, sorted by name.

        Raises:
            KafkaError: a broker did not answer, or refused, so its groups are not known.
        """
        found: dict[str, ListedGroup] = {}
        failed: list[KafkaError] = []

        def done(broker: Broker, outcome: list[ListedGroup] | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                failed.append(outcome.wrapped(f"failed to list the groups of broker {broker.node_id}"))
            else:
                found.update({each.name: each for each in outcome})

        self._brokers.ask_each(dict.fromkeys(self._brokers.topics([]).brokers, _listed), done)
        if failed:
            raise failed[0]
        return [found[name] for name in sorted(found)]

    def describe(self, groups: Sequence[str]) -> Groups:
        """Return the members of groups; none of a group that does not exist.

        Args:
            groups: their ids.

        Raises:
            KafkaError: a coordinator could not be reached, or refused a group.
        """
        return {group: each.members for group, each in self.described(groups).items()}

    def described(self, groups: Sequence[str]) -> dict[str, DescribedGroup]:
        """Return the state and the members of groups. Arguments and errors as in :meth:`describe`."""
        found: _Described = {}
        coordinators = self._brokers.ask_any(lambda connection: _coordinators(connection, groups))
        for coordinator, theirs in coordinators.items():
            for at in range(0, len(theirs), _GROUPS_AT_ONCE):
                some = theirs[at : at + _GROUPS_AT_ONCE]
                found |= self._brokers.ask(coordinator, partial(_describe, groups=some))
        return found


def coordinator(brokers: Brokers, group: str) -> Broker:
    """Return the broker that coordinates a group.

    Args:
        brokers: of the cluster.
        group: its id.

    Raises:
        KafkaError: there is none at present, or no broker answered.
    """
    (found,) = brokers.ask_any(lambda connection: _coordinators(connection, [group]))
    return found


def _listed(connection: Connection) -> list[ListedGroup]:
    try:
        answer = run(connection.call("ListGroups", {}))
    except UnsupportedVersionError:
        raise unsupported("ListGroups") from None
    if answer["ErrorCode"]:
        raise error_of(answer["ErrorCode"])
    return [
        ListedGroup(each["GroupId"], each.get("GroupState", ""), each.get("GroupType", "").lower())
        for each in answer["Groups"]
        if each["ProtocolType"] in _CONSUMERS
    ]


def _coordinators(connection: Connection, groups: Sequence[str]) -> dict[Broker, list[str]]:
    found: dict[Broker, list[str]] = {}
    for group in groups:
        answer = run(connection.call("FindCoordinator", {"Key": group, "KeyType": GROUP}))
        if answer["ErrorCode"]:
            raise error_of(answer["ErrorCode"])
        found.setdefault(Broker(answer["Host"], answer["Port"], answer["NodeId"]), []).append(group)
    return found


def _describe(connection: Connection, groups: Sequence[str]) -> _Described:
    found = _describe_new(connection, groups)
    classic = [each for each in groups if each not in found]
    return {**found, **_describe_classic(connection, classic)} if classic else found


def _describe_new(connection: Connection, groups: Sequence[str]) -> _Described:
    """Describe the groups that use KIP-848."""
    try:
        answer = run(connection.call("ConsumerGroupDescribe", {"GroupIds": list(groups)}))
    except UnsupportedVersionError:
        return {}
    found: _Described = {}
    for group in answer["Groups"]:
        if group["ErrorCode"] in _NOT_THIS_PROTOCOL:
            continue
        if group["ErrorCode"]:
            raise error_of(group["ErrorCode"])
        members = (
            GroupMember(
                each["ClientId"],
                each["MemberId"],
                tuple(
                    (topic["TopicName"], number)
                    for topic in each["Assignment"]["TopicPartitions"]
                    for number in topic["Partitions"]
                ),
                each["ClientHost"],
                each["MemberEpoch"],
            )
            for each in group["Members"]
        )
        found[group["GroupId"]] = DescribedGroup(
            group["GroupState"], tuple(members), group["AssignmentEpoch"]
        )
    return found


def _describe_classic(connection: Connection, groups: Sequence[str]) -> _Described:
    try:
        answer = run(connection.call("DescribeGroups", {"Groups": list(groups)}))
    except UnsupportedVersionError:
        raise unsupported("DescribeGroups") from None
    found: _Described = {}
    for group in answer["Groups"]:
        if group["ErrorCode"] and group["ErrorCode"] != ErrorCode.GROUP_ID_NOT_FOUND:
            raise error_of(group["ErrorCode"])
        members = (
            GroupMember(each["ClientId"], each["MemberId"], _assigned(group, each), each["ClientHost"])
            for each in group["Members"]
        )
        state = DEAD if group["ErrorCode"] else group["GroupState"]
        consumers = group["ProtocolType"] in _CONSUMERS
        found[group["GroupId"]] = DescribedGroup(state, tuple(members), consumers=consumers)
    return found


def _assigned(group: Mapping[str, Any], member: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
    if group["ProtocolType"] != CONSUMER:
        return ()  # Kafka Connect and others store other bytes
    assigned = decode_assignment(member["MemberAssignment"]).body["AssignedPartitions"]
    return tuple((each["Topic"], number) for each in assigned for number in each["Partitions"])


__all__ = ["DEAD", "EMPTY", "DescribedGroup", "GroupMember", "GroupMembers", "Groups", "ListedGroup"]
