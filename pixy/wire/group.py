"""Calls of a member of a classic consumer group to its coordinator, as generators of steps (:mod:`pixy.wire.steps`).

As with partitions: one connection, one request at a time, no retries, and error codes are part of the results.
Response bodies have the field names of Kafka's schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Unpack

from pixy.wire import cluster
from pixy.wire.cluster import Link, call
from pixy.wire.connection import Bootstrap, Broker, Options, Settings, Steps
from pixy.wire.types import TopicPartition

_JOIN_GRACE: Final = 5.0
"""Seconds that the answer to JoinGroup may take beyond the rebalance timeout."""
_COMMITS_EPOCHS: Final = 6
"""The version of OffsetCommit that has leader epochs."""
CONSUMER: Final = "consumer"
"""The protocol type of consumers."""


class Member(NamedTuple):
    """A member's identity, as JoinGroup answered it."""

    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None


NOBODY: Final = Member()
"""The identity for joining the first time, and for committing without being a member."""


class GroupOffset(NamedTuple):
    """A group's committed offset of one partition; ``offset`` -1 if there is none."""

    error_code: int
    offset: int
    metadata: str | None
    leader_epoch: int = -1


class GroupOffsets(NamedTuple):
    """The answer to OffsetFetch: the error of the whole request, and the committed offsets."""

    error_code: int
    offsets: dict[TopicPartition, GroupOffset]

    def of(self, topic: str, partition: int) -> GroupOffset:
        """Return the committed offset of one partition: -1 and the request's error if the answer has none."""
        return self.offsets.get((topic, partition), GroupOffset(self.error_code, -1, None))


class GroupLink(Link):
    """A group and the connection to its coordinator."""

    def __init__(self, bootstrap: Bootstrap, group_id: str, **options: Unpack[Options]) -> None:
        super().__init__(Settings(bootstrap, **options))
        self.group_id = group_id

    def look_up(self) -> Steps[Broker]:
        """Ask the cluster for the coordinator."""
        return (yield from cluster.group_coordinator(self.bootstrapper, self.group_id))


def coordinator(link: GroupLink) -> Steps[Broker]:
    """Return the coordinator, looking it up if it is not known. Raises KafkaError, TransportError."""
    return (yield from link.target())


def join(
    link: GroupLink,
    protocols: Mapping[str, bytes] | Sequence[tuple[str, bytes]],
    member: Member = NOBODY,
    *,
    protocol_type: str = CONSUMER,
    session_timeout_ms: int = 45_000,
    rebalance_timeout_ms: int = 60_000,
    reason: str | None = None,
) -> Steps[dict[str, Any]]:
    """Join the group, waiting for the rebalance to end (JoinGroup).

    Args:
        protocols: assignors' names with this member's metadata, the preferred first (see consumer_protocol).
        member: who joins; the default for a new member.
        protocol_type: the same for all members of a group.
        session_timeout_ms: without a heartbeat for so long, the coordinator removes the member.
        rebalance_timeout_ms: how long the coordinator waits for members to rejoin; the call waits 5 s longer, or for
            ``request_timeout`` if that is more.
        reason: for the coordinator's log (KIP-800); not sent to brokers that do not know it.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
        UnsupportedVersionError: the broker is too old for a field that is set.
    """
    connection = yield from link.connected()
    offered = protocols.items() if isinstance(protocols, Mapping) else protocols
    body: dict[str, Any] = {
        "GroupId": link.group_id,
        "SessionTimeoutMs": session_timeout_ms,
        "RebalanceTimeoutMs": rebalance_timeout_ms,
        "MemberId": member.member_id,
        "ProtocolType": protocol_type,
        "Protocols": [{"Name": name, "Metadata": metadata} for name, metadata in offered],
    }
    if member.group_instance_id is not None:
        body["GroupInstanceId"] = member.group_instance_id
    if connection.version("JoinGroup") >= 8:  # only a remark: not worth an error on an old broker
        body["Reason"] = reason
    # The coordinator answers once all members have joined again, or this time is over (as Java's client waits).
    patience = rebalance_timeout_ms / 1000 + _JOIN_GRACE
    return (
        yield from connection.call("JoinGroup", body, timeout=max(link.settings.request_timeout, patience))
    )


def sync(
    link: GroupLink,
    member: Member,
    assignments: Mapping[str, bytes] | None = None,
    *,
    protocol_type: str | None = CONSUMER,
    protocol_name: str | None = None,
) -> Steps[dict[str, Any]]:
    """Hand in the assignments as the leader, and receive this member's (SyncGroup).

    Args:
        member: the member, with the generation that it joined.
        assignments: by member id, from the leader only.
        protocol_type: the one of :func:`join` (KIP-559).
        protocol_name: the assignor that JoinGroup chose (KIP-559).

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
    """
    connection = yield from link.connected()
    body = _identity(link, member, "GenerationId")
    body["Assignments"] = [
        {"MemberId": each, "Assignment": data} for each, data in (assignments or {}).items()
    ]
    if connection.version("SyncGroup") >= 5:  # older brokers know the protocol from JoinGroup only
        body |= {"ProtocolType": protocol_type, "ProtocolName": protocol_name}
    return (yield from connection.call("SyncGroup", body))


def heartbeat(link: GroupLink, member: Member) -> Steps[dict[str, Any]]:
    """Keep the member in the group (Heartbeat). Raises TransportError, DecodeError."""
    return (yield from call(link, "Heartbeat", _identity(link, member, "GenerationId")))


def leave(link: GroupLink, member: Member, reason: str | None = None) -> Steps[dict[str, Any]]:
    """Leave the group (LeaveGroup).

    Args:
        member: who leaves.
        reason: for the coordinator's log (KIP-800); not sent to brokers that do not know it.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
    """
    connection = yield from link.connected()
    version = connection.version("LeaveGroup")
    body: dict[str, Any] = {"GroupId": link.group_id}
    if version < 3:
        body["MemberId"] = member.member_id
    else:
        body["Members"] = [{"MemberId": member.member_id, "GroupInstanceId": member.group_instance_id}]
        if version >= 5:
            body["Members"][0]["Reason"] = reason
    return (yield from connection.call("LeaveGroup", body))


def commit_offset(
    link: GroupLink,
    topic: str,
    partition: int,
    offset: int,
    metadata: str | None = "",
    member: Member = NOBODY,
) -> Steps[int]:
    """Commit the offset of one partition (OffsetCommit).

    Args:
        topic: name of the topic.
        partition: number of the partition.
        offset: of the next record to read.
        metadata: stored with the offset.
        member: who commits; the default for a group without members.

    Returns:
        The partition's error code.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
    """
    codes = yield from commit_offsets(link, {(topic, partition): (offset, metadata)}, member)
    return codes[topic, partition]


def commit_offsets(
    link: GroupLink,
    offsets: Mapping[TopicPartition, int | tuple[int, str | None] | tuple[int, str | None, int]],
    member: Member = NOBODY,
) -> Steps[dict[TopicPartition, int]]:
    """Commit offsets of several partitions in one request (OffsetCommit).

    Args:
        offsets: for each partition the offset of the next record to read, or (offset, metadata), or these and a leader
            epoch that covers the records before (KIP-320; -1: not known), which brokers before Kafka 2.1 do not get.
        member: who commits; the default for a group without members.

    Returns:
        Error codes by partition.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
    """
    connection = yield from link.connected()
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), value in offsets.items():
        offset, metadata, *epoch = value if isinstance(value, tuple) else (value, "")
        entry: dict[str, Any] = {
            "PartitionIndex": partition,
            "CommittedOffset": offset,
            "CommittedMetadata": metadata,
        }
        if epoch and connection.version("OffsetCommit") >= _COMMITS_EPOCHS:
            entry["CommittedLeaderEpoch"] = epoch[0]
        topics.setdefault(topic, []).append(entry)
    body = _identity(link, member, "GenerationIdOrMemberEpoch")
    body["Topics"] = [{"Name": topic, "Partitions": partitions} for topic, partitions in topics.items()]
    response = yield from connection.call("OffsetCommit", body)
    return {
        (topic["Name"], each["PartitionIndex"]): each["ErrorCode"]
        for topic in response["Topics"]
        for each in topic["Partitions"]
    }


def fetch_offset(link: GroupLink, topic: str, partition: int) -> Steps[GroupOffset]:
    """Return the group's committed offset of a partition (OffsetFetch). Raises TransportError, DecodeError."""
    found = yield from fetch_offsets(link, [(topic, partition)])
    return found.of(topic, partition)


def fetch_offsets(link: GroupLink, partitions: Iterable[TopicPartition] | None = None) -> Steps[GroupOffsets]:
    """Return the group's committed offsets (OffsetFetch).

    Args:
        partitions: None for all partitions that have committed offsets.

    Raises:
        TransportError: the connection failed.
        DecodeError: the response is malformed.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    wanted = [{"Name": topic, "PartitionIndexes": indexes} for topic, indexes in topics.items()]
    body = {"GroupId": link.group_id, "Topics": None if partitions is None else wanted}
    response = yield from call(link, "OffsetFetch", body)
    found = {
        (topic["Name"], each["PartitionIndex"]): GroupOffset(
            each["ErrorCode"],
            each["CommittedOffset"],
            each["Metadata"],
            each.get("CommittedLeaderEpoch", -1),
        )
        for topic in response["Topics"]
        for each in topic["Partitions"]
    }
    return GroupOffsets(response.get("ErrorCode", 0), found)


def _identity(link: GroupLink, member: Member, generation: str) -> dict[str, Any]:
    """Return the fields that name the member; ``generation`` is the API's name for the generation's field."""
    body = {"GroupId": link.group_id, "MemberId": member.member_id, generation: member.generation_id}
    if member.group_instance_id is not None:
        body["GroupInstanceId"] = member.group_instance_id
    return body
