"""What goes wrong with bytes: every codec of this package raises one of these and nothing else."""

from __future__ import annotations

from typing import Any


class WireError(Exception):
    """Root of what :mod:`pixy.wire` raises."""


class DecodeError(WireError, ValueError):
    """Bytes that are not what they should be.

    ``offset`` is where in the buffer handed in the trouble was met, in bytes; ``reason`` says what it is.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions travel between processes; their default pickles only the text.
        return type(self), (self.reason, self.offset)


class TruncatedError(DecodeError):
    """The buffer ends before the thing does: more bytes may help, unlike with other defects."""


class CorruptedBatchError(DecodeError):
    """The checksum of a batch does not match its bytes."""


class UnsupportedMagicError(DecodeError):
    """A record set in a format (``magic``) that is not read here."""

    def __init__(self, magic: int, offset: int) -> None:
        super().__init__(f"unsupported magic {magic}", offset)
        self.magic = magic

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.magic, self.offset)


class EncodeError(WireError, ValueError):
    """A value that the protocol cannot carry; the text names the field."""


class CodecUnavailableError(WireError):
    """A compression codec whose library is not installed; the text names the remedy."""


class UnsupportedVersionError(WireError, ValueError):
    """A message, or a version of one, that is not known here."""
