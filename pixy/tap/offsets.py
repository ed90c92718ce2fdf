"""Committed offsets of groups and end offsets of partitions, from clients' requests and responses."""

from __future__ import annotations

from typing import Any, Final

from pixy.tap.classic import ClassicGroups
from pixy.tap.groups import Group, State
from pixy.tap.partial_decoders import Topic
from pixy.tap.registry import Peer, Registry

LATEST: Final = -1
"""The timestamp that requests the end offset in ListOffsets."""

Body = dict[str, Any]


class Offsets:
    """Process OffsetCommit, OffsetFetch and ListOffsets."""

    def __init__(self, registry: Registry, classic: ClassicGroups) -> None:
        self._registry = registry
        self._classic = classic

    def committed(self, at: float, peer: Peer, request: Body, body: Body) -> None:
        """Process an OffsetCommit request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            peer: the connection.
            request: the request; a commit with a generation also shows that the member is alive.
            body: the response.
        """
        group = self._group(request["GroupId"])
        failed = {
            (self._topic(topic), partition["PartitionIndex"])
            for topic in body["Topics"]
            for partition in topic["Partitions"]
            if partition["ErrorCode"]
        }
        accepted = False
        for topic in request["Topics"]:
            for partition in topic["Partitions"]:
                key = (self._topic(topic), partition["PartitionIndex"])
                if key not in failed:
                    accepted = True
                    group.committed[key] = (partition["CommittedOffset"], at)
        generation = request.get("GenerationIdOrMemberEpoch", -1)
        if accepted and generation >= 0 and request.get("MemberId"):
            if group.kind == "consumer":
                member = group.members.get(request["MemberId"])
                if member is not None:
                    self._registry.touch(member, peer, at)
            else:
                group.kind = "classic"
                self._classic.alive(
                    group, at, peer, request["MemberId"], generation, request.get("GroupInstanceId")
                )

    def fetched(self, at: float, request: Body, body: Body) -> None:
        """Process an OffsetFetch request and its response.

        Args:
            at: when the response passed, in seconds since the epoch.
            request: the request.
            body: the response.
        """
        groups = body.get("Groups") or [{**body, "GroupId": request.get("GroupId", "")}]
        for each in groups:
            known = [
                (self._topic(topic), partition)
                for topic in each["Topics"]
                for partition in topic["Partitions"]
                if not partition["ErrorCode"] and partition["CommittedOffset"] >= 0
            ]
            if not known:
                continue
            group = self._group(each["GroupId"])
            for topic, partition in known:
                if (topic, partition["PartitionIndex"]) not in group.committed:
                    group.committed[topic, partition["PartitionIndex"]] = (partition["CommittedOffset"], at)

    def listed(self, request: Body, body: Body) -> None:
        """Process a ListOffsets request and its response.

        Args:
            request: the request.
            body: the response.
        """
        latest = {
            (topic["Name"], partition["PartitionIndex"])
            for topic in request["Topics"]
            for partition in topic["Partitions"]
            if partition["Timestamp"] == LATEST
        }
        for topic in body["Topics"]:
            for partition in topic["Partitions"]:
                tp = (topic["Name"], partition["PartitionIndex"])
                if tp in latest and not partition["ErrorCode"] and partition.get("Offset", -1) >= 0:
                    self._registry.topics.set_end(*tp, partition["Offset"])

    def _group(self, group_id: str) -> Group:
        group = self._registry.group(group_id)
        if group.state is State.UNKNOWN and not len(group.members) and group.generation < 0:
            group.kind = "offsets"
        return group

    def _topic(self, topic: Body) -> Topic:
        return topic["Name"] if "Name" in topic else self._registry.topics.resolve(topic["TopicId"])
