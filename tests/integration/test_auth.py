"""``auth`` on a real Kafka: keys and rules on every transport, and the audit log in a topic."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from pixy.auth.keys import make_key
from pixy.cli.serve import listeners
from pixy.config.security import Rule
from pixy.engine.engine import Engine
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.test_produce import read_all
from tests.kafka.cluster import Cluster
from tests.support import make_config

BINARY = "application/vnd.kafka.binary.v2+json"
V2 = "application/vnd.kafka.v2+json"
Outcome = tuple[str, bytes]
"""``ok`` and what came, or the refusal in HTTP's words, and its text."""


class Grpc:
    """A client of the gRPC API."""

    def __init__(self, channel: Any) -> None:
        self._stub = KafkaPixyStub(channel)

    async def _call(self, method: Any, request: Any, key: str) -> tuple[str, Any]:
        try:
            return "ok", await method(request, metadata=(("x-api-key", key),))
        except grpc.aio.AioRpcError as error:
            words = {grpc.StatusCode.UNAUTHENTICATED: "401", grpc.StatusCode.PERMISSION_DENIED: "403"}
            return words.get(error.code(), str(error)), None

    async def produce(self, key: str, topic: str) -> str:
        return (await self._call(self._stub.Produce, pb.ProdRq(topic=topic, message=b"m"), key))[0]

    async def take(self, key: str, topic: str, group: str) -> Outcome:
        """Consume a message, and acknowledge it by another call."""
        wanted = pb.ConsNAckRq(topic=topic, group=group, no_ack=True)
        outcome, found = await self._call(self._stub.ConsumeNAck, wanted, key)
        if found is None:
            return outcome, b""
        ack = pb.AckRq(topic=topic, group=group, partition=found.partition, offset=found.offset)
        outcome, _ = await self._call(self._stub.Ack, ack, key)
        return outcome, found.message


class Rest:
    """A client of Kafka-Pixy's own REST API."""

    def __init__(self, http: aiohttp.ClientSession, base: str) -> None:
        self._http = http
        self._base = base

    async def call(self, method: str, path: str, key: str, **options: Any) -> tuple[str, Any]:
        headers = {"X-API-Key": key, **options.pop("headers", {})}
        async with self._http.request(method, self._base + path, headers=headers, **options) as answer:
            body = await answer.read()
            return "ok" if answer.status < 300 else str(answer.status), json.loads(body) if body else None

    async def produce(self, key: str, topic: str) -> str:
        plain = {"Content-Type": "text/plain"}
        return (await self.call("POST", f"/topics/{topic}/messages?sync", key, data="m", headers=plain))[0]

    async def take(self, key: str, topic: str, group: str) -> Outcome:
        outcome, found = await self.call("GET", f"/topics/{topic}/messages?group={group}&noAck", key)
        if outcome != "ok":
            return outcome, b""
        where = f"group={group}&partition={found['partition']}&offset={found['offset']}"
        outcome, _ = await self.call("POST", f"/topics/{topic}/acks?{where}", key)
        return outcome, base64.b64decode(found["value"])


class RestV2(Rest):
    """A client of the v2 REST proxies' API."""

    async def _ask(self, method: str, path: str, key: str, body: Any, accept: str = V2) -> tuple[str, Any]:
        kind = {"Content-Type": BINARY if "records" in (body or {}) else V2, "Accept": accept}
        return await self.call(method, path, key, headers=kind, data=json.dumps(body))

    async def produce(self, key: str, topic: str) -> str:
        return (await self._ask("POST", f"/topics/{topic}", key, {"records": [{"value": "bQ=="}]}))[0]

    async def take(self, key: str, topic: str, group: str) -> Outcome:
        name = uuid.uuid4().hex
        made = {"name": name, "auto.offset.reset": "earliest", "auto.commit.enable": False}
        outcome, _ = await self._ask("POST", f"/consumers/{group}", key, made)
        base = f"/consumers/{group}/instances/{name}"
        if outcome == "ok":
            outcome, _ = await self._ask("POST", f"{base}/subscription", key, {"topics": [topic]})
        if outcome != "ok":
            return outcome, b""
        _, found = await self._ask("GET", f"{base}/records?timeout=20000", key, None, BINARY)
        outcome, _ = await self._ask("POST", f"{base}/offsets", key, {})
        return outcome, base64.b64decode(found[0]["value"])


async def round_trip(client: Grpc | Rest, keys: dict[str, str], topic: str, other: str) -> dict[str, Any]:
    """What comes of right and wrong requests of a transport."""
    return {
        "produce, wrong key": await client.produce("kp_wrong", topic),
        "produce, key without the right": await client.produce(keys["reader"], topic),
        "produce, another topic": await client.produce(keys["writer"], other),
        "produce": await client.produce(keys["writer"], topic),
        "consume, wrong key": await client.take("kp_wrong", topic, topic),
        "consume, key without the right": await client.take(keys["writer"], topic, topic),
        "consume, another topic": await client.take(keys["reader"], other, topic),
        "consume, another group": await client.take(keys["reader"], topic, other),
        "consume and acknowledge": await client.take(keys["reader"], topic, topic),
    }


EXPECTED = {
    "produce, wrong key": "401",
    "produce, key without the right": "403",
    "produce, another topic": "403",
    "produce": "ok",
    "consume, wrong key": ("401", b""),
    "consume, key without the right": ("403", b""),
    "consume, another topic": ("403", b""),
    "consume, another group": ("403", b""),
    "consume and acknowledge": ("ok", b"m"),
}


async def test_keys_and_rules_on_every_transport_and_the_audit_log_in_kafka(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    names = ("grpc", "rest", "rest-unix", "rest-v1")
    topics = {each: f"{name}.{each}" for each in names}
    other, audit = f"{name}-other", f"{name}-audit"
    for topic in (*topics.values(), other, audit):
        kafka.create_topic(topic)
    made = {each: make_key(each) for each in ("reader", "writer")}
    keys = {each: key for each, (key, _) in made.items()}
    config = make_config(kafka.bootstrap(), long_polling_timeout=20.0)
    (tmp_path / "keys").write_text("\n".join(stored.line() for _, stored in made.values()))
    config.unix_addr, config.rest.addr = str(tmp_path / "s"), "127.0.0.1:0"
    config.proxies["default"].instances.max_read_timeout = 20.0
    config.auth.enabled, config.auth.keys_file = True, str(tmp_path / "keys")
    config.audit.topic, config.audit.verbs = audit, ["ack"]
    config.rules = [
        Rule(["key:writer"], ["produce"], topics=[f"{name}.*", audit]),
        Rule(["key:reader"], ["consume", "ack"], topics=[f"{name}.*"], groups=[f"{name}.*"]),
    ]
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    at = engine.addresses
    try:
        async with (
            aiohttp.ClientSession() as http,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as unix,
            grpc.aio.insecure_channel(at["grpc"]) as channel,
        ):
            clients = {
                "grpc": Grpc(channel),
                "rest": Rest(http, f"http://{at['rest']}"),
                "rest-unix": Rest(unix, "http://localhost"),
                "rest-v1": RestV2(http, f"http://{at['rest-v1']}"),
            }
            found = await asyncio.gather(
                *(round_trip(client, keys, topics[each], other) for each, client in clients.items())
            )
            for each, outcomes in zip(clients, found, strict=True):
                assert outcomes == EXPECTED, each
            # The rule is there; but nobody else writes to the audit log.
            assert [await each.produce(keys["writer"], audit) for each in clients.values()] == ["403"] * 4
    finally:
        assert (await engine.stop()).clean
    await asyncio.to_thread(check_kafka, kafka, topics, other, audit)


def check_kafka(kafka: Cluster, topics: dict[str, str], other: str, audit: str) -> None:
    """See in Kafka itself what was let through, and what the audit log says of it."""
    for topic in topics.values():
        assert [message.value() for message in read_all(kafka, topic, 1)] == [b"m"]
        wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])
        [committed] = kafka.admin().list_consumer_group_offsets([wanted])[topic].result(20).topic_partitions
        assert committed.offset == 1, topic
    # On each transport: two refused keys; one topic, one right and one audit log that are not to be written to; a right, a
    # topic and a group that are not to be consumed; one acknowledgement. A v2 consumer that may not join its group or
    # may not consume the topic is refused at once.
    lines = [json.loads(message.value()) for message in read_all(kafka, audit, 4 * 9)]
    results = [(line["result"], line.get("verb")) for line in lines]
    assert results.count(("Unauthenticated", None)) == 8
    assert results.count(("ok", "ack")) == 4
    assert results.count(("Forbidden", "produce")) == 12
    assert results.count(("Forbidden", "consume")) == 12
    assert {line["group"] for line in lines if line["result"] == "ok"} == set(topics.values())
    assert not any(line.get("topic") == other and line["result"] == "ok" for line in lines)
