"""Variable-length integers, in Kafka's terms.

- *varint* and *varlong* are zigzag-encoded 32-bit and 64-bit integers, used in record batches.
- An *unsigned* varint is a plain base-128 32-bit integer, used in flexible messages (KIP-482).

Each byte holds seven bits, the least significant group first; the high bit is set on all bytes but the last. A decoder
takes ``(buffer, offset)`` and returns ``(value, offset after it)``. It refuses a varint that is longer, or has more
bits, than its type allows; it accepts needless trailing groups (``8000``), as Java does.
"""

from __future__ import annotations

from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError

Buffer = bytes | bytearray | memoryview
"""Types that the decoders read from."""

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_UINT32_MAX = (1 << 32) - 1


def _encode(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decode(buffer: Buffer, offset: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    position = offset
    size = len(buffer)
    while True:
        if position >= size:
            raise TruncatedError("varint is cut off", size)
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise DecodeError(f"varint is longer than {(bits + 6) // 7} bytes", offset)
    if value >> bits:
        raise DecodeError(f"varint does not fit {bits} bits", offset)
    return value, position


def _checked(value: int, least: int, most: int, kind: str) -> int:
    if not least <= value <= most:
        raise EncodeError(f"{value} does not fit {kind}")
    return value


def encode_varint(value: int) -> bytes:
    """Encode a zigzag int32 in 1 to 5 bytes. Raises EncodeError if ``value`` is out of range."""
    value = _checked(value, _INT32_MIN, _INT32_MAX, "a varint (32 bits)")
    return _encode((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """Encode a zigzag int64 in 1 to 10 bytes. Raises EncodeError if ``value`` is out of range."""
    value = _checked(value, _INT64_MIN, _INT64_MAX, "a varlong (64 bits)")
    return _encode((value << 1) ^ (value >> 63))


def encode_unsigned(value: int) -> bytes:
    """Encode an unsigned 32-bit varint in 1 to 5 bytes. Raises EncodeError if ``value`` is out of range."""
    return _encode(_checked(value, 0, _UINT32_MAX, "an unsigned varint (32 bits)"))


def decode_varint(buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Decode a zigzag int32. Raises TruncatedError, or DecodeError if it is too long.

    Args:
        buffer: bytes with the varint.
        offset: its first byte.

    Returns:
        The value, and the offset after it.
    """
    value, offset = _decode(buffer, offset, 32)
    return (value >> 1) ^ -(value & 1), offset


def decode_varlong(buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Decode a zigzag int64. Raises TruncatedError, or DecodeError if it is too long.

    Args:
        buffer: bytes with the varint.
        offset: its first byte.

    Returns:
        The value, and the offset after it.
    """
    value, offset = _decode(buffer, offset, 64)
    return (value >> 1) ^ -(value & 1), offset


def decode_unsigned(buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Decode an unsigned 32-bit varint. Raises TruncatedError, or DecodeError if it is too long.

    Args:
        buffer: bytes with the varint.
        offset: its first byte.

    Returns:
        The value, and the offset after it.
    """
    return _decode(buffer, offset, 32)


def _size(value: int) -> int:
    return (value.bit_length() + 6) // 7 or 1


def varint_size(value: int) -> int:
    """Return the number of bytes that :func:`encode_varint` produces. Raises EncodeError."""
    return _size(_checked(value, _INT32_MIN, _INT32_MAX, "a varint (32 bits)") << 1 ^ value >> 31)


def varlong_size(value: int) -> int:
    """Return the number of bytes that :func:`encode_varlong` produces. Raises EncodeError."""
    return _size(_checked(value, _INT64_MIN, _INT64_MAX, "a varlong (64 bits)") << 1 ^ value >> 63)


def unsigned_size(value: int) -> int:
    """Return the number of bytes that :func:`encode_unsigned` produces. Raises EncodeError."""
    return _size(_checked(value, 0, _UINT32_MAX, "an unsigned varint (32 bits)"))
