"""Compare the tables derived from Kafka's schemas with the schemas in its clients' jars, which Maven fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pixy.tap.inventory import MINIMUM, REMOVED
from proto import kafka_messages
from tests.support import ROOT


def require_maven() -> None:
    if shutil.which("mvn") is None:
        if os.environ.get("CI"):
            raise RuntimeError("mvn not found")
        pytest.skip("!!! NOT TESTED against Kafka's schemas: mvn not found !!!")


def test_the_table_equals_kafkas_schemas(tmp_path: Path) -> None:
    """Derive the table again from the jars, in a process as `make messages` does, and compare."""
    require_maven()
    program = (
        "import sys; sys.path.insert(0, 'proto'); import kafka_messages as m; from pathlib import Path;"
        f"Path({str(tmp_path / 'table')!r}).write_text(m.table(m.fetch(m.OLD), m.fetch(m.NEW)))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=900)
    assert (tmp_path / "table").read_text() == (ROOT / "pixy/wire/messages.txt").read_text(), (
        "run `make messages`"
    )


def test_minimum_versions_are_those_of_the_jar() -> None:
    """Derive the minimum versions from the schemas in the jar of Kafka 4.3 and compare."""
    require_maven()
    jar = kafka_messages.fetch(kafka_messages.NEW)
    assert zipfile.is_zipfile(jar)
    found = {
        each["apiKey"]: kafka_messages.parse_range(each["validVersions"])
        for name, each in kafka_messages.schemas(jar).items()
        if name.endswith("Request")
    }
    assert {key: first for key, (first, last) in found.items() if first > 0 and last >= first} == MINIMUM
    assert {key for key, (first, last) in found.items() if last < first} == REMOVED
