"""Batch queries of ``format("pixy")``, compared with Spark's Kafka source row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.pipeline import oddities
from tests.integration.pipeline.datasource.reading import JVM_COLUMNS, jvm, ours, rows
from tests.integration.pipeline.support import World

pytestmark = pytest.mark.timeout(300)

LEVELS = ("read_committed", "read_uncommitted")


@pytest.mark.parametrize("make", [oddities.everything, oddities.appended, oddities.compacted])
def test_rows_equal_those_of_sparks_own_source(world: World, name: str, everything: str, make: Any) -> None:
    if make is oddities.everything:
        name = everything
    else:
        make(world, name)
    found = {}
    for level in LEVELS:
        # The log cleaner may run between the reads: compare rows that are there before and after.
        theirs = rows(jvm(world, name, **{"kafka.isolation.level": level}))
        mine = rows(ours(world, name, isolationLevel=level))
        again = rows(jvm(world, name, **{"kafka.isolation.level": level}))
        if make is oddities.compacted:
            partitions = {(row["partition"], row["offset"]) for row in again}
            theirs = [row for row in theirs if (row["partition"], row["offset"]) in partitions]
            mine = [row for row in mine if (row["partition"], row["offset"]) in partitions]
        assert len(mine) == len(theirs) > 0
        for row, expected in zip(mine, theirs, strict=True):
            assert row == expected
        found[level] = mine
    if make is oddities.everything:
        # The levels differ in the aborted transaction.
        assert len(found["read_uncommitted"]) - len(found["read_committed"]) == len(oddities.RECORDS)
        headers = [
            [(each["key"], each["value"]) for each in row["headers"] or ()] for row in found["read_committed"]
        ]
        assert [("h", None), ("h", b""), ("h", b"1"), ("h", None)] in headers
        assert any(row["key"] is None for row in mine) and any(row["key"] == b"" for row in mine)
        assert any(row["headers"] is None for row in mine)
    if make is oddities.appended:
        assert {row["timestampType"] for row in mine} == {1}


def test_rows_have_the_fields_of_their_batches(world: World, everything: str) -> None:
    name = everything
    fields = (
        "topic",
        "partition",
        "offset",
        "producerId",
        "producerEpoch",
        "sequence",
        "codec",
        "leaderEpoch",
        "crc",
        "isTransactional",
        "isControl",
        "baseOffset",
    )
    found = rows(ours(world, name, includeControl="true"), *fields)
    assert {row["codec"] for row in found} == set(oddities.CODECS)
    assert {row["leaderEpoch"] for row in found} == {0}
    assert all(0 < row["crc"] < 1 << 32 for row in found)
    markers = [row for row in found if row["isControl"]]
    assert [row["partition"] for row in markers] == [2, 2, 2], "two commits and an abort"
    in_transactions = [row for row in found if row["isTransactional"] and not row["isControl"]]
    assert len(in_transactions) == 3 * len(oddities.RECORDS)
    [producer] = {row["producerId"] for row in in_transactions}
    assert producer >= 0 and {row["producerId"] for row in markers} == {producer}
    # A producer numbers its records in a partition consecutively, from 0 in each epoch.
    by_epoch: dict[int, list[int]] = {}
    for row in in_transactions:
        by_epoch.setdefault(row["producerEpoch"], []).append(row["sequence"])
    assert all(numbers == list(range(len(numbers))) for numbers in by_epoch.values()), by_epoch
    plain = [row for row in found if not row["isTransactional"]]
    assert {(row["producerId"], row["producerEpoch"], row["sequence"]) for row in plain} == {(-1, -1, -1)}
    assert all(row["baseOffset"] <= row["offset"] for row in found)

    heads = rows(
        ours(world, name, mode="batches"),
        "topic",
        "partition",
        "baseOffset",
        "lastOffset",
        "count",
        "bytes",
        "codec",
        "crc",
        "crcValid",
        "isControl",
        "producerId",
        "baseSequence",
        "maxTimestamp",
    )
    assert all(row["crcValid"] for row in heads)
    assert {(row["partition"], row["baseOffset"], row["crc"]) for row in heads} == {
        (row["partition"], row["baseOffset"], row["crc"]) for row in found
    }
    assert sum(row["count"] for row in heads if not row["isControl"]) == len(found) - 3
    assert jvm(world, name).count() == len(found) - 3
    for row in heads:
        inside = [
            each
            for each in found
            if (each["partition"], each["baseOffset"]) == (row["partition"], row["baseOffset"])
        ]
        assert row["count"] == len(inside) and row["lastOffset"] == inside[-1]["offset"]


def test_ranges_and_splitting_read_each_record_once(world: World, name: str) -> None:
    world.kafka.create_topic(name, 3)
    world.produce(name, 3000, 3, **{"compression.type": "zstd"})
    every = rows(jvm(world, name))
    whole = ours(world, name)
    assert whole.rdd.getNumPartitions() == 3
    divided = ours(world, name, minPartitions=7)
    assert divided.rdd.getNumPartitions() == jvm(world, name, minPartitions=7).rdd.getNumPartitions() > 3
    assert rows(divided) == rows(whole) == every
    # Each batch's row comes from one task, however the log is divided.
    heads = rows(ours(world, name, mode="batches"), "partition", "baseOffset", "count")
    assert len(heads) < 20, "tasks divide batches"
    assert (
        rows(ours(world, name, mode="batches", minPartitions=20), "partition", "baseOffset", "count") == heads
    )
    assert sum(row["count"] for row in heads) == 3000

    start = json.dumps({name: {"0": 10, "1": -2, "2": 990}})
    end = json.dumps({name: {"0": 20, "1": -1, "2": 995}})
    for options in (
        {"startingOffsets": start, "endingOffsets": end},
        {"assign": json.dumps({name: [2]})},
        {"subscribePattern": f"{name}.*"},
        {"startingTimestamp": str(every[1500]["timestamp"])},
        {"endingTimestamp": str(every[1500]["timestamp"])},
        {
            "startingOffsetsByTimestamp": json.dumps({name: {"0": 0, "1": 99999999999999, "2": 0}}),
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ):
        assert rows(ours(world, name, **options)) == rows(jvm(world, name, **options)), options


def test_a_schema_selects_columns(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1)
    world.produce(name, 10)
    frame = ours(world, name, "offset bigint, sequence int, topic string")
    assert frame.columns == ["offset", "sequence", "topic"]
    assert rows(frame, "topic", "offset", "sequence") == [
        {"topic": name, "offset": at, "sequence": -1} for at in range(10)
    ]
    assert "headers" not in ours(world, name, includeHeaders="false").columns


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"subscrbe": "x"}, "", "option subscrbe is unknown (did you mean subscribe?)"),
        ({"startingOffsets": "latest"}, "", "option startingOffsets cannot be latest here"),
        ({"endingOffsets": "earliest"}, "", "option endingOffsets cannot be earliest here"),
        ({"startingOffsets": '{"T": {"0": 5}}'}, "", "option startingOffsets lacks T/1"),
        (
            {"startingOffsets": '{"T": {"0": 5, "1": 99}}'},
            "",
            "offset 99 of T/1 is out of range, which is 0 to 5",
        ),
        ({"startingTimestamp": "99999999999999"}, "", "T/0 has no record at or after 99999999999999"),
        ({"subscribe": "T-not-there"}, "", "topic T-not-there does not exist"),
        ({"assign": '{"T": [0, 7]}'}, "", "partition T/7 does not exist"),
        ({"mode": "rows"}, "", "option mode: 'rows' is not one of records, batches"),
        ({}, "ofset bigint", "mode records has no column 'ofset'"),
        ({}, "offset int", "column offset has type bigint, not int"),
        (
            {"kafka.bootstrap.servers": "localhost:1", "fetchOffset.retryIntervalMs": "1"},
            "",
            "brokers localhost:1, asked for the topics",
        ),
    ],
)
def test_a_wrong_query_is_an_error_that_names_the_option(
    world: World, ten_records: str, options: dict[str, str], schema: str, message: str
) -> None:
    name = ten_records
    given = {
        key: value.replace("T", name) if key != "kafka.bootstrap.servers" else value
        for key, value in options.items()
    }
    with pytest.raises(Exception) as caught:
        ours(world, name, schema, **given).collect()
    assert message.replace("T", name) in str(caught.value)


def test_deleted_offsets_are_an_error_or_left_out(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1)
    world.produce(name, 100)
    from pixy.pipeline.datasource import options, source
    from pixy.pipeline.datasource.plan import Range
    from pixy.pipeline.errors import SourceError

    world.kafka.delete_records(name, 0, 60)
    given = {"kafka.bootstrap.servers": world.kafka.bootstrap()[0], "subscribe": name}
    strict, lenient = options.parse(given), options.parse({**given, "failOnDataLoss": "false"})

    def read(which: Any, start: int, end: int) -> list[int]:
        found = source.read(which, ("offset",), Range(name, 0, start, end))
        return [offset for batch in found for offset in batch.column(0).to_pylist()]

    with pytest.raises(
        SourceError, match=f"{name}/0: offsets 10 to 59 are out of range: they were deleted .*starts at 60"
    ):
        read(strict, 10, 80)
    assert read(lenient, 10, 80) == list(range(60, 80))
    assert read(lenient, 10, 30) == []
    with pytest.raises(
        SourceError, match=f"{name}/0: offsets 150 to 199 are out of range: the log ends before them"
    ):
        read(strict, 150, 200)
    assert read(strict, 60, 100) == list(range(60, 100))
    # The id shows that a topic was recreated, whatever offsets it has.
    with pytest.raises(
        SourceError,
        match=f"{name}/0: offsets 60 to 79 cannot be read: the topic with id another was deleted and created again",
    ):
        list(source.read(strict, ("offset",), Range(name, 0, 60, 80, "another")))


def test_an_abandoned_task_closes_its_socket(world: World, name: str) -> None:
    import os

    world.kafka.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0]})
    for _ in range(200):
        producer.produce(name, b"x" * 1000, partition=0)
    producer.flush()
    from pixy.pipeline.datasource import options, source
    from pixy.pipeline.datasource.plan import Range

    found = options.parse(
        {
            "kafka.bootstrap.servers": world.kafka.bootstrap()[0],
            "subscribe": name,
            "arrowBatchRecords": "1",
        }
    )

    def sockets() -> int:
        count = 0
        for each in os.listdir("/proc/self/fd"):
            try:
                count += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
            except OSError:
                continue
        return count

    before = sockets()
    for _ in range(5):
        batches = source.read(found, JVM_COLUMNS, Range(name, 0, 0, 200))
        next(batches)
        assert sockets() > before
        batches.close()
    assert sockets() == before
