"""Asks brokers which groups they coordinate, who is a member and has which partitions. Blocking.

Each call looks the coordinators up again: a group's may have moved, or its broker may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


Groups = dict[str, tuple[GroupMember, ...]]


class GroupMembers:
    """Looks groups up. Any thread may call.

    Args:
        brokers: of the cluster.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def names(self) -> list[str]:
        """The ids of all consumer groups, sorted; those of a broker that does not answer are missing.

        Raises:
            KafkaError: no broker listed a group, and one of them failed.
        """
        names: set[str] = set()
        failed: list[KafkaError] = []

        def done(_broker: Broker, outcome: list[str] | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                failed.append(outcome)
            else:
                names.update(outcome)

        self._brokers.ask_each(dict.fromkeys(self._brokers.topics([]).brokers, _names), done)
        if failed and not names:
            raise failed[0]
        return sorted(names)

    def describe(self, groups: Sequence[str]) -> Groups:
        """The members of groups; none of a group that does not exist.

        Args:
            groups: their ids.

        Raises:
            KafkaError: a coordinator could not be reached, or refused a group.
        """
        found: Groups = {}
        coordinators = self._brokers.ask_any(lambda connection: _coordinators(connection, groups))
        for coordinator, theirs in coordinators.items():
            for at in range(0, len(theirs), _GROUPS_AT_ONCE):
                some = theirs[at : at + _GROUPS_AT_ONCE]
                found |= self._brokers.ask(coordinator, partial(_describe, groups=some))
        return found


def coordinator(brokers: Brokers, group: str) -> Broker:
    """The broker that coordinates a group.

    Args:
        brokers: of the cluster.
        group: its id.

    Raises:
        KafkaError: there is none at present, or no broker answered.
    """
    (found,) = brokers.ask_any(lambda connection: _coordinators(connection, [group]))
    return found


def _names(connection: Connection) -> list[str]:
    try:
        answer = run(connection.call("ListGroups", {}))
    except UnsupportedVersionError:
        raise unsupported("ListGroups") from None
    if answer["ErrorCode"]:
        raise error_of(answer["ErrorCode"])
    return [each["GroupId"] for each in answer["Groups"] if each["ProtocolType"] in _CONSUMERS]


def _coordinators(connection: Connection, groups: Sequence[str]) -> dict[Broker, list[str]]:
    found: dict[Broker, list[str]] = {}
    for group in groups:
        answer = run(connection.call("FindCoordinator", {"Key": group, "KeyType": GROUP}))
        if answer["ErrorCode"]:
            raise error_of(answer["ErrorCode"])
        found.setdefault(Broker(answer["Host"], answer["Port"], answer["NodeId"]), []).append(group)
    return found


def _describe(connection: Connection, groups: Sequence[str]) -> Groups:
    found = _describe_new(connection, groups)
    classic = [each for each in groups if each not in found]
    return {**found, **_describe_classic(connection, classic)} if classic else found


def _describe_new(connection: Connection, groups: Sequence[str]) -> Groups:
    """The groups that use KIP-848."""
    try:
        answer = run(connection.call("ConsumerGroupDescribe", {"GroupIds": list(groups)}))
    except UnsupportedVersionError:
        return {}
    found: Groups = {}
    for group in answer["Groups"]:
        if group["ErrorCode"] in _NOT_THIS_PROTOCOL:
            continue
        if group["ErrorCode"]:
            raise error_of(group["ErrorCode"])
        found[group["GroupId"]] = tuple(
            GroupMember(
                each["ClientId"],
                each["MemberId"],
                tuple(
                    (topic["TopicName"], number)
                    for topic in each["Assignment"]["TopicPartitions"]
                    for number in topic["Partitions"]
                ),
            )
            for each in group["Members"]
        )
    return found


def _describe_classic(connection: Connection, groups: Sequence[str]) -> Groups:
    try:
        answer = run(connection.call("DescribeGroups", {"Groups": list(groups)}))
    except UnsupportedVersionError:
        raise unsupported("DescribeGroups") from None
    found: Groups = {}
    for group in answer["Groups"]:
        if group["ErrorCode"] and group["ErrorCode"] != ErrorCode.GROUP_ID_NOT_FOUND:
            raise error_of(group["ErrorCode"])
        found[group["GroupId"]] = tuple(
            GroupMember(each["ClientId"], each["MemberId"], _assigned(group, each))
            for each in group["Members"]
        )
    return found


def _assigned(group: Mapping[str, Any], member: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
    if group["ProtocolType"] != CONSUMER:
        return ()  # Kafka Connect and others store other bytes
    assigned = decode_assignment(member["MemberAssignment"]).body["AssignedPartitions"]
    return tuple((each["Topic"], number) for each in assigned for number in each["Partitions"])


__all__ = ["GroupMember", "GroupMembers", "Groups"]
