"""The Kubernetes examples: their configuration and command lines are valid, and names that refer to each other match."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pixy.cli import pipeline
from pixy.config import load_file, validate

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))


def documents(file: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


def pods(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the pod specifications in a document."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for each in document.values():
            yield from pods(each)


def containers() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{file.name}: {container['name']}", container)
        for file in FILES
        for document in documents(file)
        for pod in pods(document)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
    ]


def test_the_examples_are_found() -> None:
    assert [file.name for file in FILES] == ["archive.yaml", "executors.yaml"]
    assert len(containers()) == 5


@pytest.mark.parametrize(("name", "container"), containers(), ids=[name for name, _ in containers()])
def test_the_arguments_are_a_command_line(name: str, container: dict[str, Any]) -> None:
    program, command, *arguments = container["args"]
    assert program == "pipeline"
    args = pipeline._parser(command).parse_args([command, *arguments])
    assert isinstance(args, argparse.Namespace)
    assert all("=" in setting for setting in getattr(args, "conf", ()))


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    [text] = [
        document["data"]["pixy.yaml"]
        for file in FILES
        for document in documents(file)
        if document["kind"] == "ConfigMap"
    ]
    path = tmp_path / "pixy.yaml"
    path.write_text(text)
    app = validate(load_file(str(path)))
    assert list(app.proxies) == ["main"]
    for _, container in containers():
        arguments = dict(
            each.removeprefix("--").split("=", 1)
            for each in container["args"][2:]
            if not each.startswith("--conf")
        )
        assert arguments.get("cluster", "main") == "main"


def test_mounts_and_volumes_match() -> None:
    for file in FILES:
        for document in documents(file):
            for pod in pods(document):
                volumes = {volume["name"] for volume in pod["volumes"]}
                every = [*pod.get("initContainers", ()), *pod["containers"]]
                assert {mount["name"] for each in every for mount in each["volumeMounts"]} == volumes
                mounts = [mount["mountPath"] for each in every for mount in each["volumeMounts"]]
                for each in every:
                    for argument in each["args"]:
                        name, _, path = argument.partition("=")
                        if name in ("--lake", "--out", "--config", "--prometheus") and path.startswith("/"):
                            assert any(path.startswith(mount) for mount in mounts), argument


def test_references_lead_to_something() -> None:
    kinds = {
        (document["kind"], document["metadata"]["name"]) for file in FILES for document in documents(file)
    }
    for file in FILES:
        for document in documents(file):
            assert document["apiVersion"] and document["kind"]
            for pod in pods(document):
                account = pod.get("serviceAccountName")
                assert account is None or ("ServiceAccount", account) in kinds
                for volume in pod["volumes"]:
                    if "configMap" in volume:
                        assert ("ConfigMap", volume["configMap"]["name"]) in kinds
                    if "persistentVolumeClaim" in volume:
                        assert (
                            "PersistentVolumeClaim",
                            volume["persistentVolumeClaim"]["claimName"],
                        ) in kinds
            selector = document.get("spec", {}).get("selector", {})
            labels = selector.get("matchLabels", selector)
            if labels:
                template = next(
                    other["spec"]["template"]
                    for other in documents(file)
                    if other["kind"] in ("Deployment", "Job")
                )
                assert labels.items() <= template["metadata"]["labels"].items()
