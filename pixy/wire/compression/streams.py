"""Decompress a series of frames up to a limit; shared by gzip, lz4 and zstd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pixy.wire.compression import too_large
from pixy.wire.exceptions import DecodeError, TruncatedError

_FIRST_STEP = 64 * 1024
"""Bytes of output that a frame may give at first: lz4 allocates as much as it is allowed to produce."""
_FIRST_WINDOW = 1024
"""Bytes of input that a frame gets at first. A library copies what follows its frame, so a frame that gets all the rest
makes a series of small frames cost the square of its length."""


MAX_EMPTY: Final = 1_000
"""Frames without content that are accepted in one batch: each costs a decompressor, up to 30 us with zstd, for 9 bytes."""


class Stream(Protocol):
    """A decompressor of one frame, with the interface of :mod:`lzma`, :mod:`bz2`, lz4 and zstd."""

    @property
    def eof(self) -> bool:
        """True once the frame has ended."""

    @property
    def needs_input(self) -> bool:
        """False while it has input that it has not decompressed."""

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
    parts: list[bytes] = []
    position, left, empty = 0, max_size, 0
    while position < len(data):
        stream, start, before = make(), position, left
        window, step = _FIRST_WINDOW, _FIRST_STEP
        while not stream.eof:
            given = data[position : position + window] if stream.needs_input else b""
            position += len(given)
            try:
                # One byte beyond the limit tells output that fills it from output that exceeds it.
                part = stream.decompress(given, min(left + 1, step))
            except failures as error:
                raise DecodeError(f"not readable: {error}", start) from None
            left -= len(part)
            if left < 0:
                raise too_large(max_size)
            stuck = not part and not given and not stream.eof
            if stuck and (position == len(data) or not stream.needs_input):
                raise TruncatedError("compressed data is cut off", len(data))
            parts.append(part)
            window, step = 2 * window, 2 * step
        position -= len(stream.unused_data or b"")
        empty += left == before
        if empty > MAX_EMPTY:
            raise DecodeError(f"more than {MAX_EMPTY} frames without content", start)
    if not parts:
        raise TruncatedError("compressed data is empty", 0)
    return parts[0] if len(parts) == 1 else b"".join(parts)
