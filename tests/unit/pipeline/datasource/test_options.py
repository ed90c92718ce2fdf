"""Options are parsed; unknown options and impossible values are errors that name the option."""

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
    assert parsed(True).start.kind is Kind.LATEST, "like Spark's source, a stream starts at the end"
    assert parsed(False).start.kind is Kind.EARLIEST
    assert parsed(False).end.kind is Kind.LATEST


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffset": "earliest"},
            "option startingoffset is unknown (did you mean startingOffsets?)",
        ),
        ({"kafka.group.id": "g"}, "option kafka.group.id is unknown"),
        ({"path": "x"}, "option path is unknown"),
        ({"subscribe": " , "}, "option subscribe: it names no topic"),
        ({"subscribe": "a b"}, "option subscribe: 'a b' is not a valid topic name"),
        ({"assign": '{"t": [0]}'}, "give exactly one, not assign and subscribe"),
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
        ({"startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets: t/0 cannot be -3"),
        (
            {"startingOffsets": '{"t": {"0": 1.5}}'},
            "option startingOffsets: t/0 is 1.5, which is not an integer",
        ),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "option startingOffsets: t has no partition 'x'"),
        (
            {"startingOffsets": '{"t": 1}'},
            "option startingOffsets: t needs an object with partitions as names",
        ),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "option endingOffsets: t/0 cannot be -2"),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": -1}}'},
            "option startingOffsetsByTimestamp: t/0 cannot be -1",
        ),
        ({"startingTimestamp": "now"}, "option startingTimestamp: 'now' is not a number of milliseconds"),
        (
            {"startingOffsetsByTimestampStrategy": "x"},
            "option startingOffsetsByTimestampStrategy: 'x' is neither",
        ),
        ({"kafka.bootstrap.servers": "a:x"}, "option kafka.bootstrap.servers: not an address: 'a:x'"),
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers is required"),
        ({"kafka.security.protocol": "TLS"}, "option kafka.security.protocol: 'TLS' is not one of"),
        (
            {"kafka.sasl.mechanism": "PLAIN"},
            "option kafka.sasl.mechanism has no effect: kafka.security.protocol is PLAINTEXT",
        ),
        ({"kafka.security.protocol": "SASL_SSL"}, "option kafka.sasl.mechanism: GSSAPI is not one of PLAIN"),
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
            "option kafka.ssl.truststore.type: only PEM is supported, not JKS",
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/no/x.pem",
                "kafka.ssl.truststore.type": "PEM",
            },
            "option kafka.ssl.truststore.location: /no/x.pem cannot be read",
        ),
        ({"cluster": "main"}, "option cluster: it names a cluster of the daemon's configuration"),
        (
            {"config": "/no/pixy.yaml"},
            "option kafka.bootstrap.servers: config already describes the access to the cluster",
        ),
        ({"mode": "files"}, "option mode: 'files' is not one of records, batches"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse({**BASE, **options})
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_names_are_recognized_in_any_case() -> None:
    assert (
        parse({"SUBSCRIBE": "t", "Kafka.Bootstrap.Servers": "a:1", "MAXOFFSETSPERTRIGGER": "7"}).max_offsets
        == 7
    )
    assert all(name == known.lower() for name, known in NAMES.items())


def test_one_timestamp_precedes_timestamps_and_these_precede_offsets() -> None:
    every = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
        "startingTimestamp": "7",
    }
    assert parsed(**every).start.kind is Kind.TIME
    every.pop("startingTimestamp")
    assert parsed(**every).start.kind is Kind.TIMES


def test_positions_must_name_the_partitions_that_are_read() -> None:
    start = parsed(startingOffsets='{"t": {"0": 5, "1": -1}}').start
    assert start.wanted([("t", 0), ("t", 1)]) == {("t", 0): 5, ("t", 1): -1}
    with pytest.raises(SourceError, match="option startingOffsets lacks t/2"):
        start.wanted([("t", 0), ("t", 1), ("t", 2)])
    with pytest.raises(SourceError, match="option startingOffsets names t/1: the query does not read it"):
        start.wanted([("t", 0)])
    assert parsed(startingOffsets="earliest").start.wanted([("x", 3)]) == {("x", 3): -2}


def test_jaas_and_pem_are_read_like_java_does(tmp_path: Path) -> None:
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
def test_access_survives_the_way_through_options_and_pickle(access: Access) -> None:
    assert parse({"subscribe": "t", **access.spark_options()}).access == access
    assert pickle.loads(pickle.dumps(access)) == access


def test_access_comes_from_the_daemons_configuration(tmp_path: Path) -> None:
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


def test_the_schema_has_the_columns_of_sparks_source_first() -> None:
    assert columns.ddl("records").startswith(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key:string,value:binary>>, producerId bigint"
    )
    assert "headers" not in columns.ddl("records", headers=False)


def test_authorities_with_non_ascii_names_are_accepted(tmp_path: Path) -> None:
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
        with pytest.raises(UsageError, match=r"kafka.ca_certificate_file: .*bundle.pem has no PEM data"):
            from_proxy(Proxy(kafka=kafka))
    with pytest.raises(UsageError, match="the authorities are not in PEM format"):
        Tls("\u0151").context()


def test_a_bad_certificate_is_an_error() -> None:
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
    with pytest.raises(UsageError, match="TLS certificates or the key cannot be used"):
        access.options()


def test_the_brokers_wait_must_be_shorter_than_the_request_timeout() -> None:
    with pytest.raises(
        UsageError,
        match=r"option kafka.fetch.max.wait.ms: 5000 must be less than kafka.request.timeout.ms, which is 5000",
    ):
        parse({**BASE, "kafka.fetch.max.wait.ms": "5000", "kafka.request.timeout.ms": "5000"})
