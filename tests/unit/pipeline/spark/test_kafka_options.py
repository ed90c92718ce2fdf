"""Security settings become options of the Java client."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.config import Kafka, Proxy
from pixy.errors import ConfigError
from pixy.pipeline.spark.kafka_options import kafka_options


def test_tls_and_sasl(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"-----BEGIN PRIVATE KEY----- {name}")
    proxy = Proxy(
        client_id="me",
        kafka=Kafka(
            seed_peers=["a:1", "b:2"],
            tls=True,
            ca_certificate_file=str(tmp_path / "ca"),
            client_certificate_file=str(tmp_path / "cert"),
            client_key_file=str(tmp_path / "key"),
        ),
    )
    proxy.net.sasl.enable, proxy.net.sasl.mechanism = True, "SCRAM-SHA-512"
    proxy.net.sasl.user, proxy.net.sasl.password = "u", 'p"\\'
    found = kafka_options(proxy)
    assert found["kafka.bootstrap.servers"] == "a:1,b:2"
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.sasl.jaas.config"].endswith('username="u" password="p\\"\\\\";')
    assert found["kafka.ssl.truststore.certificates"].endswith("ca")
    assert found["kafka.ssl.keystore.key"].endswith("key")
    (tmp_path / "key").write_text("-----BEGIN RSA PRIVATE KEY-----")
    with pytest.raises(ConfigError, match=r"openssl pkcs8"):
        kafka_options(proxy)
    proxy.kafka.ca_certificate_file = ""
    proxy.kafka.insecure = True
    with pytest.raises(ConfigError, match=r"kafka.insecure: Java has no way"):
        kafka_options(proxy)
