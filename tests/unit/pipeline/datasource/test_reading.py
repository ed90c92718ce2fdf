"""A task turns batches into rows, and handles brokers' errors. Real sockets, a fake broker."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.pipeline.datasource import columns, options
from pixy.pipeline.datasource.batch_rows import BatchRows
from pixy.pipeline.datasource.fetching import RangeFetcher
from pixy.pipeline.datasource.plan import Range
from pixy.pipeline.datasource.record_rows import RecordRows
from pixy.pipeline.datasource.source import read
from pixy.pipeline.errors import SourceError
from pixy.wire import compression, control
from pixy.wire.batch import Batch, Builder
from pixy.wire.control import ControlType
from tests.unit.pipeline.datasource.log_broker import LogBroker
from tests.unit.wire.fake_broker import PARTITION, TOPIC
from tests.unit.wire.samples import message

T = 1_700_000_000_123


def batch(base: int, count: int, codec: str = "none", **producer: Any) -> Batch:
    builder = Builder(base_offset=base, now=lambda: T, **producer)
    for at in range(count):
        builder.add(b"k%d" % (base + at), b"v" * at)
    return builder.build().compress(compression.get(codec))


def rows(broker: LogBroker, start: int, end: int, **more: str) -> list[dict[str, Any]]:
    source = options.parse(broker.source_options(**more))
    wanted = columns.names(source.mode)
    found = read(source, wanted, Range(TOPIC, PARTITION, start, end))
    return [row for each in found for row in each.to_pylist()]


def offsets(broker: LogBroker, start: int, end: int, **more: str) -> list[int]:
    return [row["offset"] for row in rows(broker, start, end, **more)]


# -- rows -----------------------------------------------------------------------------------------


def test_rows_have_the_fields_of_records_and_their_batches() -> None:
    built = Builder(
        base_offset=7,
        partition_leader_epoch=4,
        producer_id=99,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
        now=lambda: T,
    )
    built.add(None, b"", [("h", None), ("h", b""), ("", b"x")]).add(b"", None).add(b"k", b"v", timestamp=-1)
    one = built.build().compress(compression.get("zstd"))
    with LogBroker([one], start=7) as broker:
        found = rows(broker, 7, 10)
    assert [row["sequence"] for row in found] == [2**31 - 2, 2**31 - 1, 0], "0 follows the last number"
    assert [(row["key"], row["value"]) for row in found] == [(None, b""), (b"", None), (b"k", b"v")]
    assert found[0]["headers"] == [
        {"key": "h", "value": None},
        {"key": "h", "value": b""},
        {"key": "", "value": b"x"},
    ]
    assert [row["headers"] for row in found[1:]] == [None, None]
    assert [round(row["timestamp"].timestamp() * 1000) for row in found] == [T, T, -1]
    for row in found:
        assert (row["topic"], row["partition"], row["baseOffset"]) == (TOPIC, PARTITION, 7)
        assert (row["producerId"], row["producerEpoch"], row["codec"], row["leaderEpoch"]) == (
            99,
            2,
            "zstd",
            4,
        )
        assert (row["timestampType"], row["isTransactional"], row["isControl"]) == (0, True, False)
        assert row["crc"] == int.from_bytes(one.marshal()[17:21], "big")


def test_a_header_name_that_is_not_utf8_reads_as_in_java() -> None:
    one = Builder().add(b"k", b"v", [("a\udcff\udcfeb", b"1")]).build()
    with LogBroker([one]) as broker:
        [row] = rows(broker, 0, 1)
    assert row["headers"] == [{"key": "a\ufffd\ufffdb", "value": b"1"}]


def test_only_the_range_and_the_wanted_columns_are_read() -> None:
    with LogBroker([batch(0, 10), batch(10, 10, "lz4"), batch(25, 5)], max_bytes=1) as broker:
        assert offsets(broker, 3, 27) == [*range(3, 20), 25, 26]
        assert offsets(broker, 3, 22) == [*range(3, 20)], "the range ends in a gap"
        assert offsets(broker, 20, 25) == []
    source = options.parse(broker.source_options(arrowBatchRecords="10"))
    wanted = ("offset", "codec")
    with LogBroker([batch(at * 10, 10) for at in range(5)], max_bytes=1) as broker:
        source = options.parse(broker.source_options(arrowBatchRecords="20"))
        made = list(
            RecordRows(source, Range(TOPIC, PARTITION, 0, 50), wanted).convert(
                iter(RangeFetcher(source, Range(TOPIC, PARTITION, 0, 50)))
            )
        )
    assert [each.num_rows for each in made] == [20, 20, 10]
    assert made[0].schema.names == ["offset", "codec"]


def test_messages_older_than_record_batches_are_read() -> None:
    """The formats of Kafka 0.10 lack the fields of the newer columns."""
    source = options.parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
    old = message(1, 5, b"k", b"v", 77) + message(0, 6, None, b"w")

    class Old(RangeFetcher):
        def __iter__(self) -> Any:
            return self._slices(old)

    span = Range("t", 0, 5, 7)
    [made] = RecordRows(source, span, columns.names("records")).convert(iter(Old(source, span)))
    one, two = made.to_pylist()
    assert (one["offset"], one["key"], one["value"], one["timestampType"]) == (5, b"k", b"v", 0)
    assert (two["offset"], two["key"], two["timestampType"], two["producerId"], two["sequence"]) == (
        6,
        None,
        -1,
        -1,
        -1,
    )
    with pytest.raises(SourceError, match="t/0: the batch at offset 5 cannot be read: unsupported magic 1"):
        list(BatchRows(source, span, columns.names("batches")).convert(iter(Old(source, span))))


# -- transactions -----------------------------------------------------------------------------------


def transactions() -> LogBroker:
    kept = batch(0, 3, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    gone = batch(3, 3, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
    commit = control.transaction_marker(ControlType.COMMIT, 1, 0, 0, base_offset=6)
    abort = control.transaction_marker(ControlType.ABORT, 2, 0, 0, base_offset=7)
    again = batch(8, 2, producer_id=2, producer_epoch=0, base_sequence=3, transactional=True)
    broker = LogBroker([kept, gone, commit, abort, again, batch(10, 1)])
    broker.aborted = [(2, 3)]
    return broker


def test_aborted_transactions_and_markers() -> None:
    with transactions() as broker:
        assert offsets(broker, 0, 11) == [0, 1, 2, 3, 4, 5, 8, 9, 10]
        assert offsets(broker, 0, 11, isolationLevel="read_committed") == [0, 1, 2, 8, 9, 10]
        found = rows(broker, 0, 11, includeControl="true")
        assert [row["offset"] for row in found if row["isControl"]] == [6, 7]
        heads = rows(broker, 0, 11, mode="batches", isolationLevel="read_committed")
        assert [(row["baseOffset"], row["isControl"]) for row in heads] == [
            (0, False),
            (6, True),
            (7, True),
            (8, False),
            (10, False),
        ]


# -- mode batches -----------------------------------------------------------------------------------


def test_mode_batches_reads_headers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a batch was decompressed")

    one, two = batch(0, 100, "zstd", producer_id=5, producer_epoch=1, base_sequence=7), batch(100, 50, "gzip")
    monkeypatch.setattr(compression, "get", refuse)
    with LogBroker([one, two]) as broker:
        found = rows(broker, 0, 150, mode="batches")
        assert [
            (row["baseOffset"], row["lastOffset"], row["count"], row["codec"], row["bytes"]) for row in found
        ] == [
            (0, 99, 100, "zstd", len(one.marshal())),
            (100, 149, 50, "gzip", len(two.marshal())),
        ]
        assert (found[0]["producerId"], found[0]["producerEpoch"], found[0]["baseSequence"]) == (5, 1, 7)
        # A batch belongs to the range of its last offset, so each is in one range of any division.
        for cut in range(0, 151, 10):
            parts = rows(broker, 0, cut, mode="batches") + rows(broker, cut, 150, mode="batches")
            assert [row["baseOffset"] for row in parts] == [0, 100]


def damaged(base: int) -> bytes:
    data = bytearray(batch(base, 5).marshal())
    data[-1] ^= 1
    return bytes(data)


def test_a_wrong_checksum_is_an_error_or_marked_in_mode_batches() -> None:
    with LogBroker([batch(0, 5), damaged(5), batch(10, 5)]) as broker:
        heads = rows(broker, 0, 15, mode="batches")
        assert [(row["baseOffset"], row["crcValid"]) for row in heads] == [(0, True), (5, False), (10, True)]
        with pytest.raises(
            SourceError, match=f"{TOPIC}/{PARTITION}: the batch at offset 5 cannot be read: checksum"
        ):
            rows(broker, 0, 15)
        assert offsets(broker, 0, 5) == [0, 1, 2, 3, 4], "batches outside the range do not matter"


def test_batches_that_do_not_decode_are_errors_that_name_them() -> None:
    bad = batch(5, 3)
    bad.payload = b"\x7f" + bad.payload[1:]
    bomb = Builder(base_offset=9).add(None, bytes(100_000)).build().compress(compression.get("gzip"))
    with LogBroker([batch(0, 5), bad, bomb]) as broker:
        with pytest.raises(
            SourceError, match=f"{TOPIC}/{PARTITION}: the batch at offset 5 cannot be read: record 0"
        ):
            rows(broker, 0, 9)
        with pytest.raises(
            SourceError, match="at offset 9 cannot be read: gzip: decompressed, it is larger than 5000"
        ):
            rows(broker, 9, 10, maxBatchBytes="5000")


# -- brokers' errors --------------------------------------------------------------------------------


def test_transient_errors_are_retried() -> None:
    with LogBroker([batch(0, 5), batch(5, 5)], max_bytes=1) as broker:
        broker.errors = [6, 5, 7]  # leader moved, no leader, timeout
        broker.hang_up = 2
        assert offsets(broker, 0, 10) == list(range(10))
        assert broker.connections > 5


class Clock:
    """A clock that only advances when the fetcher sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)


def fetch(broker: LogBroker, clock: Clock, end: int, **more: str) -> list[Any]:
    source = options.parse(broker.source_options(**more))
    return list(RangeFetcher(source, Range(TOPIC, PARTITION, 0, end), clock=clock, sleep=clock.sleep))


def test_retries_end_after_the_poll_timeout() -> None:
    more = {"kafkaConsumer.pollTimeoutMs": "3000", "kafka.retry.backoff.ms": "100"}
    clock = Clock()
    with LogBroker([batch(0, 5)]) as broker:
        broker.errors = [6] * 1000
        with pytest.raises(
            SourceError,
            match=rf"{TOPIC}/{PARTITION} at offset 0: NOT_LEADER.* \(retried for 3 s, kafkaConsumer.pollTimeoutMs\)",
        ):
            fetch(broker, clock, 5, **more)
        assert len(broker.names()) < 60, "waits grow"
        broker.errors = []
        with pytest.raises(
            SourceError, match=f"{TOPIC}/{PARTITION}: offsets 5 to 8 did not come in 3 s .*the log ends at 5"
        ):
            fetch(broker, Clock(), 9, **more)


def test_permanent_errors_are_raised_at_once() -> None:
    clock = Clock()
    with LogBroker([batch(0, 5)]) as broker:
        broker.errors = [29]
        with pytest.raises(SourceError, match=f"{TOPIC}/{PARTITION} at offset 0: TOPIC_AUTHORIZATION_FAILED"):
            fetch(broker, clock, 5)
        assert clock.now == 0


def test_deleted_offsets_are_an_error_or_left_out() -> None:
    with LogBroker([batch(10, 10)], start=13) as broker:
        with pytest.raises(
            SourceError, match=r"offsets 0 to 12 are out of range: they were deleted .*failOnDataLoss=false"
        ):
            offsets(broker, 0, 20)
        assert offsets(broker, 0, 20, failOnDataLoss="false") == list(range(13, 20)), (
            "offsets below the log's start are left out, even if their batch is there"
        )
        assert offsets(broker, 0, 12, failOnDataLoss="false") == []
        assert offsets(broker, 13, 20) == list(range(13, 20))
