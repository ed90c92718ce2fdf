"""What goes wrong with bytes: every codec of this package raises one of these and nothing else."""

from __future__ import annotations


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


class TruncatedError(DecodeError):
    """The buffer ends before the thing does: more bytes may help, unlike with other defects."""


class EncodeError(WireError, ValueError):
    """A value that the protocol cannot carry; the text names the field."""


class UnsupportedVersionError(WireError, ValueError):
    """A message, or a version of one, that is not known here."""
