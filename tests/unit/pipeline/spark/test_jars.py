"""Jars are found in folders and fetched by Maven; what is missing is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pixy.pipeline.errors import SetupError
from pixy.pipeline.spark import jars


def test_missing_java_maven_and_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(jars.ENVIRONMENT, str(tmp_path / "jars"))
    assert jars.main() == 1
    shown = capsys.readouterr().err
    assert "!!!" in shown and "Java 17 or later is needed" in shown and "Maven is needed" in shown
    with pytest.raises(SetupError, match=r"lacks spark-sql-kafka.*make pipeline-install"):
        jars.find()
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)
    with pytest.raises(SetupError, match=r"Java 17 or later is needed; java is openjdk version .11"):
        jars.check_java()


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def test_jars_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = touch(tmp_path / "some", "delta-spark_2.13-4.0.1.jar")
    with pytest.raises(SetupError, match=r"some lacks delta-storage-VERSION.jar: run .*jars --delta"):
        jars.find_delta(str(some))
    with pytest.raises(SetupError, match=r"none lacks delta-spark_2.13-VERSION.jar, delta-storage"):
        jars.find_delta(str(tmp_path / "none"))
    touch(some, "delta-storage-4.0.1.jar", "readme.txt")
    assert [Path(path).name for path in jars.find_delta(str(some))] == [
        "delta-spark_2.13-4.0.1.jar",
        "delta-storage-4.0.1.jar",
    ]
    monkeypatch.setenv(jars.DELTA_ENVIRONMENT, str(some))
    assert jars.find_delta() == jars.find_delta(str(some))


def test_jars_by_coordinates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(pom: Path, target: Path) -> None:
        fetched.append(pom.read_text())
        touch(target, "delta-spark_2.13-4.0.1.jar", "delta-storage-4.0.1.jar")

    monkeypatch.setenv(jars.ENVIRONMENT, str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "_fetch", fetch)
    monkeypatch.setattr(jars, "check_maven", lambda: None)
    for _ in range(2):
        found = jars.find_delta("io.delta:delta-spark_2.13:4.0.1")
        assert {Path(path).parent for path in found} == {tmp_path / "delta-spark_2.13-4.0.1"}
    [pom] = fetched
    assert pom.count("<dependency>") == 2, "delta-storage is fetched too"
    assert "<artifactId>delta-storage</artifactId><version>4.0.1</version>" in pom


def test_an_earlier_version_s_kafka_clients_are_left_out(tmp_path: Path) -> None:
    folder = touch(tmp_path / "jars", *jars.NAMES, "kafka-clients-3.9.0.jar", "delta-storage-4.0.0.jar")
    found = {Path(path).name for path in jars.find(str(folder))}
    assert found == {*jars.NAMES, "delta-storage-4.0.0.jar"}


def test_the_versions_that_are_fetched_are_those_that_are_looked_for() -> None:
    pom = jars.POM.read_text()
    fetched = set(re.findall(r"<artifactId>([^<]*)</artifactId>\s*<version>([^<]*)</version>", pom))
    assert {f"{name}-{version}.jar" for name, version in fetched if name != "pipeline-jars"} == set(
        jars.NAMES
    )
    assert ("kafka-clients", jars.KAFKA_CLIENTS) in fetched
