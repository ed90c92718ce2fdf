"""Asks the coordinators of groups who is a member and has which partitions, over our own wire library. Blocking.

librdkafka's admin client (2.16) keeps a group's coordinator after that broker was missing from the metadata, though
nothing connects to it any more: each request for the group waits for it and times out, also when all brokers
are back (issue 5511). And a request that fails before it is sent, as some do while a broker comes back, ends the process:
``rd_kafka_enq_once_del_source_return: Assertion `eonce->refcnt > 0' failed`` (issue 4605, pull request 5397). So
nothing is kept here between two calls: each looks the coordinators up over a connection of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pixy.errors import KafkaError
from pixy.kafka.errors import unsupported
from pixy.kafka.group_offsets import bootstrap, error_of, translated, wire_options
from pixy.kafka.settings import Settings
from pixy.wire.blocking import run
from pixy.wire.cluster import GROUP
from pixy.wire.connection import Broker, Connection, Settings as WireSettings, connect, parse_address
from pixy.wire.consumer_protocol import decode_assignment
from pixy.wire.errors import ErrorCode
from pixy.wire.exceptions import UnsupportedVersionError
from pixy.wire.group import CONSUMER
from pixy.wire.types import TopicPartition

_TIMEOUT: Final = 5.0
"""Seconds for a connection, and for each request: shorter than an election takes to be given up."""
_GROUPS_AT_ONCE: Final = 100
_NOT_THIS_PROTOCOL: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group in Kafka's own protocols, classic or KIP-848."""

    client_id: str
    member_id: str
    assigned: tuple[TopicPartition, ...]


Groups = dict[str, tuple[GroupMember, ...]]


class GroupMembers:
    """Looks groups up. Keeps no connection, so any thread may call.

    Args:
        settings: a client's settings in librdkafka's terms; see :mod:`pixy.kafka.settings`.
        patience: seconds in which further bootstrap brokers are asked after one that did not answer.
    """

    def __init__(self, settings: Settings, patience: float) -> None:
        self._settings = settings
        self._patience = patience

    def describe(self, groups: Sequence[str]) -> Groups:
        """The members of groups; none of a group that does not exist.

        Args:
            groups: their ids.

        Raises:
            KafkaError: a coordinator could not be reached, or refused a group.
        """
        found: Groups = {}
        with translated():
            options = wire_options(self._settings)
            for limit in ("dial_timeout", "request_timeout"):
                options[limit] = min(_TIMEOUT, options[limit])
            made = WireSettings(bootstrap(self._settings), **options)
            for coordinator, theirs in self._coordinators(made, groups).items():
                connection = run(connect(made, coordinator))
                try:
                    for at in range(0, len(theirs), _GROUPS_AT_ONCE):
                        found |= _describe(connection, theirs[at : at + _GROUPS_AT_ONCE])
                finally:
                    connection.close()
        return found

    def _coordinators(self, made: WireSettings, groups: Sequence[str]) -> dict[Broker, list[str]]:
        """The coordinators' groups, asked of the bootstrap brokers in turn, in any order, until one answers."""
        deadline = time.monotonic() + self._patience
        addresses = bootstrap(self._settings)
        random.shuffle(addresses)
        while True:
            try:
                with translated():
                    return _coordinators(made, parse_address(addresses.pop()), groups)
            except KafkaError as error:
                # An answer with an error is the cluster's; the others would say the same.
                if error.code > 0 or not addresses or time.monotonic() >= deadline:
                    raise


def _coordinators(made: WireSettings, broker: Broker, groups: Sequence[str]) -> dict[Broker, list[str]]:
    connection = run(connect(made, broker))
    try:
        found: dict[Broker, list[str]] = {}
        for group in groups:
            answer = run(connection.call("FindCoordinator", {"Key": group, "KeyType": GROUP}))
            if answer["ErrorCode"]:
                raise error_of(answer["ErrorCode"])
            coordinator = Broker(answer["Host"], answer["Port"], answer["NodeId"])
            found.setdefault(coordinator, []).append(group)
        return found
    finally:
        connection.close()


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
