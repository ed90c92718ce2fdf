"""What gzip, lz4 and zstd share: frames one after the other, decompressed up to a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pixy.wire.compression import too_large
from pixy.wire.exceptions import DecodeError, TruncatedError

_FIRST_STEP = 64 * 1024
_USUAL_RATIO = 8


class Stream(Protocol):
    """A decompressor of one frame, as :mod:`lzma`, :mod:`bz2`, lz4 and zstd have them."""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""

    @property
    def unused_data(self) -> bytes | None:
        """What follows it."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Some output, at most that many bytes."""


def decompress_frames(
    make: Callable[[], Stream], failures: tuple[type[Exception], ...], data: bytes, max_size: int
) -> bytes:
    """All frames in ``data``; ``failures`` are what the library raises for bytes it can not read."""
    rest, parts, left = data, [], max_size
    # lz4 allocates what it is allowed to make, so it is allowed little by little.
    step = _FIRST_STEP + _USUAL_RATIO * len(data)
    while rest:
        stream = make()
        start = len(data) - len(rest)
        while not stream.eof:
            try:
                # One byte more than allowed tells a full buffer from an overflowing one.
                part = stream.decompress(rest, min(left + 1, step))
            except failures as error:
                raise DecodeError(f"not readable: {error}", start) from None
            left -= len(part)
            if left < 0:
                raise too_large(max_size)
            if not part and not stream.eof:
                raise TruncatedError("compressed data is cut off", len(data))
            parts.append(part)
            rest = b""
            step *= 2
        rest = stream.unused_data or b""
    if not parts:
        raise TruncatedError("compressed data is empty", 0)
    return parts[0] if len(parts) == 1 else b"".join(parts)
