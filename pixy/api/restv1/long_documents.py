"""Read a long document of records that cannot be divided at their borders alone (:mod:`pixy.api.restv1.divided`). Pure.

It has more in it than records, or a record of some MiB. Here its own braces, those of its list of records, and those of each long record
are followed one by one. Records between are parsed some at a time, and long values are checked fragment by fragment.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import msgspec

from pixy.api.restv1.divided import BORDER, PIECE as MOST
from pixy.api.restv1.long_values import BLANKS, PIECE, GiveWay, Work, end_of, truncated

T = TypeVar("T")

_LEAST: Final = 4 * 1024
"""Bytes of records that are parsed together at least. ``MOST`` at most."""
_PLAIN: Final = frozenset({b'"key"', b'"value"'})
"""Fields that are taken as they are, however long."""
_HEADERS: Final = b'"headers"'
_MOST_HEADERS: Final = 4 << 20
"""Bytes of the headers of a long record, which are parsed at once."""
_MOST_FIELDS: Final = 1_000
"""Fields of the document, and of a long record: unknown ones are ignored, and of several with a name the last one counts."""
_BLANKS: Final = re.compile(rb"[ \t\r\n]*+")
_STANDS: Final = {b"[": b"[]", b"{": b"{}", b'"': b'""'}
"""For a long value of which only the type counts."""
_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TooMany(Exception):
    """The document has more members than it may have."""


class _Document(msgspec.Struct):
    records: list[msgspec.Raw] | None = None


_check_type = msgspec.json.Decoder(_Document).decode


async def read(
    body: bytes, parse: Callable[[bytes], list[T]], most: int, give_way: GiveWay
) -> list[T] | None:
    """Return the records of a document.

    Args:
        body: the document.
        parse: parses a list of records. Their ``key`` and ``value`` are of type ``Raw``.
        most: how many records, and members of objects that are followed, it may have.
        give_way: called now and then.

    Raises:
        DecodeError, RecursionError: as the parser of the whole document does; or an object that is followed has too many fields.
        UnicodeDecodeError: likewise; its places are those in a part of the document.
        TooMany: there are more.
    """
    reader = _Reader(body, parse, most, give_way)
    records: list[T] | None = None
    if await reader.next() != b"{":
        await reader.check_type(b"%b")
    async for name in reader.members("$"):
        if name == b'"records"':
            records = await reader.records()
        else:
            await reader.skip()
    if await reader.next():
        raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {reader.at + 1})")
    return records


class _Reader:
    """Goes through a document.

    Attributes:
        at: how far it has come.
    """

    def __init__(
        self, text: bytes, parse: Callable[[bytes], list[Any]], most: int, give_way: GiveWay
    ) -> None:
        self._text = text
        self._parse = parse
        self._left = most
        self._work = Work(give_way)
        self.at = 0

    async def next(self) -> bytes:
        """Go to the next token, and return its first byte; none: the document ends."""
        while True:
            first = self._text[self.at : self.at + 1]
            if first not in BLANKS or not first:
                return first
            end = _BLANKS.match(self._text, self.at, self.at + PIECE).end()  # type: ignore[union-attr]
            await self._work.did(end - self.at)
            self.at = end

    def wrong(self, what: str) -> None:
        """Raise DecodeError for what is there."""
        if self.at >= len(self._text):
            raise truncated()
        raise msgspec.DecodeError(f"JSON is malformed: {what} (byte {self.at})")

    async def skip(self) -> int:
        """Go to the end of the value that begins here, and return where it began."""
        begin = self.at
        self.at = await end_of(self._text, begin, self._work)
        return begin

    async def check_type(self, form: bytes) -> None:
        """Raise ValidationError if the value that begins here is of another type than it has to be.

        Args:
            form: of the document around it.
        """
        _check_type(form % self._short(await self.skip()))

    def _short(self, begin: int) -> bytes:
        """Return the value that has just ended and began at ``begin``, or a short one of its type."""
        stand = _STANDS.get(self._text[begin : begin + 1]) if self.at - begin > PIECE else None
        return stand or self._text[begin : self.at]

    async def members(self, place: str) -> AsyncIterator[bytes]:
        """Go through the object that begins here.

        Args:
            place: of the object, for the error.

        Yields:
            The name of each member, in quotes; who takes it goes on to the end of its value.
        """
        self.at += 1
        found, fields = await self.next(), 0
        while found != b"}":
            fields += 1
            if fields > _MOST_FIELDS:
                raise msgspec.ValidationError(f"Expected at most {_MOST_FIELDS} fields - at `{place}`")
            if found != b'"':
                self.wrong("object keys must be strings")
            self._count()
            begin = await self.skip()
            name = self._text[begin : self.at]
            if await self.next() != b":":
                self.wrong("expected ':'")
            self.at += 1
            await self.next()
            yield _usual(name)
            found = await self.next()
            if found == b",":
                self.at += 1
                found = await self.next()
                if found == b"}":
                    self.wrong("trailing comma in object")
            elif found != b"}":
                self.wrong("expected ',' or '}'")
        self.at += 1

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooMany

    async def records(self) -> list[Any] | None:
        """Read the list of records that begins here."""
        if self._text[self.at : self.at + 1] != b"[":
            await self.check_type(b'{"records":%b}')
            return None
        found = list[Any]()
        self.at += 1
        if await self.next() == b"]":
            self.at += 1
            return found
        size = MOST
        while True:
            await self.next()
            some = await self._some(size) if size >= _LEAST else [await self._record(len(found))]
            if some is None:
                size //= 4
                continue
            found += some
            self._left -= len(some) - 1
            self._count()
            if size < _LEAST:
                mark = await self.next()
                if mark not in (b",", b"]"):
                    self.wrong("expected ',' or ']'")
                self.at += 1
                if mark == b"]":
                    return found
                if await self.next() == b"]":
                    self.wrong("trailing comma in array")
            size = min(max(4 * size, _LEAST), MOST)

    async def _some(self, size: int) -> list[Any] | None:
        """Parse the records up to where one seems to end, ``size`` bytes from here; None: it does not end there."""
        border = BORDER.search(self._text, self.at + size, self.at + 2 * size)
        await self._work.did(size if border is None else border.end() - self.at)
        if border is None:
            return None
        try:
            found = self._parse(b"[%b]" % self._text[self.at : border.start() + 1])
        except _ERRORS:
            return None
        self.at = border.end()
        return found

    async def _record(self, number: int) -> Any:
        """Read one record."""
        parts, taken = list[bytes](), dict[bytes, memoryview]()
        if self._text[self.at : self.at + 1] == b"{":
            async for name in self.members(f"$.records[{number}]"):
                value = await self.skip()
                taken.pop(name, None)
                if self.at - value > PIECE and name in _PLAIN:
                    taken[name] = memoryview(self._text)[value : self.at]
                parts.append(b"%b:%b" % (name, b"0" if name in taken else self._field(name, value, number)))
            document = b"{%b}" % b",".join(parts)
            await self._work.did(len(document))
        else:
            begin = await self.skip()
            document = self._short(begin)
        try:
            record = self._parse(b"[%b]" % document)[0]
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(str(error).replace("`$[0]", f"`$.records[{number}]", 1)) from None
        for name, view in taken.items():
            setattr(record, name[1:-1].decode(), msgspec.Raw(view))
        return record

    def _field(self, name: bytes, begin: int, number: int) -> bytes:
        if name != _HEADERS:
            return self._short(begin)
        if self.at - begin > _MOST_HEADERS:
            raise msgspec.ValidationError(
                f"Expected at most {_MOST_HEADERS} bytes - at `$.records[{number}].headers`"
            )
        return self._text[begin : self.at]


def _usual(name: bytes) -> bytes:
    """Return a name without escapes that it does not need, if it may be one that is known."""
    if len(name) > PIECE:
        return b'"..."'
    if b"\\" not in name:
        return name
    return msgspec.json.encode(msgspec.json.decode(name, type=str))


__all__ = ["TooMany", "read"]
