"""Parse a long document of records piece by piece, so that others have their turn between. Pure.

msgspec parses a document in one call, which takes 40 ms for one of 15 MB with many small parts; no thread helps, as it keeps the
interpreter meanwhile. So a long document is divided where one record seems to end and the next one to begin. To check such a
place, the piece before it is parsed: JSON is read from left to right, so if the piece is a list of records, the place is between
two records of the document. If not, the place is inside of a string or a record, and the piece is made longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

PIECE: Final = 256 * 1024
"""Bytes of a piece, if a record ends there: less than a millisecond, or some three with as many records as fit."""
_LONGEST: Final = 4 * PIECE
"""Bytes of a piece above which a document is not divided: it has a record as long as that."""
_BEGIN: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"records"[ \t\r\n]*:[ \t\r\n]*\[')
_END: Final = re.compile(rb"\][ \t\r\n]*\}[ \t\r\n]*\Z")
_LAST: Final = 64
"""Bytes in which that end must be."""
BORDER: Final = re.compile(
    rb'\}[ \t\r\n]*,[ \t\r\n]*(?=\{[ \t\r\n]*"(?:key|value|partition|timestamp|headers)"[ \t\r\n]*:)'
)
"""Where a record seems to end, and the next one to begin."""


class Undivided(Exception):
    """The document has to be parsed otherwise: there is more in it than records, one is too long, or something is wrong with it."""


def divided(body: bytes, decode: Callable[[bytes], list[T]]) -> Iterator[list[T]]:
    """Yield the records of a document, one piece at a time. An empty list only gives others their turn.

    Args:
        body: the document: an object with nothing but ``records``.
        decode: parses a list of records.

    Raises:
        Undivided: it is another document, or one of its records is wrong, or too long.
    """
    begin = _BEGIN.match(body, 0, PIECE)  # there may be blanks only
    end = _END.search(body, max(begin.end(), len(body) - _LAST)) if begin else None
    if begin is None or end is None:
        raise Undivided
    at, last, size = begin.end(), end.start(), PIECE
    while at < last:
        if size > _LONGEST:
            raise Undivided
        stop = after = last
        if at + size < last:
            border = BORDER.search(body, at + size, min(at + size + PIECE, last))
            if border is None:
                size += PIECE
                yield []
                continue
            stop, after = border.start() + 1, border.end()
        try:
            found = decode(b"[%b]" % body[at:stop])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if stop == last:
                raise Undivided from None
            size *= 2
            yield []
            continue
        at, size = after, PIECE
        yield found


__all__ = ["BORDER", "PIECE", "Undivided", "divided"]
