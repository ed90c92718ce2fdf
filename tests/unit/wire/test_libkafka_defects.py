"""Defects of libkafka (Go) in records and batches do not recur here."""

from __future__ import annotations

import base64

import pytest

from pixy.wire import batch, compression, control, errors, message_set, record, record_set
from pixy.wire.batch import Batch, Builder
from pixy.wire.exceptions import CorruptedBatchError, DecodeError, TruncatedError
from pixy.wire.record import Record
from tests.unit.wire.samples import message, record_body, typical


def test_defect_1_a_null_key_is_not_an_empty_key() -> None:
    null, empty = (Builder(now=lambda: 1).add(key, b"v").build() for key in (None, b""))
    assert null.payload != empty.payload
    assert null.payload[4:5] == b"\x01" and empty.payload[4:5] == b"\x00"
    assert null.records()[0].key is None and empty.records()[0].key == b""
    tombstone, blank = (Builder(now=lambda: 1).add(b"k", value).build() for value in (None, b""))
    assert tombstone.records()[0].value is None and blank.records()[0].value == b""


def test_defect_2_headers_are_written_and_read() -> None:
    headers = (("trace", b"1"), ("trace", None), ("empty", b""))
    assert Builder().add(None, None, headers).build().records()[0].headers == headers


def test_defect_3_attributes_of_a_record_are_an_int8() -> None:
    data = record.encode([Record(0, 0, None, None, (), 1)])
    assert data == record_body(attributes=b"\x01")
    assert record.decode(data, 1)[0].attributes == 1
    assert record.decode(record_body(attributes=b"\xff"), 1)[0].attributes == -1


def test_defect_4_timestamps_differ_and_no_producer_has_no_sequence() -> None:
    made = Builder().add(None, b"a", timestamp=100).add(None, b"b", timestamp=250).build()
    assert [each.timestamp for each in batch.unmarshal(made.marshal()).records()] == [100, 250]
    assert (made.base_timestamp, made.max_timestamp) == (100, 250)
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize("codec", list(compression.Codec))
def test_defect_5_compression_keeps_the_other_attributes(codec: compression.Codec) -> None:
    made = typical().build()
    made.attributes = 0x0078  # timestamp type, transactional, control, delete horizon
    packed = made.compress(compression.get(codec))
    assert packed.attributes == 0x0078 | codec
    assert packed.decompress().attributes == 0x0078
    assert packed.is_log_append_time and packed.is_transactional and packed.is_control


def test_defect_6_a_buffer_of_any_length() -> None:
    data = typical().build().marshal()
    for size in range(len(data)):
        with pytest.raises(TruncatedError):
            batch.unmarshal(data[:size])
        assert list(batch.iter_batches(data[:size])) == []


def test_defect_6_the_checksum_ends_with_the_batch() -> None:
    data = typical().build().marshal()
    assert batch.unmarshal(data + data[:30]) == batch.unmarshal(data)
    assert len(list(batch.iter_batches(data + data))) == 2


def test_defect_6_three_bytes_are_no_record() -> None:
    for data in (b"\x04\x00\x00", b"\x02\x00\x00", bytes(3)):
        with pytest.raises(DecodeError):
            record.decode(data, 1)


@pytest.mark.timeout(5)
def test_defect_6_a_truncated_varint_ends() -> None:
    for data in (b"\x80", b"\x80" * 7, b"\x0e\x00\x00\x00\x01\x01\x80", b"\xff" * 100):
        with pytest.raises(DecodeError):
            record.decode(data, 1)
    assert not list(batch.iter_batches(b"\xff" * 16))


def test_defect_9_control_batches() -> None:
    marker = control.transaction_marker(control.ControlType.ABORT, 1, 0, 3, now=lambda: 5)
    data = Builder(transactional=True).add(None, b"x").build().marshal() + marker.marshal()
    assert [each.value for each in record_set.iter_records(data)] == [b"x"]
    *_, last = record_set.iter_records(data, control=True)
    assert control.parse(last).type is control.ControlType.ABORT


def test_defect_9_magic_0_and_1() -> None:
    data = message(0, 1, None, b"old") + message(1, 2, b"k", None, 77)
    assert list(message_set.iter_records(data)) == [Record(1, -1, None, b"old"), Record(2, 77, b"k", None)]


def test_defect_9_compaction_keeps_the_last_offset_delta() -> None:
    left = Builder(base_offset=100).add(None, b"a").add(None, b"b", offset=105).build()
    left.last_offset_delta = 9  # records 106 to 109 were removed
    found = batch.unmarshal(left.marshal())
    assert [each.offset for each in found.records()] == [100, 105]
    assert (found.last_offset, found.next_offset, found.records_count) == (109, 110, 2)


def test_defect_9_error_codes_above_81() -> None:
    assert errors.lookup(110) is errors.ErrorCode.FENCED_MEMBER_EPOCH


def test_a_batch_that_libkafka_calls_empty_is_read() -> None:
    assert batch.unmarshal(Batch(last_offset_delta=3).marshal()).records() == []


def test_a_changed_byte_in_a_batch_of_kafka_1_0() -> None:
    data = bytearray(
        base64.b64decode(
            "AAAAAAAAAAMAAABMAAAAAAJx8ZMnAAAAAAACAAABbZh/WLMAAAFtmH9Ys/////////////8AAAAAAAAAAxAAAAABBG0xABAAAAIBBG0y"
            "ABAAAAQBBG0zAA=="
        )
    )
    data[86] = 0xFF
    with pytest.raises(CorruptedBatchError):
        batch.unmarshal(data)
