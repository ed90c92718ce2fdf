"""Unit tests need neither Java nor Kafka; those of the pipeline's Spark half need Spark's package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

WITHOUT_SPARK = importlib.util.find_spec("pyspark") is None
_PIPELINE = Path(__file__).with_name("pipeline")
SPARK_HALF = [str(path) for path in _PIPELINE.iterdir() if path.name not in ("__init__.py", "lake")]
collect_ignore = SPARK_HALF if WITHOUT_SPARK else []


def pytest_report_header() -> list[str]:
    """Say what is left out, so that nobody takes the part for the whole."""
    if not WITHOUT_SPARK:
        return []
    return [
        "pyspark is not installed: only the lake's tests of tests/unit/pipeline run; `make test` runs all"
    ]


@pytest.fixture(scope="session")
def pem_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA, certificates ``a`` and ``b`` of it with their keys, and files that are locked, damaged, empty or something else."""
    import trustme
    from cryptography.hazmat.primitives import serialization

    made = tmp_path_factory.mktemp("files")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(made / "ca.pem"))
    for name in ("a", "b"):
        issued = ca.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(str(made / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(made / f"{name}.key"))
    key = serialization.load_pem_private_key((made / "a.key").read_bytes(), None)
    (made / "locked.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter22"),
        )
    )
    (made / "junk").write_text("hello\n")
    (made / "empty").write_text("\n")
    lines = (made / "a.pem").read_text().splitlines()
    (made / "damaged.pem").write_text("\n".join([*lines[:3], lines[-1], ""]))
    return made
