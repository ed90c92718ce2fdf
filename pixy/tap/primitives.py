"""Primitive types of the protocol for a reader of a tape: ``value = yield from varint()``."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from pixy.wire.exceptions import DecodeError

T = TypeVar("T")
Pull = Generator[int, bytes, T]

_VARINT_BYTES = 5


class Limited(Exception):
    """There is more of something than is looked at."""


def varint() -> Pull[int]:
    """An unsigned varint of at most 32 bits."""
    value = shift = 0
    for _ in range(_VARINT_BYTES):
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise DecodeError("varint is too long", 0)


def length(compact: bool, size: int = 4) -> Pull[int]:
    """A length, -1 for null: a varint, or an integer of ``size`` bytes."""
    if compact:
        return (yield from varint()) - 1
    return int.from_bytes((yield size), "big", signed=True)


def skip(count: int) -> Pull[None]:
    """Pass over that many bytes; none if it is a null's length."""
    if count > 0:
        yield -count


def string(compact: bool) -> Pull[str]:
    """A string that may be null; what is not UTF-8 is shown as replaced."""
    count = yield from length(compact, 2)
    if count > 0x7FFF:
        raise DecodeError(f"string of {count} bytes", 0)
    return (yield count).decode("utf-8", "replace") if count > 0 else ""


def tags(compact: bool = True) -> Pull[None]:
    """Pass over a section of tagged fields, if there is one."""
    if not compact:
        return
    for _ in range((yield from varint())):
        yield from varint()
        yield from skip((yield from varint()))


def within(inner: Pull[T], size: int) -> Pull[tuple[T | None, int]]:
    """Run a reader that must not go beyond ``size`` bytes; its result (None: it could not), and the bytes left."""
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
