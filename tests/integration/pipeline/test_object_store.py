"""A lake on an object store: moto's server answers as S3 does, conditional puts included. Spark does not take part."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.data_table import describe_file
from pixy.pipeline.lake.entry import Entry, Range
from pixy.pipeline.lake.expire import expire
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.record_reader import read_records
from pixy.pipeline.lake.selection import Selection, partitions_of
from pixy.pipeline.lake.state import Ledger
from pixy.pipeline.lake.verify import verify
from tests.kafka.cluster import free_port
from tests.unit.pipeline.support import Written, publish, rows, stats_of, table_of

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of an object store."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                request = urllib.request.Request(f"{url}/lakes", method="PUT")
                urllib.request.urlopen(request, timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None and time.monotonic() < deadline, "moto does not start"
                time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def options(endpoint: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }


@pytest.fixture
def lake(options: dict[str, str], name: str) -> Lake:
    return Lake.open_or_create(f"s3a://lakes/{name}", "main", "kafka-1", options)


def write(lake: Lake, topic: str, day: str, name: str, offsets: range) -> Written:
    """Put a file of one partition into the store."""
    path, stats = f"data/job/{name}.parquet", stats_of(topic, rows(0, offsets))
    with lake.location.filesystem.open_output_stream(lake.location.for_arrow(path)) as out:
        pq.write_table(table_of(topic, rows(0, offsets)), out, compression="zstd")
    size = lake.size(path)
    assert size
    return Written(describe_file(path, topic, day, size, stats, "id"), stats)


def batch(lake: Lake, ledger: Ledger, topic: str, number: int, day: str = "2023-11-14") -> Entry:
    at = 5 * number
    file = write(lake, topic, day, f"{topic}-{number}", range(at, at + 5))
    return publish(lake, ledger, number, [file], {0: (at, at + 5)}, job=f"job-{topic}")


def test_a_lake_on_an_object_store_is_read_verified_and_expired(lake: Lake, options: dict[str, str]) -> None:
    ledger = lake.ledger()
    for number, day in enumerate(("2023-11-14", "2023-11-14", "2023-11-15")):
        batch(lake, ledger, "t", number, day)
    lake.follow()
    again = Lake.open(lake.location.root, options)
    state = again.state()
    assert state.partition_stats("t")[0].count == 15
    verdict = verify(again)
    assert (verdict.problems, verdict.records) == ([], 15)
    selection = Selection(ends=partitions_of(state, "t"))
    assert [r[0] for chunk in read_records(again, state, "t", 0, selection) for r in chunk] == list(range(15))
    (expired,) = expire(again, "2023-11-15")
    assert expired.records == 10
    assert len(again.vacuum(0, dry_run=False)) == 2
    verdict = verify(Lake.open(lake.location.root, options))
    assert (verdict.problems, verdict.records, verdict.removed) == ([], 5, {"expired": 10})
    lost = next(iter(again.state().files))
    lake.location.filesystem.delete_file(lake.location.for_arrow(lost))
    assert "is missing" in "\n".join(verify(again).problems)


def test_writers_take_turns(lake: Lake, options: dict[str, str]) -> None:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            mine = Lake.open(lake.location.root, options)
            ledger = mine.ledger()
            for at in range(5):
                batch(mine, ledger, f"u{number}", at)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert lake.state().seq == 14 and [entry.seq for entry in lake.history()] == list(range(15))
    verdict = verify(lake)
    assert (verdict.problems, verdict.records) == ([], 75)


def test_of_two_writers_of_the_same_offsets_one_is_refused(lake: Lake, options: dict[str, str]) -> None:
    other, ledger = Lake.open(lake.location.root, options), lake.ledger()
    theirs = other.ledger()
    wanted = Range("t", "id", 0, 0, 5)

    def check(found: Ledger) -> None:
        if found.overlap(wanted):
            raise LakeError("overlap")

    lake.publish(ledger, Entry("batch", "job", 0, ranges=(wanted,)), check=check)
    with pytest.raises(LakeError, match="overlap"):
        other.publish(theirs, Entry("batch", "job", 0, ranges=(wanted,)), check=check)
    assert lake.state().seq == 0


def test_the_setting_with_which_both_writers_succeed_is_refused(
    options: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsafe = {**options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    with pytest.raises(LakeError, match="lets two writers of a lake overwrite each other's commits"):
        Lake.open_or_create(f"s3://lakes/{name}", "main", "kafka-1", unsafe)
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(LakeError, match="remove it"):
        Lake.open(f"s3://lakes/{name}", options)
