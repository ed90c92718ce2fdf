"""The methods of the gRPC API for topics, groups and the daemon's state. The engine checks the arguments."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from pixy import __version__
from pixy.api.not_found import NotFound
from pixy.engine.cluster_admin import MOST_GROUPS
from pixy.engine.engine import Engine
from pixy.engine.guarded import AnyCluster
from pixy.errors import Forbidden, PixyError, UnknownGroup
from pixy.kafka.topic_changes import NewTopic
from pixy.proto import kafkapixy_pb2 as pb


class AdminHandlers:
    """The methods, bound to one engine.

    Args:
        engine: for its state.
        cluster: returns the client of a cluster. Raises UnknownCluster.
    """

    def __init__(self, engine: Engine, cluster: Callable[[str], AnyCluster]) -> None:
        self._engine = engine
        self._cluster = cluster

    async def find_offsets(self, rq: pb.FindOffsetsRq, _call: Any) -> pb.FindOffsetsRs:
        """See ``FindOffsets`` in the proto."""
        found = await self._cluster(rq.cluster).admin.find_offsets(rq.topic, rq.time)
        offsets = [
            pb.PartitionOffset(partition=number, offset=offset) for number, offset in found.offsets.items()
        ]
        return pb.FindOffsetsRs(offsets=offsets, topic_id=found.topic_id)

    async def create_topic(self, rq: pb.CreateTopicRq, _call: Any) -> pb.CreateTopicRs:
        """See ``CreateTopic`` in the proto."""
        topic = NewTopic(rq.topic, rq.partitions, rq.replication_factor, dict(rq.config))
        await self._cluster(rq.cluster).admin.create_topic(topic, validate_only=rq.validate_only)
        return pb.CreateTopicRs()

    async def alter_topic(self, rq: pb.AlterTopicRq, _call: Any) -> pb.AlterTopicRs:
        """See ``AlterTopic`` in the proto."""
        await self._cluster(rq.cluster).admin.alter_topic(
            rq.topic,
            dict(rq.set_config),
            tuple(rq.delete_config),
            rq.partitions,
            validate_only=rq.validate_only,
        )
        return pb.AlterTopicRs()

    async def delete_topic(self, rq: pb.DeleteTopicRq, _call: Any) -> pb.DeleteTopicRs:
        """See ``DeleteTopic`` in the proto."""
        await self._cluster(rq.cluster).admin.delete_topic(rq.topic)
        return pb.DeleteTopicRs()

    async def list_groups(self, rq: pb.ListGroupsRq, _call: Any) -> pb.ListGroupsRs:
        """See ``ListGroups`` in the proto."""
        found = await self._cluster(rq.cluster).admin.groups()
        groups = [pb.Group(group=each.name, state=each.state, type=each.type) for each in found[:MOST_GROUPS]]
        return pb.ListGroupsRs(groups=groups, truncated=len(found) > MOST_GROUPS)

    async def describe_group(self, rq: pb.DescribeGroupRq, _call: Any) -> pb.DescribeGroupRs:
        """See ``DescribeGroup`` in the proto."""
        try:
            found = await self._cluster(rq.cluster).admin.group(rq.group)
        except UnknownGroup as error:
            raise NotFound(str(error)) from error
        answer = pb.DescribeGroupRs(group=found.group, state=found.state)
        for each in found.members:
            member = answer.members.add(member_id=each.member_id, client_id=each.client_id, host=each.host)
            assigned: dict[str, list[int]] = {}
            for topic, number in sorted(each.assigned):
                assigned.setdefault(topic, []).append(number)
            for topic, numbers in assigned.items():
                member.assigned.add(topic=topic, partitions=numbers)
        for topic, offsets in found.offsets.items():
            answer.topics.add(
                topic=topic,
                offsets=[
                    pb.PartitionOffset(
                        partition=po.partition,
                        begin=po.begin,
                        end=po.end,
                        count=po.count,
                        offset=po.offset,
                        lag=po.lag,
                        metadata=po.metadata,
                        sparse_acks=po.sparse_acks,
                    )
                    for po in offsets
                ],
            )
        return answer

    async def delete_group(self, rq: pb.DeleteGroupRq, _call: Any) -> pb.DeleteGroupRs:
        """See ``DeleteGroup`` in the proto."""
        try:
            await self._cluster(rq.cluster).admin.delete_group(rq.group)
        except UnknownGroup as error:
            raise NotFound(str(error)) from error
        return pb.DeleteGroupRs()

    async def get_status(self, _rq: pb.GetStatusRq, _call: Any) -> pb.GetStatusRs:
        """See ``GetStatus`` in the proto."""
        answer = pb.GetStatusRs(version=__version__, time=int(time.time() * 1000), uptime=self._engine.uptime)
        names = list(self._engine.config.proxies)
        default = self._engine.config.cluster_name("")
        for name in sorted(names, key=lambda each: each != default):
            brokers, problem = [], ""
            try:
                brokers = await self._cluster(name).admin.brokers()
            except Forbidden:
                continue  # as if there were no such cluster
            except PixyError as error:
                problem = str(error)
            answer.clusters.add(cluster=name, brokers=brokers, error=problem)
        return answer

    def methods(self) -> dict[str, tuple[type, Callable[[Any, Any], Awaitable[Any]]]]:
        """Map method names to request classes and handlers."""
        return {
            "FindOffsets": (pb.FindOffsetsRq, self.find_offsets),
            "CreateTopic": (pb.CreateTopicRq, self.create_topic),
            "AlterTopic": (pb.AlterTopicRq, self.alter_topic),
            "DeleteTopic": (pb.DeleteTopicRq, self.delete_topic),
            "ListGroups": (pb.ListGroupsRq, self.list_groups),
            "DescribeGroup": (pb.DescribeGroupRq, self.describe_group),
            "DeleteGroup": (pb.DeleteGroupRq, self.delete_group),
            "GetStatus": (pb.GetStatusRq, self.get_status),
        }


__all__ = ["AdminHandlers"]
