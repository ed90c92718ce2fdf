"""What a job checks before it touches anything, and how it speaks with Java's client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pixy.cli.pipeline import MODULES, run
from pixy.config import Kafka, Proxy
from pixy.errors import ConfigError
from pixy.pipeline.archive.checkpoint import Checkpoint, Owner
from pixy.pipeline.archive.subscription import Subscription, check_job_name, check_offsets
from pixy.pipeline.errors import (
    CheckpointError,
    SetupError,
    SourceError,
    UnknownVersion,
    UsageError,
)
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark import jars
from pixy.pipeline.spark.kafka_options import kafka_options

OWNER = Owner("job", "lake-1", "kafka-1", "a,b")


def test_a_checkpoint_is_its_jobs(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    made = Checkpoint.open(store, OWNER)
    assert made.fresh
    again = Checkpoint.open(store, OWNER)
    assert (again.id, again.fresh) == (made.id, False)
    for other, named in (
        (Owner("other", "lake-1", "kafka-1", "a,b"), "its job is job, this job's is other"),
        (Owner("job", "lake-2", "kafka-1", "a,b"), "its lake is lake-1"),
        (Owner("job", "lake-1", "kafka-2", "a,b"), "its cluster_id is kafka-1"),
        (
            Owner("job", "lake-1", "kafka-1", "a"),
            r"its subscription \(--topics, --pattern\) is a,b, this job's is a",
        ),
    ):
        with pytest.raises(CheckpointError, match=named):
            Checkpoint.open(store, other)


def test_a_checkpoint_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointError, match=r"checkpoint of another program .there is offsets"):
        Checkpoint.open(LocalStore(str(tmp_path)), OWNER)
    (tmp_path / "pixy.json").write_text('{"format": "kafka-pixy-checkpoint", "version": 2}')
    with pytest.raises(UnknownVersion, match=r"format version 2"):
        Checkpoint.open(LocalStore(str(tmp_path)), OWNER)


def test_spark_s_offsets(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(LocalStore(str(tmp_path)), OWNER)
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (-1, -1)
    folder = tmp_path / "spark"
    for path, text in (
        ("sources/0/0", '\0v1\n{"t":{"0":3,"1":0}}'),
        ("offsets/0", 'v1\n{"batchId":0}\n{"t":{"0":7,"1":2}}'),
        ("offsets/.0.crc", "x"),
        ("offsets/10", "v2\n{}\n{}"),
        ("commits/0", "v1\n{}"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (10, 0)
    assert checkpoint.ends(-1) == {("t", 0): 3, ("t", 1): 0}
    assert checkpoint.ends(0) == {("t", 0): 7, ("t", 1): 2}
    with pytest.raises(CheckpointError, match=r"offsets/1 is missing"):
        checkpoint.ends(1)
    with pytest.raises(UnknownVersion, match=r"offsets/10 has format version 'v2'"):
        checkpoint.ends(10)


def test_subscriptions() -> None:
    topics = {"a": 2, "b": 1, "ab": 1}
    assert Subscription(("b", "a")).find(topics) == [("b", 0), ("a", 0), ("a", 1)]
    assert Subscription(pattern="a.*").find(topics) == [("a", 0), ("a", 1), ("ab", 0)]
    with pytest.raises(SourceError, match=r"topic c, d does not exist"):
        Subscription(("a", "c", "d")).find(topics)
    with pytest.raises(SourceError, match=r"no topic matches the pattern 'x'"):
        Subscription(pattern="x").find(topics)
    for bad in ({"topics": ("a/b",)}, {"pattern": "("}, {}, {"topics": ("a",), "pattern": "a"}):
        with pytest.raises(UsageError):
            Subscription(**bad)  # type: ignore[arg-type]
    names = {
        Subscription(("a", "b")).job_name("c"),
        Subscription(("a",)).job_name("c"),
        Subscription(pattern="a").job_name("c"),
    }
    assert len(names) == 3
    assert all(check_job_name(name) == name for name in names)
    with pytest.raises(UsageError, match=r"--job"):
        check_job_name("../x")


def test_offsets_that_are_gone() -> None:
    check_offsets({("t", 0): 5}, {("t", 0): (5, 5), ("t", 1): (0, 9)})
    with pytest.raises(SourceError, match=r"offsets 5 to 7 of t/0 are out of range"):
        check_offsets({("t", 0): 5}, {("t", 0): (8, 9)})
    with pytest.raises(SourceError, match=r"t/0 ends at offset 4, but it was archived up to 5"):
        check_offsets({("t", 0): 5}, {("t", 0): (0, 4)})
    with pytest.raises(SourceError, match=r"partitions of topic t are gone"):
        check_offsets({("t", 0): 5}, {("u", 0): (0, 4)})


def test_security_in_java_s_terms(tmp_path: Path) -> None:
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


def test_missing_java_maven_and_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(jars.ENVIRONMENT, str(tmp_path / "jars"))
    assert jars.main() == 1
    said = capsys.readouterr().err
    assert "!!!" in said and "Java 17 or later is needed" in said and "Maven is needed" in said
    with pytest.raises(SetupError, match=r"lacks spark-sql-kafka.*make pipeline-install"):
        jars.find()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)
    with pytest.raises(SetupError, match=r"Java 17 or later is needed; java is openjdk version .11"):
        jars.check_java()


# -- the command ----------------------------------------------------------------------------------


def test_help_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in MODULES) and "exit codes" in shown
    for argv in ([], ["nothing"], ["archive"], ["verify"], ["replay", "--config", "x", "--lake", "l"]):
        assert run(argv) == 2, argv
    capsys.readouterr()
    for command, wanted in (
        ("archive", "--trigger"),
        ("compact", "--keep"),
        ("replay", "--where"),
        ("verify", "--shallow"),
    ):
        assert run([command, "--help"]) == 0
        assert wanted in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "named"),
    [
        (["verify", "--lake", "{folder}/none"], 1, "is not a lake"),
        (
            ["archive", "--config", "{folder}/none.yaml", "--topics", "t", "--lake", "{folder}/l"],
            2,
            "none.yaml",
        ),
        (
            ["archive", "--config", "{config}", "--cluster", "x", "--topics", "t", "--lake", "{folder}/l"],
            2,
            "proxy `x` does not exist",
        ),
        (
            ["archive", "--config", "{config}", "--topics", "t/u", "--lake", "{folder}/l"],
            2,
            "'t/u' is not a name of a topic",
        ),
        (
            ["archive", "--config", "{config}", "--topics", "t", "--lake", "{folder}/l"],
            1,
            "tried localhost:1",
        ),
        (
            ["replay", "--config", "{config}", "--topic", "t", "--to", "u", "--lake", "{folder}/l"],
            1,
            "is not a lake",
        ),
        (["compact", "--lake", "{folder}/l", "--dry-run"], 1, "is not a lake"),
    ],
)
def test_errors_name_the_thing(
    argv: list[str], code: int, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "pixy.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "proxies": {
                    "main": {
                        "kafka": {"seed_peers": ["localhost:1"]},
                        "net": {"dial_timeout": "1s", "read_timeout": "1s", "write_timeout": "1s"},
                    }
                }
            }
        )
    )
    assert run([part.format(folder=tmp_path, config=config) for part in argv] + ["--json"]) == code
    caught = capsys.readouterr()
    assert named in caught.err
    summary = json.loads(caught.out)
    assert summary["ok"] is False and named in summary["error"]
    assert not (tmp_path / "l").exists()
