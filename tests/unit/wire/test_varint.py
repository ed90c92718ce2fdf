"""Varints: test vectors, limits and round trips."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from pixy.wire import varint
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
ZIGZAG = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (300, "d804"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "hexed"), ZIGZAG)
def test_a_varint_is_zigzag(value: int, hexed: str) -> None:
    assert varint.encode_varint(value).hex() == varint.encode_varlong(value).hex() == hexed
    assert varint.decode_varint(bytes.fromhex("ff" + hexed + "ff"), 1) == (value, 1 + len(hexed) // 2)
    assert varint.varint_size(value) == varint.varlong_size(value) == len(hexed) // 2


@pytest.mark.parametrize(
    ("value", "hexed"),
    [
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_a_varlong_reaches_to_64_bits(value: int, hexed: str) -> None:
    assert varint.encode_varlong(value).hex() == hexed
    assert varint.decode_varlong(bytes.fromhex(hexed)) == (value, 10)


@pytest.mark.parametrize(
    ("value", "hexed"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_an_unsigned_varint_is_plain(value: int, hexed: str) -> None:
    assert varint.encode_unsigned(value).hex() == hexed
    assert varint.decode_unsigned(bytes.fromhex(hexed)) == (value, len(hexed) // 2)
    assert varint.unsigned_size(value) == len(hexed) // 2


@given(INT64, st.binary(max_size=3))
@settings(deadline=None)
def test_a_varlong_round_trips(value: int, before: bytes) -> None:
    data = before + varint.encode_varlong(value)
    assert varint.decode_varlong(memoryview(data), len(before)) == (value, len(data))
    assert varint.varlong_size(value) == len(data) - len(before)


@given(INT32)
@settings(deadline=None)
def test_a_varint_round_trips(value: int) -> None:
    data = varint.encode_varint(value)
    assert varint.decode_varint(data) == (value, len(data)) and varint.varint_size(value) == len(data)


@given(UINT32)
@settings(deadline=None)
def test_an_unsigned_varint_round_trips(value: int) -> None:
    data = varint.encode_unsigned(value)
    assert varint.decode_unsigned(data) == (value, len(data)) and varint.unsigned_size(value) == len(data)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (varint.encode_varint, 2**31),
        (varint.encode_varint, -(2**31) - 1),
        (varint.encode_varlong, 2**63),
        (varint.encode_varlong, -(2**63) - 1),
        (varint.encode_unsigned, -1),
        (varint.encode_unsigned, 2**32),
        (varint.varint_size, 2**31),
        (varint.varlong_size, 2**63),
        (varint.unsigned_size, -1),
    ],
)
def test_a_value_out_of_range_is_refused(function: Callable[[int], object], value: int) -> None:
    with pytest.raises(EncodeError, match=f"^{value} does not fit"):
        function(value)


@pytest.mark.parametrize("decode", [varint.decode_varint, varint.decode_varlong, varint.decode_unsigned])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_a_truncated_varint(decode: Callable[..., tuple[int, int]], data: bytes) -> None:
    with pytest.raises(TruncatedError) as caught:
        decode(b"\x00" + data, 1)
    assert caught.value.offset == 1 + len(data)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (varint.decode_varint, b"\xff" * 5 + b"\x01"),
        (varint.decode_varint, b"\xff\xff\xff\xff\x1f"),  # 33 bits in five bytes
        (varint.decode_unsigned, b"\x80" * 5 + b"\x00"),
        (varint.decode_varlong, b"\x80" * 10 + b"\x00"),
        (varint.decode_varlong, b"\xff" * 9 + b"\x02"),
    ],
)
def test_a_varint_with_more_bits_than_its_type(decode: Callable[..., tuple[int, int]], data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(b"\x00" + data, 1)
    assert caught.value.offset == 1 and not isinstance(caught.value, TruncatedError)


def test_needless_groups_are_accepted() -> None:
    assert varint.decode_varint(b"\x82\x00") == (1, 2)
