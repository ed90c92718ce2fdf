"""Keys and values of __consumer_offsets: libkafka's fixtures, every version, and malformed bytes."""

from __future__ import annotations

import base64
import uuid

import pytest
from hypothesis import given, settings, strategies as st

from pixy.wire import committed_offsets
from pixy.wire.committed_offsets import OffsetKey, OffsetValue
from pixy.wire.exceptions import (
    DecodeError,
    EncodeError,
    TruncatedError,
    UnsupportedVersionError,
    WireError,
)

KEY = base64.b64decode("AAEAIHdvcmtlcnMtcnVudGltZS1pbnNlcnRlci1zdGFnaW5nAA93b3JrZXJzX3J1bnRpbWUAAABK")
VALUE = base64.b64decode("AAEAAAATkWaDEAAAAAABcCBNVWoAAAFwJXOxag==")


def test_libkafkas_key() -> None:
    made = OffsetKey("workers-runtime-inserter-staging", "workers_runtime", 74)
    assert committed_offsets.decode_key(KEY) == made and made.marshal() == KEY


def test_libkafkas_value() -> None:
    made = OffsetValue(84043793168, "", 1581089903978, 1581176303978, version=1)
    assert committed_offsets.decode_value(VALUE) == made and made.marshal() == VALUE


@given(
    st.integers(0, 4),
    st.integers(0, 2**63 - 1),
    st.text(max_size=20),
    st.integers(-1, 2**62),
    st.none() | st.uuids(),
)
@settings(deadline=None)
def test_every_version_round_trips(
    version: int, offset: int, metadata: str, stamp: int, topic_id: uuid.UUID | None
) -> None:
    made = OffsetValue(
        offset,
        metadata,
        stamp,
        stamp if version == 1 else -1,
        5 if version >= 3 else -1,
        topic_id if version == 4 else None,
        version,
    )
    assert committed_offsets.decode_value(made.marshal()) == made
    key = OffsetKey(metadata, "topic", 3, version % 2)
    assert committed_offsets.decode_key(key.marshal()) == key


@pytest.mark.parametrize("function", [committed_offsets.decode_key, committed_offsets.decode_value])
@given(data=st.binary(max_size=50), version=st.integers(-1, 5))
@settings(deadline=None)
def test_any_bytes(function: object, data: bytes, version: int) -> None:
    for each in (data, version.to_bytes(2, "big", signed=True) + data):
        try:
            function(each)  # type: ignore[operator]
        except UnsupportedVersionError:
            pass
        except DecodeError as error:
            assert 0 <= error.offset <= len(each)


def test_invalid_fields_are_refused() -> None:
    for data in (KEY[:-1], KEY[:10], b""):
        with pytest.raises(TruncatedError):
            committed_offsets.decode_key(data)
    with pytest.raises(DecodeError, match="1 bytes are left over"):
        committed_offsets.decode_value(VALUE + b"\x00")
    with pytest.raises(
        UnsupportedVersionError, match="version 2 of a key in __consumer_offsets is not an offset's"
    ):
        committed_offsets.decode_key(b"\x00\x02" + KEY[2:])
    for wrong in (
        OffsetKey("g", "t", 2**31),
        OffsetKey("g" * 40_000, "t", 0),
        OffsetValue(2**63, "", 0),
        OffsetKey("g", "t", 0, 2),
        OffsetValue(0, "", 0, version=5),
        OffsetValue(0, "\ud800", 0),
    ):
        with pytest.raises(WireError) as caught:
            wrong.marshal()
        assert isinstance(caught.value, EncodeError | UnsupportedVersionError)
