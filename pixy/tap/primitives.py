"""Decoders of the protocol's primitive types, as parts of a stream's reader: ``value = yield from varint()``."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from pixy.wire.exceptions import DecodeError

T = TypeVar("T")
Decoder = Generator[int, bytes, T]

_VARINT_BYTES = 5


class LimitReached(Exception):
    """An array has more elements than the tap reads."""


def varint() -> Decoder[int]:
    """Read an unsigned varint of at most 32 bits."""
    value = shift = 0
    for _ in range(_VARINT_BYTES):
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise DecodeError("varint is too long", 0)


def length(compact: bool, size: int = 4) -> Decoder[int]:
    """Read a length, -1 for null.

    Args:
        compact: whether it is a varint.
        size: bytes of the integer otherwise.
    """
    if compact:
        return (yield from varint()) - 1
    return int.from_bytes((yield size), "big", signed=True)


def skip(count: int) -> Decoder[None]:
    """Skip ``count`` bytes; none if ``count`` is the length of a null."""
    if count > 0:
        yield -count


def string(compact: bool) -> Decoder[str]:
    """Read a nullable string, null as empty; bytes that are not UTF-8 become replacement characters."""
    count = yield from length(compact, 2)
    if count > 0x7FFF:
        raise DecodeError(f"string of {count} bytes", 0)
    return (yield count).decode("utf-8", "replace") if count > 0 else ""


def tags(compact: bool = True) -> Decoder[None]:
    """Skip a section of tagged fields; there is none unless ``compact``."""
    if not compact:
        return
    for _ in range((yield from varint())):
        yield from varint()
        yield from skip((yield from varint()))


def within(inner: Decoder[T], size: int) -> Decoder[tuple[T | None, int]]:
    """Run a decoder inside a frame, so that a bad frame cannot make it read the next one.

    Args:
        inner: the decoder.
        size: bytes of the frame that are left.

    Returns:
        The decoder's result, None if it failed or wanted more bytes, and the number of bytes it left.
    """
    data: bytes | None = None
    while True:
        try:
            want = inner.send(data)  # type: ignore[arg-type]
        except StopIteration as done:
            return done.value, size
        except (DecodeError, OverflowError):
            return None, size
        if abs(want) > size:
            inner.close()
            return None, size
        size -= abs(want)
        data = (yield want) if want else b""
