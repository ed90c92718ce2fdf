"""Decoding and encoding records, and the place that errors name."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings, strategies as st

from pixy.wire import record, varint
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError
from pixy.wire.record import Record
from tests.effort import examples
from tests.unit.wire.samples import record_body, records


def one(data: bytes) -> Record:
    (found,) = record.decode(data, 1)
    return found


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (
            "EAAAAAAEbTEAEAAAAgEEbTIAEAAABAEEbTMA",
            [
                Record(0, 0, b"", b"m1"),
                Record(1, 0, None, b"m2"),
                Record(2, 0, None, b"m3"),
            ],
        ),
        ("EAAABAEEbTMA", [Record(2, 0, None, b"m3")]),
    ],
)
def test_record_bodies_of_libkafka(encoded: str, expected: list[Record]) -> None:
    data = base64.b64decode(encoded)
    assert record.decode(data, len(expected)) == expected
    assert record.encode(expected) == data


@pytest.mark.parametrize("key", [b"", b"foo", None])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 100_000, 2**21])
def test_record_table_of_libkafka(key: bytes | None, size: int) -> None:
    made = Record(0, 0, key, b"v" * size)
    assert one(record.encode([made])) == made


@given(records(min_size=0))
@settings(max_examples=examples(200), deadline=None)
def test_any_records_round_trip(made: list[Record]) -> None:
    base_offset, base_timestamp = (made[0].offset, made[0].timestamp) if made else (0, 0)
    data = record.encode(made, base_offset, base_timestamp)
    assert record.decode(data, len(made), base_offset, base_timestamp) == made
    assert record.decode(memoryview(data), len(made), base_offset, base_timestamp) == made  # type: ignore[arg-type]


@given(records())
@settings(deadline=None)
def test_the_slow_path_reads_the_same(made: list[Record]) -> None:
    base_offset, base_timestamp = made[0].offset, made[0].timestamp
    data = record.encode(made, base_offset, base_timestamp)
    position = 0
    for number, expected in enumerate(made):
        found, position = record._read(data, position, number, base_offset, base_timestamp)
        assert found == expected
    assert position == len(data)


@given(records(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_both_paths_agree_on_modified_bytes(made: list[Record], data: st.DataObject) -> None:
    encoded = bytearray(record.encode(made, made[0].offset, made[0].timestamp))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, min(len(encoded), 60) - 1))] = data.draw(st.integers(0, 255))

    def careful() -> list[Record] | None:
        found, position = [], 0
        try:
            for number in range(len(made)):
                each, position = record._read(bytes(encoded), position, number, 0, 0)
                found.append(each)
        except DecodeError:
            return None
        return found if position == len(encoded) else None

    try:
        quick = record.decode(bytes(encoded), len(made))
    except DecodeError as error:
        assert 0 <= error.offset <= len(encoded)
        assert careful() is None
    else:
        assert quick == careful()


def test_needlessly_long_varints_are_read() -> None:
    body = b"\x00" + b"\x80\x00" * 2 + b"\x81\x00" + b"\x84\x00ab" + b"\x80\x80\x00"
    assert one(bytes((len(body) * 2,)) + body) == Record(0, 0, None, b"ab")


def test_header_keys_may_repeat_and_need_not_be_text() -> None:
    made = Record(
        0, 0, None, None, (("a", b""), ("a", None), ("", b"x"), ("\udcff", b"y"), ("é" * 40, b"z" * 70))
    )
    data = record.encode([made])
    assert b"\x02\xff" in data  # a key of one byte that is not UTF-8
    assert one(data) == made


def test_negative_deltas() -> None:
    made = [Record(10, 1000, None, None), Record(11, 400, None, None), Record(9, -(2**62), None, None)]
    assert record.decode(record.encode(made, 10, 1000), 3, 10, 1000) == made


GOOD = record_body(key=b"\x06key", value=b"\x0avalue", headers=b"\x02\x02h\x02v")


@pytest.mark.parametrize(
    ("data", "kind", "offset", "text"),
    [
        (b"\x10" + bytes(6), TruncatedError, 0, "record 0: its length is 8, and 6 bytes are left"),
        (b"\x80\x80\x80\x80\x80\x00\x00", DecodeError, 0, "record 0: varint is longer than 5 bytes"),
        (b"\x80" * 4 + b"\x7f" + bytes(9), DecodeError, 0, "record 0: varint does not fit 32 bits"),
        (b"\x01" + bytes(9), DecodeError, 0, "record 0: its length is -1"),
        (b"\x00" + bytes(9), DecodeError, 0, "record 0: its length is 0"),
        (b"\x02" + bytes(9), DecodeError, 2, "record 0, of length 1: varint is cut off"),
        (record_body(key=b"\x03"), DecodeError, 4, "length of the key is -2, with 2 bytes left"),
        (record_body(value=b"\x08ab"), DecodeError, 5, "length of the value is 4, with 3 bytes left"),
        (
            record_body(value=b"\xfe\xff\xff\xff\x0f"),
            DecodeError,
            5,
            "length of the value is 2147483647, with 1 bytes",
        ),
        (record_body(headers=b"\x01"), DecodeError, 6, "-1 headers cannot be in 0 bytes"),
        (
            record_body(headers=b"\xfe\xff\xff\xff\x0f"),
            DecodeError,
            6,
            "2147483647 headers cannot be in 0 bytes",
        ),
        (record_body(headers=b"\x02\x01\x01"), DecodeError, 7, "key of header 0 is null"),
        (record_body(headers=b"\x02\x02a\x04b"), DecodeError, 9, "length of the value of header 0 is 2"),
        (record_body(headers=b"\x02\x08a\x01"), DecodeError, 7, "length of the key of header 0 is 4"),
        (record_body(headers=b"\x00\x00\x00"), DecodeError, 7, "its fields take 2 bytes less"),
        (record_body(timestamp=b"\xff" * 9 + b"\x02"), DecodeError, 2, "varint does not fit 64 bits"),
        (record_body(timestamp=b"\x80" * 10 + b"\x00"), DecodeError, 2, "varint is longer than 10 bytes"),
        (record_body(offset=b"\xff\xff\xff\xff\x10"), DecodeError, 3, "varint does not fit 32 bits"),
        # The record and the value of its header both claim 20 bytes more than there are.
        (
            b"\x3c\x00\x00\x00\x01\x01\x02\x02h\x2a" + b"v",
            TruncatedError,
            0,
            "its length is 30, and 10 bytes are left",
        ),
        (GOOD + b"\x00", DecodeError, len(GOOD), "1 bytes are left over after 1 records"),
    ],
)
def test_a_malformed_record_is_reported_with_its_offset(
    data: bytes, kind: type[DecodeError], offset: int, text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        record.decode(data, 1)
    assert caught.value.offset == offset and type(caught.value) is kind


def test_a_malformed_record_is_reported_with_its_number() -> None:
    with pytest.raises(DecodeError, match="record 2: its length") as caught:
        record.decode(GOOD * 2 + b"\x7e" + bytes(20), 3)
    assert caught.value.offset == len(GOOD) * 2


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_an_impossible_count_is_refused_before_decoding(count: int) -> None:
    with pytest.raises(DecodeError, match=f"{count} records cannot be in 7 bytes"):
        record.decode(bytes(7), count)


@pytest.mark.parametrize("cut", range(1, len(GOOD)))
def test_a_record_truncated_at_any_byte(cut: int) -> None:
    with pytest.raises(DecodeError):
        record.decode(GOOD[:cut], 1)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ((0, 0, "key", None, (), 0), "record 1: its key is str"),
        ((0, 0, None, "value", (), 0), "record 1: its value is str"),
        ((0, 0, None, None, (("h", "text"),), 0), "record 1: header 0: its value is str, not bytes"),
        ((0, 0, None, None, ((b"h", None),), 0), "record 1: header 0: its key is bytes, not str"),
        ((0, 0, None, None, (("\ud800", None),), 0), "record 1: header 0: its key .* is not text"),
        ((0, 0, None, None, (), 128), "record 1: "),
        ((2**31, 0, None, None, (), 0), "record 1: 2147483648 does not fit a varint"),
        ((0, 2**63, None, None, (), 0), "record 1: 9223372036854775808 does not fit a varlong"),
        ((0, 1.5, None, None, (), 0), "record 1: "),
    ],
)
def test_a_record_that_cannot_be_encoded(fields: tuple[object, ...], text: str) -> None:
    with pytest.raises(EncodeError, match=text):
        record.encode([Record(0, 0, None, None), fields])


def test_encoded_sizes() -> None:
    smallest = record.encode([Record(0, 0, None, None)])
    assert len(smallest) == record.MIN_RECORD_SIZE == 1 + varint.decode_varint(smallest)[0]
