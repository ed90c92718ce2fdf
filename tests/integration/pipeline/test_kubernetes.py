"""Check the fields of the Kubernetes examples against Kubernetes' own types, which Spark contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.docs.test_kubernetes import FILES, documents


def unknown(jvm: Any, value: Any, path: str) -> Iterator[str]:
    """Yield the fields that the types do not know."""
    if type(value).__name__ == "JavaList":
        for at, each in enumerate(value):
            yield from unknown(jvm, each, f"{path}[{at}]")
    if type(value).__name__ != "JavaObject" or not value.getClass().getName().startswith("io.fabric8."):
        return
    for each in jvm.java.beans.Introspector.getBeanInfo(value.getClass()).getPropertyDescriptors():
        method = each.getReadMethod()
        if method is None or each.getName() == "class":
            continue
        found = getattr(value, method.getName())()
        if each.getName() == "additionalProperties":
            yield from (f"{path}.{name}" for name in found or ())
        else:
            yield from unknown(jvm, found, f"{path}.{each.getName()}")


def check(spark: Any, document: dict[str, Any]) -> list[str]:
    jvm = spark._jvm
    typed = jvm.io.fabric8.kubernetes.client.utils.KubernetesSerialization().unmarshal(
        yaml.safe_dump(document)
    )
    assert typed.getClass().getSimpleName() == document["kind"], "this version of the API lacks the kind"
    return list(unknown(jvm, typed, document["kind"]))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_kubernetes_knows_every_field(spark: Any, file: Any) -> None:
    for document in documents(file):
        assert check(spark, document) == []


@pytest.mark.timeout(240)
def test_a_misspelt_field_is_found(spark: Any) -> None:
    [document] = [each for each in documents(FILES[0]) if each["kind"] == "Deployment"]
    document["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    assert check(spark, document) == ["Deployment.spec.template.spec.containers[0].volumeMount"]
