"""Options: what they mean, and that what is not known or can not be is refused by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pixy.config import Kafka, Proxy
from pixy.errors import PixyError
from pixy.pipeline.datasource import columns
from pixy.pipeline.datasource.access import Access, Tls, from_kafka, from_proxy
from pixy.pipeline.datasource.options import NAMES, Selection, Source, parse
from pixy.pipeline.datasource.positions import Kind
from pixy.pipeline.errors import SourceError, UsageError
from tests.kafka.cluster import Certificates

BASE = {"kafka.bootstrap.servers": "a:9092, b:9093", "subscribe": "t"}


def parsed(streaming: bool | None = None, **options: str) -> Source:
    return parse(
        {**BASE, **{name.replace("_", "."): value for name, value in options.items()}}, streaming=streaming
    )


def test_the_defaults() -> None:
    found = parsed()
    assert found.access == Access(("a:9092", "b:9093"))
    assert found.selection == Selection(("t",))
    assert (found.mode, found.read_committed, found.headers, found.control) == ("records", False, True, False)
    assert (found.fail_on_data_loss, found.max_offsets, found.min_partitions) == (True, None, None)
    assert (found.retries, found.retry_interval, found.limits.poll_timeout) == (3, 1.0, 120.0)
    assert parsed(True).start.kind is Kind.LATEST, "as Spark's source: a stream begins at the end"
    assert parsed(False).start.kind is Kind.EARLIEST
    assert parsed(False).end.kind is Kind.LATEST


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"startingOffset": "earliest"},
            "option startingoffset is not known (did you mean startingOffsets?)",
        ),
        ({"kafka.group.id": "g"}, "option kafka.group.id is not known"),
        ({"path": "x"}, "option path is not known"),
        ({"subscribe": " , "}, "option subscribe: it names no topic"),
        ({"subscribe": "a b"}, "option subscribe: 'a b' is not a name of a topic"),
        ({"assign": '{"t": [0]}'}, "one of them is needed, not assign and subscribe"),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss: 'yes' is neither true nor false"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: '0' is not a whole number from 1"),
        ({"minPartitions": "-1"}, "option minPartitions: '-1' is not a whole number"),
        ({"isolationLevel": "read"}, "option isolationLevel: 'read' is neither"),
        (
            {"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "contradict each other",
        ),
        ({"startingOffsets": "first"}, "option startingOffsets: 'first' is not JSON"),
        ({"startingOffsets": "[1]"}, "option startingOffsets: '[1]' is not a JSON object"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets: t/0 can not be -3"),
        (
            {"startingOffsets": '{"t": {"0": 1.5}}'},
            "option startingOffsets: t/0 is 1.5, which is not a whole number",
        ),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "option startingOffsets: t has no partition 'x'"),
        ({"startingOffsets": '{"t": 1}'}, "option startingOffsets: t needs an object by partition"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "option endingOffsets: t/0 can not be -2"),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": -1}}'},
            "option startingOffsetsByTimestamp: t/0 can not be -1",
        ),
        ({"startingTimestamp": "now"}, "option startingTimestamp: 'now' are not milliseconds"),
        (
            {"startingOffsetsByTimestampStrategy": "x"},
            "option startingOffsetsByTimestampStrategy: 'x' is neither",
        ),
        ({"kafka.bootstrap.servers": "a:x"}, "option kafka.bootstrap.servers: not an address: 'a:x'"),
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers is needed"),
        ({"kafka.security.protocol": "TLS"}, "option kafka.security.protocol: 'TLS' is none of"),
        (
            {"kafka.sasl.mechanism": "PLAIN"},
            "option kafka.sasl.mechanism: kafka.security.protocol is PLAINTEXT",
        ),
        ({"kafka.security.protocol": "SASL_SSL"}, "option kafka.sasl.mechanism: GSSAPI is none of PLAIN"),
        (
            {
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": "s3cret",
            },
            "option kafka.sasl.jaas.config must read",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/x.jks"},
            "option kafka.ssl.truststore.type: only PEM can be read here, not JKS",
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/no/x.pem",
                "kafka.ssl.truststore.type": "PEM",
            },
            "option kafka.ssl.truststore.location: /no/x.pem can not be read",
        ),
        ({"cluster": "main"}, "option cluster: it is one of the daemon's configuration"),
        ({"config": "/no/pixy.yaml"}, "option kafka.bootstrap.servers: config says how to reach the cluster"),
        ({"mode": "files"}, "option mode: 'files' is none of records, batches"),
    ],
)
def test_what_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse({**BASE, **options})
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_names_are_known_in_any_case() -> None:
    assert (
        parse({"SUBSCRIBE": "t", "Kafka.Bootstrap.Servers": "a:1", "MAXOFFSETSPERTRIGGER": "7"}).max_offsets
        == 7
    )
    assert all(name == known.lower() for name, known in NAMES.items())


def test_one_time_goes_before_times_and_these_before_offsets() -> None:
    every = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
        "startingTimestamp": "7",
    }
    assert parsed(**every).start.kind is Kind.TIME
    every.pop("startingTimestamp")
    assert parsed(**every).start.kind is Kind.TIMES


def test_positions_must_name_what_is_read() -> None:
    start = parsed(startingOffsets='{"t": {"0": 5, "1": -1}}').start
    assert start.wanted([("t", 0), ("t", 1)]) == {("t", 0): 5, ("t", 1): -1}
    with pytest.raises(SourceError, match="option startingOffsets lacks t/2"):
        start.wanted([("t", 0), ("t", 1), ("t", 2)])
    with pytest.raises(SourceError, match="option startingOffsets names t/1: it is not read"):
        start.wanted([("t", 0)])
    assert parsed(startingOffsets="earliest").start.wanted([("x", 3)]) == {("x", 3): -2}


def test_jaas_and_pem_as_java_has_them(tmp_path: Path) -> None:
    store = tmp_path / "both.pem"
    store.write_text("-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n")
    found = parse(
        {
            **BASE,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "scram-sha-512",
            "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="a\\\\b;c" ;',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": "CA",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(store),
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    ).access
    assert found.sasl == ("SCRAM-SHA-512", 'al"ice', "a\\b;c")
    assert found.tls == Tls("CA", store.read_text(), "", None, check_hostname=False)
    assert "a\\b;c" not in repr(found)


@pytest.mark.parametrize(
    "access",
    [
        Access(("a:1",)),
        Access(("a:1", "b:2"), "me", None, ("PLAIN", 'al"i\\ce', 'p";\\'), 1.5, 2.0),
        Access(("a:1",), "me", Tls("ca", "cert", "key", "pw"), None),
        Access(("a:1",), "me", Tls("ca", check_hostname=False), ("SCRAM-SHA-256", "u", "p w")),
        Access(("a:1",), "me", Tls(check_hostname=False, verify=False), None),
    ],
)
def test_access_as_options_says_the_same(access: Access) -> None:
    assert parse({"subscribe": "t", **access.spark_options()}).access == access
    assert pickle.loads(pickle.dumps(access)) == access


def test_a_cluster_of_the_daemon_s_configuration(tmp_path: Path) -> None:
    path = tmp_path / "pixy.yaml"
    path.write_text(
        "proxies:\n  a:\n    kafka: {seed_peers: ['x:1']}\n  b:\n    client_id: me\n    kafka: {seed_peers: ['y:2']}\n"
        "    net: {sasl: {enable: true, mechanism: PLAIN, user: u, password: p}}\ndefault_cluster: a\n"
    )
    found: dict[str, Any] = {
        cluster: parse(
            {"subscribe": "t", "config": str(path), **({"cluster": cluster} if cluster else {})}
        ).access
        for cluster in ("", "b")
    }
    assert found[""].bootstrap == ("x:1",)
    assert (found["b"].bootstrap, found["b"].client_id, found["b"].sasl) == (
        ("y:2",),
        "me-spark",
        ("PLAIN", "u", "p"),
    )
    with pytest.raises(PixyError, match="c"):
        parse({"subscribe": "t", "config": str(path), "cluster": "c"})


def test_columns() -> None:
    assert columns.ddl("records").startswith(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key:string,value:binary>>, producerId bigint"
    )
    assert "headers" not in columns.ddl("records", headers=False)


def test_authorities_with_names_that_are_not_ascii(tmp_path: Path) -> None:
    """Systems' bundles name each authority in a comment."""
    issued, bundle = Certificates(tmp_path), tmp_path / "bundle.pem"
    bundle.write_text(
        f"# F\u0151tan\u00fas\u00edtv\u00e1ny\n{Path(issued.ca_file).read_text()}", encoding="utf-8"
    )
    kafka = Kafka(seed_peers=["a:1"], tls=True, ca_certificate_file=str(bundle))
    access = from_proxy(Proxy(kafka=kafka))
    assert len(access.options()["tls"].get_ca_certs()) == 1
    assert parse({"subscribe": "t", **access.spark_options()}).access == access
    for text in ("", "\u0151"):
        bundle.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=r"kafka.ca_certificate_file: .*bundle.pem holds nothing in PEM"):
            from_proxy(Proxy(kafka=kafka))
    with pytest.raises(UsageError, match="the authorities' text is no PEM"):
        Tls("\u0151").context()


def test_a_bad_certificate_is_told() -> None:
    access = from_kafka(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "no certificate",
        },
        1,
        1,
    )
    with pytest.raises(UsageError, match="TLS certificates or the key can not be used"):
        access.options()


def test_a_broker_may_not_wait_longer_than_it_is_waited_for() -> None:
    with pytest.raises(
        UsageError,
        match=r"option kafka.fetch.max.wait.ms: 5000 is not less than .* 5000 \(kafka.request.timeout.ms\)",
    ):
        parse({**BASE, "kafka.fetch.max.wait.ms": "5000", "kafka.request.timeout.ms": "5000"})
