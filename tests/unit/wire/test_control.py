"""Control records and transaction markers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import DefaultRecordBatch

from pixy.wire import batch, control
from pixy.wire.control import ControlRecord, ControlType
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError
from pixy.wire.record import Record


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker(kind: ControlType) -> None:
    made = control.transaction_marker(kind, 4000, 2, 17, base_offset=9, now=lambda: 123)
    found = batch.unmarshal(made.marshal())
    assert found == made and found.is_control and found.is_transactional
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (4000, 2, -1)
    (record,) = found.records()
    assert control.parse(record) == ControlRecord(9, 123, 0, kind, bytes.fromhex("000000000011"), 17)
    theirs = DefaultRecordBatch(memoryview(made.marshal()))
    assert theirs.is_control_batch and [each.abort for each in theirs] == [kind is ControlType.ABORT]


def test_unknown_types_are_kept() -> None:
    found = control.parse(Record(1, 2, struct.pack(">hh", 0, 99), b"later"))
    assert found == ControlRecord(1, 2, 0, 99, b"later", None)
    found = control.parse(Record(1, 2, struct.pack(">hh", 1, 2) + b"more", b"leader"))
    assert found.type is ControlType.LEADER_CHANGE and found.coordinator_epoch is None


@pytest.mark.parametrize(
    ("key", "value", "kind", "offset"),
    [
        (None, b"", TruncatedError, 0),
        (b"\x00\x00\x00", b"", TruncatedError, 3),
        (b"\xff\xff\x00\x00", bytes(6), DecodeError, 0),
        (bytes(4), None, TruncatedError, 0),
        (bytes(4), bytes(5), TruncatedError, 5),
    ],
)
def test_malformed_control_records(
    key: bytes | None, value: bytes | None, kind: type[DecodeError], offset: int
) -> None:
    with pytest.raises(kind) as caught:
        control.parse(Record(0, 0, key, value))
    assert caught.value.offset == offset


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8))
@settings(deadline=None)
def test_any_bytes(key: bytes | None, value: bytes | None) -> None:
    try:
        control.parse(Record(0, 0, key, value))
    except DecodeError as error:
        assert 0 <= error.offset <= 8


def test_a_marker_is_a_commit_or_an_abort() -> None:
    with pytest.raises(EncodeError, match="does not end a transaction"):
        control.transaction_marker(ControlType.LEADER_CHANGE, 1, 0, 0)
    with pytest.raises(EncodeError, match="coordinator_epoch is 4294967296"):
        control.transaction_marker(ControlType.COMMIT, 1, 0, 2**32)
