"""Rows: records decoded and encoded, against kafka-python and aiokafka, and batch headers scanned."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from aiokafka.record import default_records as aiokafka_records
from kafka.record import default_records as kafka_python_records

from pixy.wire import batch, crc
from pixy.wire.batch import Builder
from tests.bench.report import Report, pairs
from tests.bench.wire.timing import in_turn

STAMP = 1_790_000_000_000
GIGABYTE = 1e9
_SCANNED = 64 * 1024 * 1024
"""Bytes of the batches to scan: more than the processor's caches hold."""


def _encode_batch(count: int, size: int, key: bytes | None = None) -> bytes:
    builder = Builder()
    for number in range(count):
        builder.add(key, b"x" * size, (), STAMP + number // 10)
    return builder.build().marshal()


def _readers(data: bytes) -> list[Callable[[], object]]:
    view = memoryview(data)
    return [
        lambda: batch.unmarshal(data, check_crc=False).records(),
        lambda: list(kafka_python_records.DefaultRecordBatch(view)),
        lambda: list(aiokafka_records._DefaultRecordBatchPy(data)),
        lambda: list(aiokafka_records._DefaultRecordBatchCython(data)),
    ]


def _check(readers: list[Callable[[], object]]) -> None:
    ours, *others = (
        [(each.offset, each.timestamp, each.key, each.value) for each in reader()] for reader in readers
    )  # type: ignore[attr-defined]
    assert all(theirs == ours for theirs in others), "the decoders disagree"


def _add_row(report: Report, what: str, target: float, rates: list[list[float]]) -> None:
    ours, kafka_python, pure, cython = rates
    report.times(
        f"{what}, against kafka-python",
        target,
        ours,
        kafka_python,
        f"aiokafka's Python {statistics.median(pairs(ours, pure)):.1f} x, its Cython "
        f"{statistics.median(pairs(ours, cython)):.2f} x ({statistics.median(cython):,.0f})",
    )


def decode(report: Report) -> None:
    """Measure decoding an uncompressed batch into records, without checking its checksum."""
    for count, size, key, target in (
        (5000, 100, None, 2.5),
        (5000, 1000, None, 2.0),
        (100, 60, b"key---", 2.0),
    ):
        readers = _readers(_encode_batch(count, size, key))
        _check(readers)
        what = f"record decode, {count:,} records of {size} B" + (
            f" with a key of {len(key)} B" if key else ""
        )
        _add_row(report, what, target, in_turn(readers, count))


def encode(report: Report) -> None:
    """Measure adding records one by one to an uncompressed batch, and its checksum."""
    count, value = 5000, b"x" * 100

    def ours() -> bytes:
        builder = Builder(base_offset=0, partition_leader_epoch=0)
        for number in range(count):
            builder.add(None, value, (), STAMP + number // 10)
        return builder.build().marshal()

    def theirs(kind: type) -> Callable[[], bytes]:
        def write() -> bytes:
            builder = kind(
                magic=2,
                compression_type=0,
                is_transactional=False,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                batch_size=1 << 30,
            )
            for number in range(count):
                builder.append(number, STAMP + number // 10, None, value, [])
            return bytes(builder.build())

        return write

    writers = [
        ours,
        *map(
            theirs,
            (
                kafka_python_records.DefaultRecordBatchBuilder,
                aiokafka_records._DefaultRecordBatchBuilderPy,
                aiokafka_records._DefaultRecordBatchBuilderCython,
            ),
        ),
    ]
    mine, *others = (batch.unmarshal(writer()).records() for writer in writers)
    assert all(other == mine for other in others), "the encoders disagree"
    _add_row(report, f"record encode, {count:,} records of 100 B", 2.0, in_turn(writers, count))


def scan(report: Report) -> None:
    """Measure reading the headers and checking the checksums of batches, without decoding records."""
    for count, target in ((5000, 1.0), (150, 1.0)):
        one = _encode_batch(count, 100)
        data = one * (_SCANNED // len(one))
        batches = _SCANNED // len(one)
        assert sum(header.records_count for header in batch.scan(data)) == count * batches
        (rates,) = in_turn(
            [lambda data=data: sum(header.records_count for header in batch.scan(data))], len(data)
        )  # type: ignore[misc]
        found = statistics.median(rates) / GIGABYTE
        report.add(
            f"scan of batch headers with checksums, batches of {len(one):,} B",
            f"{found:.1f} GB/s",
            f">= {target:g} GB/s",
            found >= target,
            f"CRC-32C by {crc.BACKEND}; {statistics.median(rates) / len(one):,.0f} batches a second",
        )
