"""Compare the table of error codes with the one in Kafka's own client library."""

from __future__ import annotations

import os
import subprocess

import pytest

from pixy.wire.errors import ErrorCode
from tests.kafka.cluster import HERE, Unavailable, libs


def table(major: int) -> dict[int, tuple[str, bool, bool]]:
    try:
        jars = libs(major)
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"!!! NOT TESTED against Kafka's library: {error} !!!")
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(HERE / "ErrorTable.java")],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {int(code): (name, again == "true", refresh == "true") for code, name, again, refresh in rows}


def test_every_error_of_kafka_4() -> None:
    theirs = table(4)
    assert len(theirs) >= 135
    ours = {int(error): (error.name, error.retriable, error.refresh) for error in ErrorCode}
    assert {code: ours.get(code) for code in theirs} == theirs
    assert all(ErrorCode(code).message for code in theirs)


def test_every_error_of_kafka_3() -> None:
    theirs = table(3)
    assert len(theirs) >= 120
    assert {code: ErrorCode(code).name for code in theirs} == {
        code: name for code, (name, _, _) in theirs.items()
    }
