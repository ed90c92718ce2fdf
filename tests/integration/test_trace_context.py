"""W3C trace context on a real Kafka, through both fronts: in by metadata or header, through record headers, out to consumers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from confluent_kafka import Consumer, TopicPartition

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.test_fronts import CONFIG, V2, V2_BINARY, running
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

OWN = "00-11111111111111111111111111111111-1111111111111111-01"


def parent(number: int) -> str:
    return f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033{number:02x}-01"


def stored(kafka: Cluster, topic: str, count: int) -> list[dict[str, bytes]]:
    """The headers of the first records of partition 0."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": "reads"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < count:
            message = consumer.poll(10)
            assert message is not None and message.error() is None, f"{len(found)} of {count}"
            found.append(dict(message.headers() or ()))
        return found
    finally:
        consumer.close()


async def written(grpc_address: str, base: str, topic: str, http: aiohttp.ClientSession) -> None:
    """Write seven messages, each over another way."""
    async with grpc.aio.insecure_channel(grpc_address) as channel:
        stub = KafkaPixyStub(channel)

        async def produce(number: int, *headers: pb.RecordHeader, **fields: Any) -> None:
            metadata = (("traceparent", parent(number)), ("tracestate", "a=1"), ("tracestate", "b=2"))
            await stub.Produce(
                pb.ProdRq(topic=topic, message=b"m", headers=headers, **fields), metadata=metadata
            )

        await produce(0)
        await produce(1, pb.RecordHeader(key="traceparent", value=OWN.encode()))
        await stub.Produce(pb.ProdRq(topic=topic, message=b"m"))
        await stub.Produce(pb.ProdRq(topic=topic, message=b"m"), metadata=(("traceparent", "nonsense"),))
        own = pb.Record(value=b"m", headers=[pb.RecordHeader(key="traceparent", value=OWN.encode())])
        many = pb.ProdManyRq(topic=topic, records=[pb.Record(value=b"m"), own])
        await stub.ProduceMany(many, metadata=(("traceparent", parent(4)),))
    headers = {"Content-Type": "text/plain", "Traceparent": parent(6), "tracestate": "a=1"}
    async with http.post(f"{base}/topics/{topic}/messages?sync", data="m", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    v2 = {"Content-Type": V2_BINARY, "Accept": V2, "traceparent": parent(7)}
    body = json.dumps(
        {"records": [{"value": "bQ=="}, {"value": "bQ==", "headers": [{"key": "a", "value": "MQ=="}]}]}
    )
    async with http.post(f"{base}/topics/{topic}", data=body, headers=v2) as answer:
        assert answer.status == 200, await answer.text()


@pytest.mark.parametrize("front", ["portable", "envoy"])
async def test_a_context_goes_in_through_and_out(
    kafka: Cluster, name: str, tmp_path: Path, front: str
) -> None:
    topic = kafka.create_topic(name)
    config = CONFIG.format(front=front, seed=kafka.bootstrap()[0])
    async with running(tmp_path, config) as daemon, aiohttp.ClientSession() as http:
        await daemon.serves()
        base = f"http://{daemon.address('rest')}"
        await written(daemon.address("grpc"), base, topic, http)
        found = stored(kafka, topic, 9)
        assert found[0] == {"traceparent": parent(0).encode(), "tracestate": b"a=1,b=2"}
        assert found[1] == {"traceparent": OWN.encode()}, (
            "the creation context of a message is nobody's to change"
        )
        assert found[2] == {} == found[3]
        assert [each.get("traceparent") for each in found[4:6]] == [parent(4).encode(), OWN.encode()]
        assert found[6] == {"traceparent": parent(6).encode(), "tracestate": b"a=1"}
        assert found[7] == {"traceparent": parent(7).encode()}
        assert found[8] == {"a": b"1", "traceparent": parent(7).encode()}

        async with http.get(f"{base}/topics/{topic}/messages?group=rest") as answer:
            assert answer.headers["traceparent"] == parent(0) and answer.headers["tracestate"] == "a=1,b=2"
            assert [each["key"] for each in (await answer.json())["headers"]] == ["traceparent", "tracestate"]
        async with grpc.aio.insecure_channel(daemon.address("grpc")) as channel:
            stub = KafkaPixyStub(channel)
            trailing = []
            for _ in range(3):
                call = stub.ConsumeNAck(pb.ConsNAckRq(topic=topic, group="grpc", auto_ack=True))
                rs = await call
                trailing.append(dict(await call.trailing_metadata()).get("traceparent"))
            assert trailing == [parent(0), OWN, None] and rs.offset == 2


async def test_propagation_can_be_switched_off(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.tracing.propagate = False
    async with serving(config) as daemon:
        await daemon.stub.Produce(
            pb.ProdRq(topic=topic, message=b"m"), metadata=(("traceparent", parent(0)),)
        )
        headers = {"traceparent": parent(1), "Content-Type": "text/plain"}
        await daemon.post(f"/topics/{topic}/messages?sync", b"m", headers=headers)
        own = [pb.RecordHeader(key="traceparent", value=OWN.encode())]
        await daemon.stub.Produce(pb.ProdRq(topic=topic, message=b"m", headers=own))
        assert stored(kafka, topic, 3) == [{}, {}, {"traceparent": OWN.encode()}]
