"""Convert a cluster's configuration to options of Spark's Kafka source, which uses the Java client."""

from __future__ import annotations

from pathlib import Path

from pixy.config import Kafka, Proxy
from pixy.errors import ConfigError

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def kafka_options(proxy: Proxy) -> dict[str, str]:
    """Build the ``kafka.*`` options: brokers, login, TLS. Raises ConfigError for settings that Java lacks."""
    kafka, sasl = proxy.kafka, proxy.net.sasl
    options = {
        "bootstrap.servers": ",".join(proxy.kafka.seed_peers),
        "client.id": f"{proxy.client_id}-archive",
        "security.protocol": ("SASL_" if sasl.enable else "") + ("SSL" if kafka.tls else "PLAINTEXT"),
    }
    if kafka.tls:
        options |= _tls(kafka)
    if sasl.enable:
        options["sasl.mechanism"] = sasl.mechanism
        options["sasl.jaas.config"] = (
            f"{_LOGIN[sasl.mechanism]} required username={_quoted(sasl.user)} "
            f"password={_quoted(sasl.password)};"
        )
    return {f"kafka.{key}": value for key, value in options.items()}


def _tls(kafka: Kafka) -> dict[str, str]:
    options: dict[str, str] = {}
    if kafka.ca_certificate_file:
        options |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _text("ca_certificate_file", kafka.ca_certificate_file),
        }
    elif kafka.insecure:
        raise ConfigError(
            "kafka.insecure: Java has no way to leave a broker's certificate unchecked; name its CA "
            "in kafka.ca_certificate_file"
        )
    if kafka.insecure:
        options["ssl.endpoint.identification.algorithm"] = ""
    if kafka.client_certificate_file:
        key = _text("client_key_file", kafka.client_key_file)
        if "BEGIN PRIVATE KEY" not in key:
            raise ConfigError(
                "kafka.client_key_file: Java reads PKCS#8 keys only; convert it with "
                f"`openssl pkcs8 -topk8 -nocrypt -in {kafka.client_key_file}`"
            )
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text("client_certificate_file", kafka.client_certificate_file),
            "ssl.keystore.key": key,
        }
    return options


def _text(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kafka.{name}: cannot read {path} ({error})") from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
