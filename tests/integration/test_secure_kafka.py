"""Kafka with TLS, SASL and ACLs: the daemon's own identity, and those of its callers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from pixy.auth.keys import make_key
from pixy.cli.serve import listeners
from pixy.config import App
from pixy.config.security import Identity
from pixy.engine.engine import Engine
from pixy.errors import StartError
from pixy.journal import decode
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.test_auth import BINARY, Rest, RestV2
from tests.integration.test_produce import read_to_the_end
from tests.kafka.cluster import OTHER_PASSWORD, OTHER_USER, PASSWORD, USER, Certificates, Cluster
from tests.support import eventually, make_config, serving, status_of


@pytest.mark.parametrize(
    ("listener", "mechanism", "client_certificate"),
    [
        ("SSL", "", True),
        ("SASL_PLAINTEXT", "PLAIN", False),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", False),
        ("SASL_SSL", "SCRAM-SHA-512", False),
    ],
)
async def test_kafka_over_tls_and_sasl(
    secure_kafka: Cluster, name: str, listener: str, mechanism: str, client_certificate: bool
) -> None:
    secure_kafka.create_topic(name)
    config = _secured(secure_kafka, listener, mechanism)
    if client_certificate:
        kafka = config.proxies["default"].kafka
        kafka.client_certificate_file, kafka.client_key_file, _ = secure_kafka.certificates.issue(name)
    async with serving(config) as daemon:
        assert await daemon.produce(name, b"secret") == (0, 0)
        assert (await daemon.consume(name, name, auto_ack=True)).message == b"secret"
        found = await eventually(lambda: daemon.offsets(name, name), lambda found: found[0].offset == 1)
        assert found[0].end == 1


def _secured(cluster: Cluster, listener: str, mechanism: str) -> App:
    config = make_config(cluster.bootstrap(listener))
    proxy = config.proxies["default"]
    proxy.net.dial_timeout = 4.0
    proxy.kafka.tls = listener.endswith("SSL")
    proxy.kafka.ca_certificate_file = cluster.certificates.ca_file if proxy.kafka.tls else ""
    if mechanism:
        proxy.net.sasl.enable = True
        proxy.net.sasl.mechanism = mechanism
        proxy.net.sasl.user, proxy.net.sasl.password = USER, PASSWORD
    return config


async def test_only_insecure_skips_verification(secure_kafka: Cluster, name: str, tmp_path: Path) -> None:
    secure_kafka.create_topic(name)
    config = _secured(secure_kafka, "SASL_SSL", "PLAIN")
    config.proxies["default"].kafka.ca_certificate_file = Certificates(tmp_path).ca_file
    with pytest.raises(StartError, match="Is your cluster reachable"):
        async with serving(config):
            pass
    config.proxies["default"].kafka.insecure = True
    async with serving(config) as daemon:
        assert await daemon.produce(name, b"x") == (0, 0)
    config.proxies["default"].net.sasl.password = "wrong"
    with pytest.raises(StartError, match="Is your cluster reachable"):
        async with serving(config):
            pass


def only_the_other_user(kafka: Cluster, name: str) -> None:
    """Give a topic and a group to :data:`OTHER_USER`, and so to nobody else; :data:`USER` may see that the topic is there.

    The journal's topic is his.
    """

    def allowed(kind: ResourceType, user: str, operation: AclOperation, name: str = name) -> AclBinding:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return AclBinding(kind, name, literal, f"User:{user}", "*", operation, allow)

    made = [
        allowed(ResourceType.TOPIC, OTHER_USER, AclOperation.ALL),
        allowed(ResourceType.GROUP, OTHER_USER, AclOperation.ALL),
        allowed(ResourceType.TOPIC, USER, AclOperation.DESCRIBE),
        allowed(ResourceType.TOPIC, USER, AclOperation.ALL, f"{name}-journal"),
    ]
    for each in kafka.admin().create_acls(made).values():
        each.result(20)


async def test_clients_of_a_group_that_kafka_refuses_are_told_why(secure_kafka: Cluster, name: str) -> None:
    secure_kafka.create_topic(name)
    only_the_other_user(secure_kafka, name)
    config = _secured(secure_kafka, "SASL_PLAINTEXT", "PLAIN")
    consumer = config.proxies["default"].consumer
    consumer.join_timeout, consumer.long_polling_timeout = 3.0, 1.0
    async with serving(config) as daemon:
        code, text = await status_of(daemon.consume(name, name))
        assert code is grpc.StatusCode.UNAVAILABLE and "not authorized to access" in text, (code, text)


def configured(kafka: Cluster, folder: Path) -> tuple[App, dict[str, str]]:
    made = {each: make_key(each) for each in ("shop", "own", "third")}
    (folder / "keys").write_text("\n".join(stored.line() for _, stored in made.values()))
    config = make_config(kafka.bootstrap("SASL_PLAINTEXT"), long_polling_timeout=20.0)
    config.auth.enabled, config.auth.keys_file = True, str(folder / "keys")
    proxy = config.proxies["default"]
    sasl = proxy.net.sasl
    sasl.enable, sasl.user, sasl.password = True, USER, PASSWORD
    proxy.identities.users = {
        "shop": Identity(["key:shop"], OTHER_USER, OTHER_PASSWORD),
        "third": Identity(["key:third"], USER, PASSWORD),
    }
    proxy.identities.max = 1
    return config, {each: key for each, (key, _) in made.items()}


async def test_acls_of_kafka_decide_by_the_caller(secure_kafka: Cluster, name: str, tmp_path: Path) -> None:
    secure_kafka.create_topic(name)
    secure_kafka.create_topic(f"{name}-journal")
    only_the_other_user(secure_kafka, name)
    config, keys = configured(secure_kafka, tmp_path)
    proxy = config.proxies["default"]
    proxy.journal.topic = f"{name}-journal"
    proxy.journal.shutdown_timeout = 60.0  # however slow the machine is, the last batches are written
    engine = Engine(config)
    await engine.start(listeners(engine, config))

    def metadata(who: str) -> Any:
        return (("x-api-key", keys[who]),)

    try:
        async with (
            aiohttp.ClientSession() as http,
            grpc.aio.insecure_channel(engine.addresses["grpc"]) as channel,
        ):
            stub = KafkaPixyStub(channel)
            rest, proxies = (kind(http, f"http://{engine.addresses['rest']}") for kind in (Rest, RestV2))
            written = await rest.call(
                "POST",
                f"/topics/{name}",
                keys["own"],
                headers={"Content-Type": BINARY, "Accept": BINARY},
                data='{"records": [{"value": "bQ=="}]}',
            )
            assert written[0] == "403" and "not authorized" in str(written[1]), "Kafka sees the daemon"
            assert await rest.produce(keys["shop"], name) == "ok", "Kafka sees the other user"
            wanted = pb.ConsNAckRq(topic=name, group=name, auto_ack=True)
            assert (await stub.ConsumeNAck(wanted, metadata=metadata("shop"))).message == b"m"
            offsets = pb.GetOffsetsRq(topic=name, group=name)
            assert (await stub.GetOffsets(offsets, metadata=metadata("shop"))).offsets[0].end == 1
            code, text = await status_of(stub.GetOffsets(offsets, metadata=metadata("own")))
            assert "not authorized" in text, (code, text)
            assert await proxies.produce(keys["shop"], name) == "ok"
            # A producer each; the group, its members and offsets are the other user's alone.
            paths = {path for path in engine.system.paths() if path.count("/") == 3 and name in path}
            own, other = f"/service/default/{name}", f"/service/default@shop/{name}"
            assert paths == {f"{own}.producer", f"{other}.producer", other}

            code, text = await status_of(stub.ListTopics(pb.ListTopicRq(), metadata=metadata("third")))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "`identities.max`" in text
            async with http.get(
                f"http://{engine.addresses['rest']}/topics", headers={"X-API-Key": keys["third"]}
            ) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    finally:
        assert (await engine.stop()).clean
    # Up to the last batch of each, all written as the daemon. Two producers write them, in no order between them.
    batches = await asyncio.to_thread(read_to_the_end, secure_kafka, proxy.journal.topic)
    last = {message.key().decode() for message in batches if decode(message.value()).final}
    assert last == {proxy.client_id, f"{proxy.client_id}.shop"}
