"""The codec of sparse acks in the offset metadata, byte-compatible with the Go original.

Each acknowledged range ``[start, stop)`` beyond the committed offset is written as two numbers:
``start`` relative to the previous range's end (the committed offset for the first), and its length.
A number is written in groups of 5 bits, lowest first, one character each; bit 0x20 says that more
groups follow.
"""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DIGITS = {char: digit for digit, char in enumerate(_ALPHABET)}
_MORE = 0x20
_LONGEST = 13
_INT64 = 2**63

MAX_METADATA = 4096
"""The broker's default ``offset.metadata.max.bytes``: longer metadata fails the whole commit."""


def encode(offset: int, ranges: Iterable[Range], limit: int = MAX_METADATA) -> str:
    """Encode the ranges acknowledged beyond ``offset``.

    Ranges that do not fit are left out, the highest first: their messages are delivered again after a
    crash, whereas metadata that is too long would fail every commit.

    Args:
        offset: the committed offset.
        ranges: ``[start, stop)`` pairs, ascending.
        limit: the longest result, in characters.
    """
    parts: list[str] = []
    length, base = 0, offset
    for start, stop in ranges:
        part = _number(start - base) + _number(stop - start)
        length += len(part)
        if length > limit:
            break
        parts.append(part)
        base = stop
    return "".join(parts)


def decode(offset: int, metadata: str) -> list[Range]:
    """Decode the ranges in the metadata of a committed offset.

    Args:
        offset: the committed offset.
        metadata: the text that was committed with it.

    Raises:
        ValueError: this codec did not write it.
    """
    ranges: list[Range] = []
    base, position = offset, 0
    while position < len(metadata):
        delta, position = _parse(metadata, position)
        length, position = _parse(metadata, position)
        start, stop = base + delta, base + delta + length
        if start <= 0 or start >= stop or stop >= _INT64:
            raise ValueError(f"bad range {start}-{stop}")
        ranges.append((start, stop))
        base = stop
    return ranges


def acknowledged(offset: int, metadata: str, end: int | None) -> list[Range]:
    """Return the ranges that a group has acknowledged beyond its committed offset.

    The text may be another tool's and decode by chance, and each range that it yields is messages that are not
    delivered. No range of ours touches the offset or the range before it, and none is beyond the log's end. If one does,
    none of them counts: what a truncated log has lost is delivered again rather than something else never.

    Args:
        offset: the committed offset.
        metadata: the text that was committed with it.
        end: the offset of the next message of the log; None if it is not known.

    Raises:
        ValueError: this codec did not write it, at least not for this log.
    """
    ranges = decode(offset, metadata)
    base = offset
    for start, stop in ranges:
        if start == base or (end is not None and stop > end):
            raise ValueError(f"no acks of this log: {start}-{stop} after {base}, and the end is {end}")
        base = stop
    return ranges


def to_text(offset: int, metadata: str) -> str:
    """Format the ranges for people, relative to the offset, end exclusive: ``1-2,9-11``; '' if they are not valid.

    Args:
        offset: the committed one.
        metadata: of the commit, as :func:`encode` has made it.
    """
    try:
        ranges = decode(offset, metadata)
    except ValueError:
        return ""
    return ",".join(f"{start - offset}-{stop - offset}" for start, stop in ranges)


def _number(value: int) -> str:
    chars = []
    while value >= _MORE:
        chars.append(_ALPHABET[value & 0x1F | _MORE])
        value >>= 5
    chars.append(_ALPHABET[value])
    return "".join(chars)


def _parse(text: str, position: int) -> tuple[int, int]:
    value = 0
    for group in range(_LONGEST):
        if position >= len(text):
            raise ValueError("truncated number")
        digit = _DIGITS.get(text[position])
        if digit is None:
            raise ValueError(f"bad character {text[position]!r}")
        position += 1
        value |= (digit & 0x1F) << (5 * group)
        if not digit & _MORE:
            return value, position
    raise ValueError("number too long")
