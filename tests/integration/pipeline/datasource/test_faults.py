"""A damaged batch in real Spark, TLS and SASL on a real broker, the command, the example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.pipeline.support import FAST_START, World, command
from tests.kafka.cluster import PASSWORD, USER, Cluster
from tests.support import ROOT
from tests.unit.pipeline.datasource.log_broker import LogBroker
from tests.unit.pipeline.datasource.test_reading import batch, damaged
from tests.unit.wire.fake_broker import PARTITION, TOPIC

pytestmark = pytest.mark.timeout(300)


def test_a_damaged_batch_is_an_error_that_names_its_offset(spark: Any) -> None:
    from pixy.pipeline.datasource import register

    register(spark)
    with LogBroker([batch(0, 5, "zstd"), damaged(5), batch(10, 5)]) as broker:

        def frame(**more: str) -> Any:
            return spark.read.format("pixy").options(**broker.source_options(**more)).load()

        with pytest.raises(Exception) as caught:
            frame().collect()
        assert f"{TOPIC}/{PARTITION}: the batch at offset 5 cannot be read: checksum of a batch is 0x" in str(
            caught.value
        )
        heads = frame(mode="batches").select("baseOffset", "crcValid").collect()
        assert [tuple(row) for row in heads] == [(0, True), (5, False), (10, True)]


def secure(kafka: Cluster, folder: Path, listener: str) -> dict[str, str]:
    """Return options of Java's client, and write the same access to a configuration of the daemon."""
    assert kafka.certificates is not None
    sasl = listener.startswith("SASL")
    certificate, _, both = kafka.certificates.issue(f"client-{listener}")
    key = f"{folder}/client.key"
    Path(key).write_text(Path(both).read_text().split("-----BEGIN CERTIFICATE-----", 1)[0])
    options = {"kafka.bootstrap.servers": kafka.bootstrap(listener)[0], "kafka.security.protocol": listener}
    section: dict[str, Any] = {"seed_peers": kafka.bootstrap(listener)}
    if listener.endswith("SSL"):
        options |= {
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": kafka.certificates.ca_file,
        }
        section |= {"tls": True, "ca_certificate_file": kafka.certificates.ca_file}
    if listener == "SSL":
        options |= {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": both}
        section |= {"client_certificate_file": certificate, "client_key_file": key}
    net: dict[str, Any] = {}
    if sasl:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        options |= {
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
        }
        net = {"sasl": {"enable": True, "mechanism": "SCRAM-SHA-512", "user": USER, "password": PASSWORD}}
    (folder / "pixy.yaml").write_text(json.dumps({"proxies": {"main": {"kafka": section, "net": net}}}))
    return options


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_security_options_of_java_and_of_the_daemon_work(
    secure_kafka: Cluster, name: str, tmp_path: Path, listener: str
) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    from pixy.pipeline.datasource.source import PixyDataSource
    from pixy.pipeline.errors import SourceError

    secure_kafka.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": secure_kafka.bootstrap()[0]})
    for at in range(10):
        producer.produce(name, b"%d" % at, partition=0)
    assert producer.flush(30) == 0
    options = secure(secure_kafka, tmp_path, listener)
    schema = StructType([StructField("offset", LongType())])
    for given in (options, {"config": str(tmp_path / "pixy.yaml"), "cluster": "main"}):
        reader = PixyDataSource({"subscribe": name, **given}).reader(schema)
        [part] = reader.partitions()
        assert [offset for made in reader.read(part) for offset in made.column(0).to_pylist()] == list(
            range(10)
        )
    wrong = {"subscribe": name, "fetchOffset.retryIntervalMs": "1", **options}
    if "SASL" in listener:
        wrong["kafka.sasl.jaas.config"] = wrong["kafka.sasl.jaas.config"].replace(PASSWORD, "no-secret")
        message = "SASL SCRAM-SHA-512"
    else:
        wrong.pop("kafka.ssl.truststore.location")
        message = "certificate verify failed"
    with pytest.raises(SourceError, match=message) as caught:
        PixyDataSource(wrong).reader(schema).partitions()
    assert "no-secret" not in str(caught.value)


def test_scan_counts_records_from_headers(world: World, everything: str) -> None:
    from tests.integration.pipeline import oddities
    from tests.integration.pipeline.datasource.reading import jvm

    name = everything
    code, summary, stderr = command("scan", "--config", world.config(), "--topics", name)
    assert (code, summary["ok"], summary["bad_crc"]) == (0, True, 0), stderr
    assert summary["records"] == jvm(world, name).count() == sum(row["records"] for row in summary["topics"])
    rows = {row["codec"]: row for row in summary["topics"]}
    assert set(rows) == set(oddities.CODECS)
    assert (rows["none"]["control"], rows["zstd"]["records"]) == (3, len(oddities.RECORDS))
    code, summary, _ = command("scan", "--config", world.config(), "--topics", f"{name}-no")
    assert (code, summary["error"]) == (1, f"topic {name}-no does not exist")


def test_the_example_runs(world: World, name: str, tmp_path: Path) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 30, 2, **{"compression.type": "zstd", "enable.idempotence": True})

    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "examples" / "pipeline_datasource.py"),
            world.kafka.bootstrap()[0],
            name,
            str(tmp_path / "checkpoint"),
        ],
        env={**os.environ, **FAST_START, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout
    assert "30 records, 0 gaps in the sequence numbers of idempotent producers" in first
    [row] = [line for line in first.splitlines() if "zstd|" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "zstd" and cells[2] == "30" and cells[-1] == "true"
    assert "30 new records in the stream" in first
