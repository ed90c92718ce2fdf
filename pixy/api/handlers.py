"""Implement the methods of the gRPC API: protobuf messages in and out; errors are PixyErrors.

The methods know no transport. A transport binds them through :meth:`Handlers.methods`. Here are the original's; those added to it are in
:mod:`pixy.api.batch_handlers` and :mod:`pixy.api.admin_handlers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pixy.api.admin_handlers import AdminHandlers
from pixy.api.batch_handlers import BatchHandlers, record_headers, timestamp_of
from pixy.api.limits import MOST_HEADERS, MOST_OFFSETS
from pixy.api.not_found import NotFound
from pixy.api.propagation import with_context
from pixy.engine.admin_messages import TopicInfo
from pixy.engine.consume.long_polls import Delivery
from pixy.engine.engine import Engine
from pixy.engine.guarded import AnyCluster
from pixy.errors import InvalidParameter, UnknownGroup, UnknownTopic
from pixy.kafka.record_headers import checked_headers
from pixy.membership.zookeeper.keeper import NoNode
from pixy.proto import kafkapixy_pb2 as pb
from pixy.trace_context import Context, of_record
from pixy.wire.types import RecordHeaders

CONFIG_VERSION = 1


class Call(Protocol):
    """The part of a call that a handler may use."""

    def deliver(self, delivery: Delivery) -> None:
        """Put a message into the answer. The transport calls ``delivery.sent()`` when the answer was
        sent, ``delivery.give_back()`` when it could not be.
        """

    def trace_context(self) -> Context:
        """Return the W3C trace context that came with the call, as record headers; none if there is none."""

    def answer_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Send metadata with the answer."""


Handler = Callable[[Any, Call], Awaitable[Any]]


class Handlers:
    """The methods of the API, bound to one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clusters: dict[str, AnyCluster] = {}
        self._propagates = engine.config.tracing.propagate
        self._spans = engine.spans
        self._reads_context = self._propagates or self._spans.on

    def _cluster(self, name: str) -> AnyCluster:
        cluster = self._clusters.get(name)
        if cluster is None:
            cluster = self._engine.cluster(name)
            if self._engine.guard is None:  # else it is the caller's own
                self._clusters[name] = cluster
        return cluster

    async def produce(self, rq: pb.ProdRq, call: Call) -> pb.ProdRs:
        """See ``Produce`` in the proto."""
        cluster = self._cluster(rq.cluster)
        key = None if rq.key_undefined else rq.key_value
        if len(rq.headers) > MOST_HEADERS:
            raise InvalidParameter(f"too many headers, a message may have {MOST_HEADERS}")
        headers: RecordHeaders
        headers = checked_headers((header.key, header.value) for header in rq.headers) if rq.headers else ()
        context = call.trace_context() if self._reads_context else ()
        try:
            with self._spans.send(rq.cluster, rq.topic, context, size=len(rq.message)) as span:
                context = span.carried(context)
                if context and self._propagates:
                    headers = with_context(cluster.proxy, key, rq.message, headers, context)
                if rq.async_mode:
                    await cluster.produce_async(rq.topic, rq.message, key, headers)
                    return pb.ProdRs(partition=-1, offset=-1)
                partition, offset = await cluster.produce(rq.topic, rq.message, key, headers)
                span.placed(partition, offset)
        except UnknownTopic as error:
            raise InvalidParameter(str(error)) from error
        # As the original answers with required_acks: no_response.
        return pb.ProdRs(partition=partition, offset=max(offset, 0))

    async def consume_n_ack(self, rq: pb.ConsNAckRq, call: Call) -> pb.ConsRs:
        """See ``ConsumeNAck`` in the proto."""
        cluster = self._cluster(rq.cluster)
        ack = None
        if not rq.no_ack and not rq.auto_ack:
            ack = _ack(rq.ack_partition, rq.ack_offset)
        spans = self._spans
        span = spans.receive(rq.cluster, rq.topic, rq.group, call.trace_context() if spans.on else ())
        delivery = await cluster.consume(rq.topic, rq.group, auto_ack=rq.auto_ack and not rq.no_ack, ack=ack)
        try:
            rs = await _message(cluster, delivery)
        except BaseException:
            delivery.give_back()
            raise
        if spans.on or (self._propagates and rs.headers):
            headers = [(each.key, each.value) for each in rs.headers]
            span.received(rs.partition, rs.offset, len(rs.message), headers)
            if self._propagates and (trace := of_record(headers)):
                call.answer_metadata(trace)
        call.deliver(delivery)
        return rs

    async def ack(self, rq: pb.AckRq, call: Call) -> pb.AckRs:
        """See ``Ack`` in the proto."""
        cluster = self._cluster(rq.cluster)
        partition, offset = _ack(rq.partition, rq.offset)
        spans = self._spans
        with spans.settle(rq.cluster, rq.topic, rq.group, call.trace_context() if spans.on else ()) as span:
            span.placed(partition, offset)
            await cluster.ack(rq.topic, rq.group, partition, offset)
        return pb.AckRs()

    async def get_offsets(self, rq: pb.GetOffsetsRq, _call: Call) -> pb.GetOffsetsRs:
        """See ``GetOffsets`` in the proto."""
        found = await self._cluster(rq.cluster).get_offsets(rq.topic, rq.group)
        return pb.GetOffsetsRs(
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
                for po in found
            ]
        )

    async def set_offsets(self, rq: pb.SetOffsetsRq, _call: Call) -> pb.SetOffsetsRs:
        """See ``SetOffsets`` in the proto."""
        if len(rq.offsets) > MOST_OFFSETS:
            raise InvalidParameter(f"too many offsets, a request may set {MOST_OFFSETS}")
        offsets = {po.partition: (po.partition, po.offset, po.metadata) for po in rq.offsets}
        await self._cluster(rq.cluster).set_offsets(rq.topic, rq.group, tuple(offsets.values()))
        return pb.SetOffsetsRs()

    async def list_topics(self, rq: pb.ListTopicRq, _call: Call) -> pb.ListTopicRs:
        """See ``ListTopics`` in the proto."""
        found = await self._cluster(rq.cluster).topics(with_partitions=rq.with_partitions, with_config=True)
        return pb.ListTopicRs(topics={info.name: _topic(info) for info in found})

    async def list_consumers(self, rq: pb.ListConsumersRq, _call: Call) -> pb.ListConsumersRs:
        """See ``ListConsumers`` in the proto."""
        try:
            found = await self._cluster(rq.cluster).consumers(rq.topic, rq.group)
        except (UnknownGroup, NoNode) as error:
            raise NotFound(str(error)) from error
        rs = pb.ListConsumersRs()
        for group, clients in found.items():
            for client, partitions in clients.items():
                rs.groups[group].consumers[client].partitions.extend(partitions)
        return rs

    async def get_topic_metadata(self, rq: pb.GetTopicMetadataRq, _call: Call) -> pb.GetTopicMetadataRs:
        """See ``GetTopicMetadata`` in the proto."""
        return _topic(await self._cluster(rq.cluster).topic(rq.topic, with_partitions=rq.with_partitions))

    def methods(self) -> dict[str, tuple[type, Handler]]:
        """Map method names to request classes and handlers."""
        return {
            "Produce": (pb.ProdRq, self.produce),
            "ConsumeNAck": (pb.ConsNAckRq, self.consume_n_ack),
            "Ack": (pb.AckRq, self.ack),
            "GetOffsets": (pb.GetOffsetsRq, self.get_offsets),
            "SetOffsets": (pb.SetOffsetsRq, self.set_offsets),
            "ListTopics": (pb.ListTopicRq, self.list_topics),
            "ListConsumers": (pb.ListConsumersRq, self.list_consumers),
            "GetTopicMetadata": (pb.GetTopicMetadataRq, self.get_topic_metadata),
            **BatchHandlers(
                self._cluster, self._engine.config.rest, self._spans, propagates=self._propagates
            ).methods(),
            **AdminHandlers(self._engine, self._cluster).methods(),
        }


def _ack(partition: int, offset: int) -> tuple[int, int]:
    if partition < 0:
        raise InvalidParameter(f"invalid ack: bad partition: {partition}")
    if offset < 0:
        raise InvalidParameter(f"invalid ack: bad offset: {offset}")
    return partition, offset


async def _message(cluster: AnyCluster, delivery: Delivery) -> pb.ConsRs:
    message = delivery.message
    key = message.key()
    rs = pb.ConsRs(
        partition=delivery.partition,
        offset=delivery.offset,
        key_value=key,
        key_undefined=key is None,
        message=message.value(),
        tombstone=message.value() is None,
        timestamp=timestamp_of(message),
    )
    for name, value in await record_headers(cluster, message):
        rs.headers.add(key=name, value=value)
    return rs


def _topic(info: TopicInfo) -> pb.GetTopicMetadataRs:
    return pb.GetTopicMetadataRs(
        version=CONFIG_VERSION,
        config=info.config or {},
        partitions=[
            pb.PartitionMetadata(
                partition=part.partition, leader=part.leader, replicas=part.replicas, isr=part.isr
            )
            for part in info.partitions or ()
        ],
    )
