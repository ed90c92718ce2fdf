"""The tap between clients and a broker that speak TLS and SASL: it shows all, and credentials pass unread."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from pixy.config.model import Tls
from pixy.tap.config import BrokerTls, TapConfig
from pixy.tap.service import TapService
from tests.integration.tap.support import Member, java_command, members
from tests.kafka.cluster import PASSWORD, USER, Cluster
from tests.support import eventually


def make_config(kafka: Cluster, name: str, listener: str, **fields: Any) -> TapConfig:
    """A tap with TLS towards clients, which must show certificates, and towards brokers if the listener has it."""
    made = kafka.certificates
    assert made is not None
    certificate, key, _ = made.issue(f"tap-{name}")
    return TapConfig(
        (("localhost", kafka.ports[1][listener]),),
        ("127.0.0.1", 0),
        rewrite=True,
        advertise="localhost",
        tls=Tls(certificate, key, made.ca_file),
        broker_tls=BrokerTls(made.ca_file, certificate, key) if listener.endswith("SSL") else None,
        **fields,
    )


def settings(kafka: Cluster, tap: TapService, name: str, listener: str) -> dict[str, Any]:
    """librdkafka's settings of a client with a certificate, and with SASL if the broker's listener has it."""
    assert kafka.certificates is not None
    certificate, key, _ = kafka.certificates.issue(name)
    sasl = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
    return {
        "bootstrap.servers": f"localhost:{tap.listening[0][0][1]}",
        "security.protocol": "SASL_SSL" if listener.startswith("SASL") else "SSL",
        "ssl.ca.location": kafka.certificates.ca_file,
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "client.id": name,
        **(sasl if listener.startswith("SASL") else {}),
    }


def produce_and_consume(options: dict[str, Any], topic: str) -> list[bytes]:
    producer = Producer(options)
    for i in range(100):
        producer.produce(topic, b"value-%d" % i * 1_000)
    assert producer.flush(30) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    while len(got) < 100:
        got += [each.value() for each in consumer.consume(100, 1.0) if each.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
async def test_groups_show_through_tls_on_both_sides(secure_kafka: Cluster, name: str, listener: str) -> None:
    secure_kafka.create_topic(name)
    config = make_config(secure_kafka, name, listener)
    service, told = TapService(config), list[dict[str, Any]]()
    service.add_output(told.append)
    async with service as tap:
        options = settings(secure_kafka, tap, name, listener)
        got = await asyncio.to_thread(produce_and_consume, options, name)
        assert len(got) == 100

        async def group() -> Any:
            return (await tap.ask("snapshot", name))["groups"]

        found = await eventually(group, lambda found: found and found[0]["lag"] == 0)
        assert [each["client_id"] for each in found[0]["gone"]] == [name]
        counts = (await tap.ask())["counts"]
        assert counts["rewritten"] and not counts.get("tls") and not counts.get("undecodable")
        talkers = await tap.ask("talkers")
        assert any(each["topic"] == name and each["bytes_read"] > 100_000 for each in talkers)
    assert PASSWORD not in str(told)


async def test_java_goes_through_tls_and_sasl(secure_kafka: Cluster, name: str, tmp_path: Path) -> None:
    secure_kafka.create_topic(name)
    assert secure_kafka.certificates is not None
    async with TapService(make_config(secure_kafka, name, "SASL_SSL", verify=0.5)) as tap:
        options = settings(secure_kafka, tap, name, "SASL_SSL")
        await asyncio.to_thread(produce_and_consume, options, name)
        _, _, both = secure_kafka.certificates.issue(f"java-{name}")
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{USER}" password="{PASSWORD}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": secure_kafka.certificates.ca_file,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "client.id": f"java-{name}",
            "auto.offset.reset": "earliest",
        }
        file = tmp_path / "consumer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [
            *java_command("org.apache.kafka.tools.consumer.ConsoleConsumer"),
            *("--bootstrap-server", options["bootstrap.servers"]),
            *("--group", f"{name}-java", "--topic", name, "--consumer.config", str(file)),
        ]
        with members([Member(command, tmp_path / "java.log")]):

            async def group() -> Any:
                return (await tap.ask("snapshot", f"{name}-java"))["groups"]

            found = await eventually(
                group, lambda found: found and found[0]["members"] and found[0]["state"] == "Stable"
            )
            assert found[0]["members"][0]["client_id"] == f"java-{name}"
            assert found[0]["members"][0]["software"].startswith("apache-kafka-java")


async def test_a_client_without_a_certificate_is_refused(secure_kafka: Cluster, name: str) -> None:
    service, told = TapService(make_config(secure_kafka, name, "SSL")), list[dict[str, Any]]()
    service.add_output(told.append)
    async with service as tap:
        options = settings(secure_kafka, tap, name, "SSL")
        del options["ssl.certificate.location"], options["ssl.key.location"]
        producer = Producer({**options, "log_level": 0})
        producer.produce(name, b"x")

        async def refused() -> list[str]:
            producer.poll(0)
            return [each["reason"] for each in told if each["event"] == "connection.closed"]

        assert "did not return a certificate" in (await eventually(refused, bool))[0]
        assert (await tap.ask())["counts"].get("requests", 0) == 0
