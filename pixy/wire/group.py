"""What a member of a classic consumer group says to its coordinator, as generators.

As with partitions: one connection, one request at a time, no retries, error codes are results. The
bodies of the answers are returned with the names of Kafka's schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pixy.wire import cluster
from pixy.wire.cluster import Link
from pixy.wire.connection import Broker, Settings, Steps
from pixy.wire.types import TopicPartition

CONSUMER: Final = "consumer"


class Member(NamedTuple):
    """Who speaks: what JoinGroup answered."""

    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None


NOBODY: Final = Member()
"""Who commits without being a member, or has not joined yet."""


class GroupOffset(NamedTuple):
    """What a group has committed for a partition; ``offset`` -1 if nothing."""

    error_code: int
    offset: int
    metadata: str | None
    leader_epoch: int = -1


class GroupOffsets(NamedTuple):
    """The answer to OffsetFetch: the error of the whole request, and what is known by partition."""

    error_code: int
    offsets: dict[TopicPartition, GroupOffset]

    def of(self, topic: str, partition: int) -> GroupOffset:
        """What is known of one partition: nothing, and the error, if the request failed."""
        return self.offsets.get((topic, partition), GroupOffset(self.error_code, -1, None))


class GroupCore(Link):
    """The connection to a group's coordinator, and the calls."""

    def __init__(self, settings: Settings, group_id: str) -> None:
        super().__init__(settings)
        self.group_id = group_id

    def look_up(self) -> Steps[Broker]:
        return (yield from cluster.group_coordinator(self.bootstrapper, self.group_id))

    def join(
        self,
        protocols: Mapping[str, bytes] | Sequence[tuple[str, bytes]],
        member: Member,
        *,
        protocol_type: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        reason: str | None,
    ) -> Steps[dict[str, Any]]:
        """JoinGroup; ``protocols`` are assignors' names and this member's metadata, most wanted first."""
        connection = yield from self.connected()
        offered = protocols.items() if isinstance(protocols, Mapping) else protocols
        body: dict[str, Any] = {
            "GroupId": self.group_id,
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
        return (yield from connection.call("JoinGroup", body))

    def sync(
        self,
        member: Member,
        assignments: Mapping[str, bytes],
        protocol_type: str | None,
        protocol_name: str | None,
    ) -> Steps[dict[str, Any]]:
        """SyncGroup; only the leader has ``assignments``, by member id."""
        connection = yield from self.connected()
        body = self._who(member, "GenerationId")
        body["Assignments"] = [{"MemberId": each, "Assignment": data} for each, data in assignments.items()]
        if connection.version("SyncGroup") >= 5:  # KIP-559; before, the broker knows it from JoinGroup
            body |= {"ProtocolType": protocol_type, "ProtocolName": protocol_name}
        return (yield from connection.call("SyncGroup", body))

    def heartbeat(self, member: Member) -> Steps[dict[str, Any]]:
        """Heartbeat."""
        return (yield from self.call("Heartbeat", self._who(member, "GenerationId")))

    def leave(self, member: Member, reason: str | None) -> Steps[dict[str, Any]]:
        """LeaveGroup."""
        connection = yield from self.connected()
        version = connection.version("LeaveGroup")
        body: dict[str, Any] = {"GroupId": self.group_id}
        if version < 3:
            body["MemberId"] = member.member_id
        else:
            body["Members"] = [{"MemberId": member.member_id, "GroupInstanceId": member.group_instance_id}]
            if version >= 5:
                body["Members"][0]["Reason"] = reason
        return (yield from connection.call("LeaveGroup", body))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, str | None]],
        member: Member,
    ) -> Steps[dict[TopicPartition, int]]:
        """OffsetCommit of offsets, or (offset, metadata): error code by partition."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), value in offsets.items():
            offset, metadata = value if isinstance(value, tuple) else (value, "")
            topics.setdefault(topic, []).append(
                {
                    "PartitionIndex": partition,
                    "CommittedOffset": offset,
                    "CommittedMetadata": metadata,
                }
            )
        body = self._who(member, "GenerationIdOrMemberEpoch")
        body["Topics"] = [{"Name": topic, "Partitions": partitions} for topic, partitions in topics.items()]
        response = yield from self.call("OffsetCommit", body)
        return {
            (topic["Name"], each["PartitionIndex"]): each["ErrorCode"]
            for topic in response["Topics"]
            for each in topic["Partitions"]
        }

    def fetch_offsets(self, partitions: Iterable[TopicPartition] | None) -> Steps[GroupOffsets]:
        """OffsetFetch of some partitions, or of all that have offsets."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions or ():
            topics.setdefault(topic, []).append(partition)
        wanted = [{"Name": topic, "PartitionIndexes": indexes} for topic, indexes in topics.items()]
        response = yield from self.call(
            "OffsetFetch",
            {
                "GroupId": self.group_id,
                "Topics": None if partitions is None else wanted,
            },
        )
        return GroupOffsets(
            response.get("ErrorCode", 0),
            {
                (topic["Name"], each["PartitionIndex"]): GroupOffset(
                    each["ErrorCode"],
                    each["CommittedOffset"],
                    each["Metadata"],
                    each.get("CommittedLeaderEpoch", -1),
                )
                for topic in response["Topics"]
                for each in topic["Partitions"]
            },
        )

    def _who(self, member: Member, generation: str) -> dict[str, Any]:
        body = {"GroupId": self.group_id, "MemberId": member.member_id, generation: member.generation_id}
        if member.group_instance_id is not None:
            body["GroupInstanceId"] = member.group_instance_id
        return body
