"""``kafka-pixy pipeline audit``: wrong arguments, empty topics, and the file for Prometheus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.kafka.group_offsets import Commit
from pixy.pipeline.audit import output, prometheus
from pixy.pipeline.audit.job import audit
from pixy.pipeline.audit.report import render
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.summary import summarize
from tests.integration.pipeline.support import FAST_START
from tests.kafka.cluster import Cluster, free_port
from tests.support import ROOT

pytestmark = pytest.mark.timeout(300)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pixy.cli.main", "pipeline", "audit", *arguments],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=250,
        check=False,
        env={**os.environ, **FAST_START},
    )


def config(folder: Path, *seed_peers: str) -> str:
    path = folder / "pixy.yaml"
    path.write_text(
        json.dumps(
            {
                "proxies": {
                    "main": {
                        "kafka": {"seed_peers": list(seed_peers)},
                        "net": {"dial_timeout": "1s"},
                    }
                }
            }
        )
    )
    return str(path)


def test_an_unreachable_cluster_is_an_error_before_spark_starts(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = command(
        "--config", config(tmp_path, address), "--topics", "orders", "--out", str(tmp_path / "out"), "--json"
    )
    assert done.returncode == 1, done.stderr
    assert f"tried {address}" in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["ok"], f"tried {address}" in answer["error"]) == (False, True)
    assert not (tmp_path / "out").exists()
    assert "starting Spark" not in done.stderr


def test_a_topic_that_does_not_exist_is_an_error_before_spark_starts(
    kafka: Cluster, name: str, tmp_path: Path
) -> None:
    done = command(
        "--config",
        config(tmp_path, *kafka.bootstrap()),
        "--topics",
        f"{name},{name}-2",
        "--out",
        str(tmp_path / "out"),
    )
    assert done.returncode == 1
    assert f"topic {name}, {name}-2 does not exist in the cluster" in done.stderr, done.stderr
    assert "starting Spark" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--window", "0s"), "--window: '0s' must be more than 0"),
        (("--window", "soon"), "--window: "),
        (("--settle", "-1s"), "--settle: "),
        (
            ("--prometheus", "/no/such/folder/a.prom", "--lake", "x"),
            "--prometheus /no/such/folder/a.prom: the folder does not exist",
        ),
        (("--config", "/no/such.yaml"), "/no/such.yaml"),
        (("--topics", "a/b", "--lake", "x"), "'a/b' is not a name of a topic"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = command("--out", str(tmp_path / "out"), *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_an_empty_topic_has_no_windows(kafka: Cluster, name: str, spark: Any, tmp_path: Path) -> None:
    kafka.create_topic(name, 2)
    request = AuditRequest(
        str(tmp_path / "out"),
        cluster="main",
        proxy=Proxy(kafka=Kafka(seed_peers=kafka.bootstrap())),
        topics=(name,),
        settle=0.0,
    )
    for run in (1, 2):
        result = audit(spark, request, lambda _line: None)
        summary = summarize(result)
        output.write(result, summary, render(result, summary))
        assert (summary["verdict"], summary["run"], summary["windows"]["count"]) == ("clean", run, 0)
    assert [(row["partition"], row["log_start"], row["log_end"]) for row in summary["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert "Nothing is missing, duplicated or out of order," in (tmp_path / "out" / "report.html").read_text()


def test_the_lag_of_a_group_is_a_finding_and_late_against_the_bound(
    kafka: Cluster, name: str, spark: Any, tmp_path: Path
) -> None:
    kafka.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    now = round(time.time() * 1000)
    for at in range(30):
        producer.produce(name, b"v%d" % at, timestamp=now - (3_600_000 if at < 20 else 0))
    assert producer.flush(30) == 0
    proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
    ClusterView(settings.admin(proxy)).commit(f"{name}-group", [Commit(name, 0, 5, "")])
    request = AuditRequest(
        str(tmp_path / "out"),
        proxy=proxy,
        topics=(name,),
        groups=(f"{name}-group",),
        settle=0.0,
        late=600_000,
        sequences=False,
        contents=False,
    )
    summary = summarize(audit(spark, request, lambda _line: None))
    assert summary["verdict"] == "clean", "behind is no loss"
    (problem,) = summary["problems"]
    assert (problem["kind"], problem["group"], problem["offsets"], problem["since"]) == (
        "group behind",
        f"{name}-group",
        25,
        now - 3_600_000,
    )
    assert problem["why"] == ["15 of 25 waiting offsets are older than 10 min"]
    assert problem["next"][0]["command"] == f"kafka-pixy group describe {name}-group"


def test_the_gauges_of_a_log_are_those_of_the_audit(
    kafka: Cluster, name: str, spark: Any, tmp_path: Path
) -> None:
    kafka.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for at in range(30):
        producer.produce(name, b"v%d" % at)
    assert producer.flush(30) == 0
    proxy = Proxy(kafka=Kafka(seed_peers=kafka.bootstrap()))
    request = AuditRequest(str(tmp_path / "out"), cluster="main", proxy=proxy, topics=(name,), settle=0.0)
    file = tmp_path / "audit.prom"
    began = time.time()
    prometheus.write(str(file), summarize(audit(spark, request, lambda _line: None)))
    found = gauges(file)
    assert found["kafka_pixy_audit_topic_produced", name] == 30
    assert found["kafka_pixy_audit_verdict", "clean"] == 1
    assert found["kafka_pixy_audit_source", "log"] == 1
    # The audit reads its sources after it began; the summary has milliseconds.
    assert began - 0.001 <= found["kafka_pixy_audit_timestamp_seconds",] <= time.time()


def gauges(file: Path) -> dict[tuple[str, ...], float]:
    """Return a file's samples by name and values of labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }
