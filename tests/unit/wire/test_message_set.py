"""Message sets of magic 0 and 1, from another implementation and malformed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from pixy.wire import compression, message_set
from pixy.wire.exceptions import CorruptedBatchError, DecodeError, UnsupportedMagicError
from pixy.wire.record import Record
from tests.unit.wire.samples import message


def theirs(magic: int, codec: int) -> bytes:
    builder = MemoryRecordsBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number in range(5):
        builder.append(
            timestamp=1000 + number,
            key=(b"k%d" % number if number else None),
            value=b"v" * number,
            headers=[],
        )
    builder.close()
    return builder.buffer()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_message_sets_of_another_implementation(magic: int, codec: int) -> None:
    found = list(message_set.iter_records(theirs(magic, codec)))
    assert [(each.offset, each.key, each.value) for each in found] == [
        (number, b"k%d" % number if number else None, b"v" * number) for number in range(5)
    ]
    assert [each.timestamp for each in found] == ([-1] * 5 if magic == 0 else [1000 + n for n in range(5)])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_any_codec(codec: int) -> None:
    data = wrap(1, 1, message(1, 0, None, b"a", 7), message(1, 1, b"k", None, 8), attributes=codec)
    assert list(message_set.iter_records(data + data[:-1])) == [
        Record(0, 7, None, b"a"),
        Record(1, 8, b"k", None),
    ]


@pytest.mark.parametrize("options", [{}, {"store_size": True}, {"content_checksum": True}])
def test_lz4_of_magic_0_with_the_wrong_header_checksum(options: dict[str, bool]) -> None:
    """Kafka up to 0.9 computed the frame's header checksum over its magic number as well (KAFKA-3160)."""
    lz4_frame = pytest.importorskip("lz4.frame")
    packed = bytearray(lz4_frame.compress(message(0, 0, None, b"a"), **{"store_size": False, **options}))
    at = 14 if options.get("store_size") else 6
    packed[at] ^= 0xFF
    found = list(message_set.iter_records(message(0, 0, None, bytes(packed), 0, 3)))
    assert [each.value for each in found] == [b"a"]
    with pytest.raises(DecodeError, match=r"in a compressed message, byte 0: not readable: .*[Cc]hecksum"):
        list(message_set.iter_records(message(1, 0, None, bytes(packed), 0, 3)))
    for size in range(16):  # cut off anywhere it is an error, and no other exception
        with pytest.raises(DecodeError):
            list(message_set.iter_records(message(0, 0, None, bytes(packed[:size]), 0, 3)))


def test_lz4_of_magic_0_as_another_implementation_writes_it() -> None:
    found = list(message_set.iter_records(theirs(0, 3)))
    assert [each.value for each in found] == [b"v" * number for number in range(5)]


def wrap(magic: int, offset: int, *inner: bytes, attributes: int = 1, timestamp: int = 0) -> bytes:
    packed = compression.get(attributes & 7).compress(b"".join(inner))
    return message(magic, offset, None, packed, timestamp, attributes)


def test_inner_offsets_are_relative_with_magic_1() -> None:
    data = wrap(1, 105, message(1, 0, None, b"a", 7), message(1, 3, None, b"b", 8))
    assert list(message_set.iter_records(data)) == [Record(102, 7, None, b"a"), Record(105, 8, None, b"b")]
    data = wrap(0, 105, message(0, 102, None, b"a"), message(0, 105, None, b"b"))
    assert [each.offset for each in message_set.iter_records(data)] == [102, 105]


def test_log_append_time_is_the_wrappers() -> None:
    data = wrap(
        1, 1, message(1, 0, None, b"a", 7), message(1, 1, None, b"b", 8), attributes=1 | 8, timestamp=50
    )
    assert [each.timestamp for each in message_set.iter_records(data)] == [50, 50]


GOOD = message(1, 3, b"key", b"value", 9)


def changed(data: bytes, position: int, byte: int) -> bytes:
    return data[:position] + bytes((byte,)) + data[position + 1 :]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (wrap(1, 0), "a compressed message has 0 bytes left over"),
        (wrap(1, 0, GOOD, GOOD[:-1]), f"a compressed message has {len(GOOD) - 1} bytes left over"),
        (wrap(1, 0, wrap(1, 0, GOOD)), "byte 0: compressed inside a compressed one"),
        (message(1, 0, None, None, 0, 1), "a compressed message has no value"),
        (message(1, 0, None, b"garbage", 0, 1), "in a compressed message, byte 0: not readable"),
        (message(1, 0, None, b"garbage", 0, 6), "unknown compression codec 6"),
        (wrap(1, 0, changed(GOOD, 12, 0xFF)), "in a compressed message, byte 0: checksum"),
    ],
)
def test_malformed_compressed_messages(data: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text) as caught:
        list(message_set.iter_records(GOOD + data))
    assert caught.value.offset == len(GOOD)


def test_a_changed_message() -> None:
    with pytest.raises(CorruptedBatchError, match="checksum of a message is") as caught:
        list(message_set.iter_records(GOOD + changed(GOOD, len(GOOD) - 1, 0)))
    assert caught.value.offset == len(GOOD)


def test_a_truncated_last_message_is_left_out() -> None:
    for size in range(len(GOOD)):
        assert len(list(message_set.iter_records(GOOD + GOOD[:size]))) == 1


def test_another_magic() -> None:
    data = bytes(30) + message(2, 0, None, None)
    with pytest.raises(UnsupportedMagicError, match="unsupported magic 2") as caught:
        message_set.decode_entry(data, 30, len(data))
    assert caught.value.offset == 46


def test_inner_lengths_must_fit_the_message() -> None:
    for position, text in ((26, "length of the key"), (33, "length of the value")):
        data = changed(GOOD, position, 0x7F)
        with pytest.raises(DecodeError, match=text):
            list(message_set.iter_records(data, check_crc=False))


def test_decompression_stops_at_the_limit() -> None:
    data = wrap(1, 0, message(1, 0, None, bytes(100_000)))
    with pytest.raises(DecodeError, match="larger than 1000 bytes"):
        list(message_set.iter_records(data, max_size=1000))


@given(st.binary(max_size=120), st.booleans(), st.integers(0, 7))
@settings(deadline=None)
def test_any_bytes_as_a_message(data: bytes, relative: bool, codec: int) -> None:
    for made in (message(relative, 1, None, data, 0, codec), data):
        try:
            list(message_set.iter_records(made, check_crc=False))
        except DecodeError as error:
            assert 0 <= error.offset <= len(made)
