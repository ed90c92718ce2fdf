"""Exceptions of :mod:`pixy.wire`. Its codecs raise no others."""

from __future__ import annotations

from typing import Any


class WireError(Exception):
    """Base class of the exceptions of :mod:`pixy.wire`."""


class DecodeError(WireError, ValueError):
    """The bytes are malformed.

    Args:
        reason: description of the defect.
        offset: its byte in the buffer that the caller passed.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        # The default pickles only the text, and exceptions travel between processes.
        return type(self), (self.reason, self.offset)


class TruncatedError(DecodeError):
    """The buffer ends too early. Unlike with other defects, more bytes may help."""


class CorruptedBatchError(DecodeError):
    """The checksum does not match the batch."""


class UnsupportedMagicError(DecodeError):
    """The record set has a format (``magic``) that this function does not read."""

    def __init__(self, magic: int, offset: int) -> None:
        super().__init__(f"unsupported magic {magic}", offset)
        self.magic = magic

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.magic, self.offset)


class EncodeError(WireError, ValueError):
    """A value cannot be encoded; the text names the field."""


class CodecUnavailableError(WireError):
    """The library of a compression codec is not installed; the text says what to install."""


class UnsupportedVersionError(WireError, ValueError):
    """The message, or its version, is unknown here or to the broker."""
