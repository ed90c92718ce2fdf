"""Decompress a series of frames up to a limit; shared by gzip, lz4 and zstd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pixy.wire.compression import too_large
from pixy.wire.exceptions import DecodeError, TruncatedError

_FIRST_STEP = 64 * 1024
_USUAL_RATIO = 8


class Stream(Protocol):
    """A decompressor of one frame, with the interface of :mod:`lzma`, :mod:`bz2`, lz4 and zstd."""

    @property
    def eof(self) -> bool:
        """True once the frame has ended."""

    @property
    def unused_data(self) -> bytes | None:
        """The bytes after the frame."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Feed ``data`` and return at most ``max_length`` bytes of output."""


def decompress_frames(
    make: Callable[[], Stream], failures: tuple[type[Exception], ...], data: bytes, max_size: int
) -> bytes:
    """Decompress all frames in ``data``.

    Args:
        make: makes a decompressor for one frame.
        failures: exceptions that the library raises for malformed data.
        data: compressed bytes.
        max_size: largest size of the output, in bytes.

    Raises:
        DecodeError: ``data`` is malformed, cut off (TruncatedError), or expands to more than ``max_size`` bytes.
    """
    rest, parts, left = data, [], max_size
    # lz4 allocates as much as it is allowed to produce, so raise the allowance step by step.
    step = _FIRST_STEP + _USUAL_RATIO * len(data)
    while rest:
        stream = make()
        start = len(data) - len(rest)
        while not stream.eof:
            try:
                # One byte beyond the limit tells output that fills it from output that exceeds it.
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
