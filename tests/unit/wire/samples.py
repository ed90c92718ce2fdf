"""Batches and records shared by several tests, and strategies for arbitrary ones."""

from __future__ import annotations

import struct
import zlib

from hypothesis import strategies as st

from pixy.wire.batch import Builder
from pixy.wire.record import Record

INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.none() | st.binary(max_size=40) | st.integers(0, 30_000).map(lambda size: b"x" * size)
HEADERS = st.lists(
    st.tuples(st.text("aé\u20ac\udcff", max_size=8), st.none() | st.binary(max_size=8)), max_size=4
).map(tuple)
TIMESTAMP = st.integers(-1, 2**42)


@st.composite
def records(draw: st.DrawFn, min_size: int = 1) -> list[Record]:
    """Records with ascending offsets that may have gaps."""
    made, offset = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(min_size, 12))):
        made.append(
            Record(
                offset, draw(TIMESTAMP), draw(BLOB), draw(BLOB), draw(HEADERS), draw(st.integers(-128, 127))
            )
        )
        offset += draw(st.integers(1, 200) | st.integers(1, 2**27))
    return made


def typical(count: int = 3) -> Builder:
    """A builder with records that use every feature of a record."""
    builder = Builder(base_offset=5, now=lambda: 1_700_000_000_000)
    for number in range(count):
        builder.add(
            (None, b"", b"key")[number % 3],
            (b"value" * number, None, b"")[number % 3],
            ((), (("h", None),), (("h", b"1"), ("h", b"")))[number % 3],
            1_700_000_000_000 + number,
        )
    return builder


def record_body(**fields: bytes) -> bytes:
    """Join the bytes of a record's fields, and prefix their length."""
    parts = {
        "attributes": b"\x00",
        "timestamp": b"\x00",
        "offset": b"\x00",
        "key": b"\x01",
        "value": b"\x01",
        "headers": b"\x00",
    } | fields
    body = b"".join(parts.values())
    assert len(body) < 64
    return bytes((len(body) * 2,)) + body


def message(
    magic: int, offset: int, key: bytes | None, value: bytes | None, timestamp: int = 0, attributes: int = 0
) -> bytes:
    """A message of the formats before Kafka 0.11."""
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic == 1 else b"")
    for blob in (key, value):
        body += struct.pack(">i", -1) if blob is None else struct.pack(">i", len(blob)) + blob
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
