"""Batches: libkafka's fixtures, reading and writing, record sets, and errors."""

from __future__ import annotations

import base64
import pickle
import struct

import pytest
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import DefaultRecordBatch

from pixy.wire import batch, compression, crc, record_set
from pixy.wire.batch import Batch, Builder
from pixy.wire.exceptions import (
    CorruptedBatchError,
    DecodeError,
    EncodeError,
    TruncatedError,
    UnsupportedMagicError,
    WireError,
)
from pixy.wire.record import Record
from tests.unit.wire.samples import message, records, typical

KAFKA_1_0 = base64.b64decode(
    "AAAAAAAAAAMAAABMAAAAAAJx8ZMnAAAAAAACAAABbZh/WLMAAAFtmH9Ys/////////////8AAAAAAAAAAxAAAAABBG0xABAAAAIBBG0yABAAAAQBBG0zAA=="
)
PRODUCER = bytes.fromhex(
    "0000000000000000000000450000000002b8777b1c00000000000100000170eab6a7e000000170eab6a7e0"
    "ffffffffffffffffffff0000000000000002120000000006666f6f0012000002000662617200"
)


def built(**options: int) -> Builder:
    return Builder(partition_leader_epoch=0, base_sequence=0, **options)  # type: ignore[arg-type]


# -- libkafka's fixtures ----------------------------------------------------------------------------


def test_a_batch_from_kafka_1_0() -> None:
    found = batch.unmarshal(KAFKA_1_0)
    stamp = 1570221545651
    assert found.records() == [Record(3 + n, stamp, None, b"m%d" % (n + 1)) for n in range(3)]
    assert (found.base_offset, found.last_offset, found.next_offset) == (3, 5, 6)
    assert (found.base_timestamp, found.max_timestamp) == (stamp, stamp)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, 0)
    assert found.marshal() == KAFKA_1_0
    builder = built(base_offset=3)
    for value in (b"m1", b"m2", b"m3"):
        builder.add(None, value, timestamp=stamp)
    assert builder.build() == found
    (header,) = batch.scan(KAFKA_1_0)
    assert (header.crc, header.length, header.size, header.records_count) == (1911657255, 76, 88, 3)


def test_a_changed_byte_fails_the_checksum() -> None:
    changed = bytearray(KAFKA_1_0)
    changed[86] = 0xFF
    with pytest.raises(CorruptedBatchError, match="its header says 0x71f19327") as caught:
        batch.unmarshal(changed)
    assert caught.value.offset == 0
    assert batch.unmarshal(changed, check_crc=False).records()[2].value == b"m\xff"


def test_magic_is_checked_before_the_checksum() -> None:
    data = built().add(None, b"test batch for libkafka", timestamp=1).build().marshal()
    assert len(data) == 91
    assert batch.unmarshal(data).records()[0].value == b"test batch for libkafka"
    for magic in (0, 1, 3, -1):
        with pytest.raises(UnsupportedMagicError, match=f"unsupported magic {magic} ") as caught:
            batch.unmarshal(data[:16] + struct.pack("b", magic) + data[17:])
        assert (caught.value.magic, caught.value.offset) == (magic, 16)


def test_a_batch_of_libkafkas_producer() -> None:
    made = built(now=lambda: 1584485804000).add(b"", b"foo").add(b"", b"bar").build()
    data = made.marshal()
    assert struct.unpack_from(">I", data, 17) == (3094838044,)
    assert data == PRODUCER
    assert [(each.key, each.value) for each in batch.unmarshal(data).records()] == [
        (b"", b"foo"),
        (b"", b"bar"),
    ]


# -- writing and reading ----------------------------------------------------------------------------


@given(records(), st.integers(0, 2), st.booleans(), st.sampled_from(list(compression.Codec)))
@settings(deadline=None)
def test_any_batch_round_trips(
    made: list[Record], gap: int, transactional: bool, codec: compression.Codec
) -> None:
    builder = Builder(
        base_offset=max(made[0].offset - gap, 0),
        producer_id=7,
        producer_epoch=1,
        base_sequence=2**31 - 1,
        transactional=transactional,
    )
    whole = builder.extend(made).build()
    packed = whole.compress(compression.get(codec))
    assert packed.codec == codec and packed.is_transactional is transactional
    found = batch.unmarshal(b"123" + packed.marshal() + b"tail", 3)
    assert found == packed and found.position == 3
    assert found.records() == made and found.decompress() == whole
    assert (found.base_offset, found.last_offset) == (whole.base_offset, made[-1].offset)
    assert found.max_timestamp == max(each.timestamp for each in made)


@given(records())
@settings(deadline=None)
def test_another_implementation_reads_the_same(made: list[Record]) -> None:
    # It reads a record's attributes as a varint, and refuses header keys that are not text.
    made = [
        each._replace(
            attributes=0, headers=tuple((key.replace("\udcff", "x"), value) for key, value in each.headers)
        )
        for each in made
    ]
    data = Builder(base_offset=made[0].offset).extend(made).build().marshal()
    theirs = DefaultRecordBatch(memoryview(data))
    assert theirs.validate_crc()
    assert [(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs] == [
        tuple(each[:5]) for each in made
    ]


def test_an_empty_batch_is_legal() -> None:
    emptied = Batch(base_offset=10, last_offset_delta=4, max_timestamp=77)
    found = batch.unmarshal(emptied.marshal())
    assert found == emptied and found.records() == [] and found.next_offset == 15


def test_log_append_time_applies_to_all_records() -> None:
    made = Builder(log_append_time=True).add(None, b"a", timestamp=1).add(None, b"b", timestamp=9).build()
    made.max_timestamp = 500
    found = batch.unmarshal(made.compress(compression.get("gzip")).marshal())
    assert found.is_log_append_time
    assert [each.timestamp for each in found.records()] == [500, 500]


def test_a_delete_horizon_is_the_base_timestamp() -> None:
    made = typical().build()
    made.attributes |= 0x40
    found = batch.unmarshal(made.marshal())
    assert found.has_delete_horizon and found.records() == made.records()


def test_leader_epoch_and_base_offset_are_outside_the_checksum() -> None:
    data = bytearray(typical().build().marshal())
    struct.pack_into(">q", data, 0, 1000)
    struct.pack_into(">i", data, 12, 42)
    found = batch.unmarshal(data)
    assert (found.base_offset, found.partition_leader_epoch) == (1000, 42)
    assert [each.offset for each in found.records()] == [1000, 1001, 1002]


def test_a_builder_needs_a_record() -> None:
    with pytest.raises(EncodeError, match="a batch needs a record"):
        Builder().build()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"key": "k", "value": None}, "key of a record is str, neither bytes nor None"),
        ({"key": None, "value": 1}, "value of a record is int, neither bytes nor None"),
        (
            {"key": None, "value": None, "offset": 2},
            "offset 2 is not after those before, 3 would be the least",
        ),
        (
            {"key": None, "value": None, "timestamp": 1.5},
            "timestamp 1.5 and offset 3 of a record must be integers",
        ),
    ],
)
def test_a_builder_names_the_invalid_field(arguments: dict[str, object], text: str) -> None:
    builder = Builder(base_offset=2).add(None, None)
    with pytest.raises(EncodeError, match=text):
        builder.add(**arguments)  # type: ignore[arg-type]
    assert len(builder) == 1 and builder.add(None, None).build().last_offset == 3


def test_a_builder_accepts_any_buffer_and_uses_its_clock() -> None:
    made = Builder(now=lambda: 7).add(bytearray(b"k"), memoryview(b"v")).build()  # type: ignore[arg-type]
    assert made.records() == [Record(0, 7, b"k", b"v")]


def test_extended_records_must_ascend() -> None:
    with pytest.raises(EncodeError, match="offset 4 is not after"):
        Builder().extend([Record(4, 0, None, None), Record(4, 0, None, None)])


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("producer_epoch", 40_000, "producer_epoch of a batch is 40000, which is not an int16"),
        ("base_offset", 2**63, "base_offset of a batch is 9223372036854775808, which is not an int64"),
        ("partition_leader_epoch", None, "partition_leader_epoch of a batch is None, which is not an int32"),
        ("records_count", 1.5, "records_count of a batch is 1.5"),
        ("payload", "text", "payload of a batch is str, not bytes"),
    ],
)
def test_marshal_names_the_field_that_is_out_of_range(field: str, value: object, text: str) -> None:
    made = typical().build()
    setattr(made, field, value)
    with pytest.raises(EncodeError, match=text):
        made.marshal()


# -- compression ------------------------------------------------------------------------------------


class Reversing:
    """A codec from outside the library."""

    codec = 1

    def compress(self, data: bytes, /) -> bytes:
        return data[::-1]

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        if len(data) > max_size:
            raise compression.too_large(max_size)
        return data[::-1]


def test_codecs_are_pluggable() -> None:
    plain = typical().build()
    packed = plain.compress(Reversing())
    assert packed.payload == plain.payload[::-1] and packed.codec == compression.Codec.GZIP
    assert packed.decompress(Reversing()) == plain
    with pytest.raises(DecodeError, match="larger than 5 bytes") as caught:
        packed.decompress(Reversing(), max_size=5)
    assert caught.value.offset == 61
    with pytest.raises(DecodeError, match="batch has codec 1, the decompressor is for 4"):
        packed.decompress(compression.get("zstd"))


def test_compressing_again_replaces_the_codec() -> None:
    plain = typical().build()
    twice = plain.compress(compression.get("gzip")).compress(compression.get("zstd"))
    assert twice.codec == compression.Codec.ZSTD and twice.decompress() == plain
    assert twice.compress(compression.get("none")) == plain


def test_an_unknown_codec() -> None:
    made = typical().build()
    made.attributes |= 5
    found = batch.unmarshal(made.marshal())
    assert found.codec == 5
    with pytest.raises(DecodeError, match="unknown compression codec 5") as caught:
        found.records()
    assert caught.value.offset == 21


def test_truncated_compressed_bytes_are_not_a_truncated_batch() -> None:
    packed = typical(50).build().compress(compression.get("zstd"))
    packed.payload = packed.payload[:-3]
    with pytest.raises(DecodeError, match="zstd: compressed data is cut off") as caught:
        batch.unmarshal(packed.marshal()).records()
    assert not isinstance(caught.value, TruncatedError)
    assert caught.value.offset == 61 + len(packed.payload)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_decompression_stops_at_the_limit(codec: str) -> None:
    packed = Builder().add(None, bytes(3_000_000)).build().compress(compression.get(codec))
    with pytest.raises(DecodeError, match="larger than 1000000 bytes") if codec != "none" else nothing():
        batch.unmarshal(packed.marshal()).records(max_size=1_000_000)
    assert len(batch.unmarshal(packed.marshal()).records(max_size=3_000_100)) == 1


class nothing:  # noqa: N801
    """Uncompressed bytes are already in memory: there is no limit to enforce."""

    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


def test_errors_in_compressed_records_name_the_decompressed_byte() -> None:
    made = typical().build()
    made.payload = made.payload[:-1] + b"\x02"
    assert batch.unmarshal(made.marshal()).payload == made.payload
    with pytest.raises(DecodeError, match=r"^record 2, of length") as caught:
        batch.unmarshal(made.marshal()).records()
    assert caught.value.offset == 61 + len(made.payload) - 1
    packed = b"12345" + made.compress(compression.get("lz4")).marshal()
    with pytest.raises(DecodeError, match=f"^decompressed byte {len(made.payload) - 1}: record 2") as caught:
        batch.unmarshal(packed, 5).records()
    assert caught.value.offset == 66


# -- record sets ------------------------------------------------------------------------------------


def test_a_record_set_of_several_batches() -> None:
    each = [Builder(base_offset=10 * n).add(None, b"%d" % n).build() for n in range(3)]
    data = b"".join(one.marshal() for one in each)
    found = list(batch.iter_batches(data))
    assert found == each
    assert [one.position for one in found] == [0, len(data) // 3, 2 * len(data) // 3]
    assert list(batch.iter_batches(memoryview(data), found[1].position)) == each[1:]
    assert [header.base_offset for header in batch.scan(bytearray(data))] == [0, 10, 20]
    assert [record.value for record in record_set.iter_records(data)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("size", [0, 1, 8, 12, 16, 17, 60, 61, 70, 87])
def test_a_truncated_last_batch_is_left_out(size: int) -> None:
    data = PRODUCER + KAFKA_1_0[:size]
    assert [found.base_offset for found in batch.iter_batches(data)] == [0]
    assert len(list(batch.scan(data))) == 1 and len(list(record_set.iter_records(data))) == 2
    if size:
        with pytest.raises(TruncatedError) as caught:
            batch.unmarshal(data, len(PRODUCER))
        assert caught.value.offset == len(PRODUCER)


@pytest.mark.parametrize("length", [0, 48, -1, -(2**31)])
def test_an_impossible_length(length: int) -> None:
    data = PRODUCER + PRODUCER[:8] + struct.pack(">i", length) + PRODUCER[12:]
    with pytest.raises(DecodeError, match=f"length of a batch is {length}") as caught:
        list(batch.iter_batches(data))
    assert caught.value.offset == len(PRODUCER) + 8
    with pytest.raises(DecodeError, match=f"length of a batch is {length}"):
        batch.unmarshal(data, len(PRODUCER), check_crc=False)


def test_an_impossible_count() -> None:
    made = typical().build()
    for count, text in ((-1, "count of records is -1"), (2**31 - 1, "2147483647 records cannot be in")):
        made.records_count = count
        with pytest.raises(DecodeError, match=text):
            batch.unmarshal(made.marshal()).records()


def test_a_wrong_checksum_stops_a_scan_at_its_batch() -> None:
    data = bytearray(PRODUCER * 3)
    data[-1] ^= 1
    found = batch.scan(data)
    next(found), next(found)
    with pytest.raises(CorruptedBatchError) as caught:
        next(found)
    assert caught.value.offset == 2 * len(PRODUCER)
    assert len(list(batch.scan(data, check_crc=False))) == 3


def test_the_checksum_ends_with_the_batch() -> None:
    assert batch.unmarshal(PRODUCER + b"\xff" * 100).marshal() == PRODUCER
    assert crc.crc32c(PRODUCER[21:]) == 3094838044


def test_old_messages_among_batches() -> None:
    data = message(1, 7, b"k", b"v", 99) + PRODUCER
    assert [(each.offset, each.value) for each in record_set.iter_records(data)] == [
        (7, b"v"),
        (0, b"foo"),
        (1, b"bar"),
    ]
    with pytest.raises(UnsupportedMagicError, match="unsupported magic 1"):
        list(batch.iter_batches(data))


def test_another_magic_is_an_error_even_in_a_truncated_batch() -> None:
    with pytest.raises(UnsupportedMagicError, match="unsupported magic 9 "):
        list(batch.scan(PRODUCER + bytes(16) + b"\x09"))


@pytest.mark.parametrize(
    "error",
    [
        DecodeError("reason", 3),
        TruncatedError("reason", 3),
        CorruptedBatchError("reason", 3),
        UnsupportedMagicError(1, 16),
    ],
)
def test_errors_can_be_pickled(error: WireError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)
