"""Check a long JSON value fragment by fragment, so that others have their turn between. Pure.

The parser skips a value in one call, which takes 50 ms for one of 15 MB with many small parts; no thread helps, as it keeps the
interpreter meanwhile. So a long value is cut where a token ends. What is open there is written before the next fragment in
short, and closed behind it: if that is a JSON document, the fragment is right. JSON is read from left to right, so a value is
right if all of its fragments are.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator
from typing import Final, NamedTuple

import msgspec

GiveWay = Callable[[], Awaitable[None]]
"""Lets others have their turn."""
Text = bytes | memoryview

PIECE: Final = 64 * 1024
"""Bytes of a fragment: a millisecond, or some four with as many brackets as fit."""
STEP: Final = 512
"""As many bytes take as long as what Python does for a fragment, or for a member of an object: some ten microseconds."""
_FIRST: Final = 256
"""Bytes of a value that are looked at first, and four times as many then: of short values there may be millions."""
_LAST: Final = 4 * 1024
"""Bytes of those at the end of a value, which is looked for bracket by bracket."""
BLANKS: Final = b" \t\r\n"
_SCALAR: Final = b"+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""Bytes of numbers and names."""
_PLAIN: Final = bytes(set(range(256)) - set(b"[]{},:"))
_CLOSING: Final = bytes.maketrans(b"[{", b"]}")
_OPENING: Final = bytes.maketrans(b"]}", b"[{")
_RUNS: Final = re.compile(rb"\[+|\]+|\{+|\}+")
_MARKS: Final = re.compile(rb'"[^"]*"|[\[\]{}]')
_LOW_SURROGATE: Final = re.compile(rb"\\u[dD][c-fC-F]")
_MOST_DIGITS: Final = 1 << 20
_GROWTH: Final = 4
_ESCAPE: Final = 6
"""Bytes of the longest escape."""
_ROUNDS: Final = 4
"""How often pairs of brackets are taken out of a fragment before the rest is looked at run by run."""
_PLACE: Final = re.compile(r"\(byte (\d+)\)\Z")

_VALUE: Final = b"v"
_KEY: Final = b"k"
_BEFORE: Final = {
    b"[[": b"[",
    b"[,": b"[0,",
    b"[v": b"[0 ",
    b"{{": b"{",
    b"{,": b'{"":0,',
    b"{:": b'{"":',
    b"{v": b'{"":0 ',
    b"{k": b'{"" ',
}
"""What has come of the innermost list or object, in short: by its bracket, and by the last token (a whole value, or key, or a mark)."""
_BEHIND: Final = {b"[,": b"0", b"{,": b'"":0', b"{:": b"0", b"{k": b":0"}
"""What it lacks there besides its end."""

_skip = msgspec.json.Decoder(msgspec.Raw).decode


class Fragment(NamedTuple):
    """A part of a value: ``before + text[begin:end] + behind`` is a document if the part is right."""

    begin: int
    end: int
    before: bytes
    behind: bytes


def truncated() -> msgspec.DecodeError:
    """Make the error for a document that ends too early."""
    return msgspec.DecodeError("Input data was truncated")


def too_long(at: int) -> msgspec.DecodeError:
    """Make the error for the number at ``at``, which takes the parser milliseconds."""
    return msgspec.DecodeError(f"a number has more than {_MOST_DIGITS} digits (byte {at})")


class Work:
    """Lets others have their turn after each piece of work.

    Args:
        give_way: called then.
    """

    __slots__ = ("_done", "_give_way")

    def __init__(self, give_way: GiveWay) -> None:
        self._give_way = give_way
        self._done = 0

    async def did(self, size: int) -> None:
        """Note that as much has been done as ``size`` bytes and one step take."""
        self._done += size + STEP
        if self._done > PIECE:
            self._done = 0
            await self._give_way()


def fragments(text: Text, at: int) -> Generator[Fragment, None, int]:
    """Divide a value. Each fragment has to be checked before the next one is asked for.

    Args:
        text: has the value.
        at: where it begins.

    Returns:
        Where it ends.
    """
    first = bytes(text[at : at + 1])
    if first == b'"':
        return (yield from _string(text, at, b"", b""))
    if first in (b"[", b"{"):
        return (yield from _container(text, at))
    end = _scalar(text, at)
    yield Fragment(at, max(end, at + 1), b"", b"")
    return end


def _scalar(text: Text, at: int) -> int:
    """Find where the number or name ends that begins at ``at``."""
    end, size = at, _FIRST
    while end < len(text):
        piece = bytes(text[end : end + size])
        rest = len(piece.lstrip(_SCALAR)) if piece.translate(None, _SCALAR) else 0
        end += len(piece) - rest
        if rest:
            break
        if end - at > _MOST_DIGITS:
            raise too_long(at)
        size = min(_GROWTH * size, PIECE)
    return end


def _string(text: Text, at: int, before: bytes, behind: bytes) -> Generator[Fragment, None, int]:
    begin, inside, size = at, at + 1, _FIRST
    while True:
        masked = _masked(bytes(text[inside : inside + size]))
        end = masked.find(b'"')
        if end >= 0:
            end += inside + 1
            yield Fragment(begin, end, before, behind)
            return end
        if size < PIECE and len(masked) == size:
            size = min(_GROWTH * size, PIECE)
            continue
        stop = _border(text, inside, masked)
        if stop <= inside or inside + len(masked) >= len(text):
            raise truncated()
        yield Fragment(begin, stop, before, b'"' + behind)
        begin = inside = stop
        before, behind = b'"', b""


def _border(text: Text, begin: int, masked: bytes) -> int:
    """Find where a piece of a string may end: not within an escape, or a pair of them that is one character."""
    escape = masked.rfind(b"\\", max(0, len(masked) - _ESCAPE))
    if escape < 0:
        return begin + len(masked)
    stop = begin + escape
    return stop - _ESCAPE if _LOW_SURROGATE.match(bytes(text[stop : stop + _ESCAPE])) else stop


def _container(text: Text, at: int) -> Generator[Fragment, None, int]:
    begin, opened, after, before = at, bytes(text[at : at + 1]), bytes(text[at : at + 1]), b""
    at, size, ends = at + 1, _FIRST, False
    while True:
        piece = bytes(text[at : at + size])
        masked = _masked(piece)
        outside = masked.split(b'"')
        if len(outside) % 2 == 0:  # the last one is in a string
            outside.pop()
            stop = masked.rfind(b'"')
        else:
            tail = outside.pop()
            outside.append(tail.rstrip(_SCALAR))
            stop = len(piece) - len(tail) + len(outside[-1])
        if not stop:  # a long string, number or name
            if piece[:1] != b'"' and len(piece) < size:
                raise truncated()
            if begin < at:
                yield Fragment(begin, at, before, _behind(opened, after))
                before = _before(opened, after)
            after = _whole(after, opened)
            behind = _behind(opened, after)
            if piece[:1] == b'"':
                at = begin = yield from _string(text, at, before, behind)
            else:
                end = _scalar(text, at)
                yield Fragment(at, end, before, behind)
                at = begin = end
            before = _before(opened, after)
            continue
        structure = b"".join(outside[::2]).translate(None, _PLAIN)
        still = _still_open(opened, structure)
        if not still:
            if size > _LAST:
                size, ends = _LAST, True
                continue
            at += _end(masked, len(opened))
            yield Fragment(begin, at, before, b"")
            return at
        after = _last(masked[:stop], structure, after, still)
        opened = still
        at += stop
        yield Fragment(begin, at, before, _behind(opened, after))
        begin, before = at, _before(opened, after)
        size = size if ends else min(_GROWTH * size, PIECE)


def _masked(piece: bytes) -> bytes:
    """Return a piece in which quotes only begin and end strings; the places of its bytes are the same."""
    return piece.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in piece else piece


def _before(opened: bytes, after: bytes) -> bytes:
    return opened[:-1].replace(b"{", b'{"":') + _BEFORE.get(opened[-1:] + after, b"]")


def _behind(opened: bytes, after: bytes) -> bytes:
    return _BEHIND.get(opened[-1:] + after, b"") + opened[::-1].translate(_CLOSING)


def _still_open(opened: bytes, structure: bytes) -> bytes:
    """Return the brackets that are open behind a piece; none: the value ends in it.

    Args:
        opened: those that are open before.
        structure: the piece's brackets, commas and colons.
    """
    brackets = structure.translate(None, b",:")
    for _ in range(_ROUNDS):
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    still = bytearray(opened)
    for found in _RUNS.finditer(brackets):
        run = found[0]
        if run[0] in b"[{":
            still += run
            continue
        begun = run.translate(_OPENING)
        if not still.endswith(begun[: len(still)]):  # a bracket of the other kind: the check finds it, too
            break
        del still[max(0, len(still) - len(run)) :]
        if not still:
            break
    return bytes(still)


def _end(masked: bytes, depth: int) -> int:
    """Find where in a piece the value ends that is ``depth`` brackets deep at its beginning."""
    for found in _MARKS.finditer(masked):
        mark = found[0][:1]
        depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        if not depth:
            break
    return found.end()


def _last(piece: bytes, structure: bytes, after: bytes, opened: bytes) -> bytes:
    """Return the last token of a piece, or ``after``, the one before it, if there is none in it."""
    last = piece.rstrip(BLANKS)[-1:]
    if not last:
        return after
    if last in b"[{,:":
        return last
    return _VALUE if last in b"]}" else _whole(structure[-1:] or after, opened)


def _whole(mark: bytes, opened: bytes) -> bytes:
    """Return what a string, number or name is behind ``mark``, in the brackets ``opened``."""
    return _KEY if mark == b"{" or (mark == b"," and opened[-1:] == b"{") else _VALUE


def check(text: Text, fragment: Fragment) -> bytes:
    """Raise DecodeError if a fragment is not right, and RecursionError if it is nested too deep; return its document."""
    begin, end, before, behind = fragment
    document = b"".join((before, text[begin:end], behind))
    try:
        _skip(document)
    except msgspec.DecodeError as error:

        def moved(place: re.Match[str]) -> str:
            return f"(byte {begin + min(max(0, int(place[1]) - len(before)), end - begin)})"

        raise msgspec.DecodeError(_PLACE.sub(moved, str(error))) from None
    return document


async def end_of(text: Text, at: int, work: Work) -> int:
    """Return where a value ends.

    Args:
        text: has it.
        at: where it begins.
        work: hears what this takes.

    Raises:
        DecodeError: it is not JSON.
        RecursionError: it is nested too deep.
    """
    end = at
    for fragment in fragments(text, at):
        check(text, fragment)
        await work.did(fragment.end - end)
        end = fragment.end
    return end


async def compact(text: Text, give_way: GiveWay) -> bytes:
    """Return a valid value without the white space between its tokens.

    Args:
        text: the value and nothing else.
        give_way: called now and then.
    """
    found = []
    for begin, end, before, behind in fragments(text, 0):
        document = msgspec.json.format(b"".join((before, text[begin:end], behind)), indent=-1)
        found.append(document[len(before.rstrip(b" ")) : len(document) - len(behind)])
        await give_way()
    return b"".join(found)


async def check_utf8(text: bytes, give_way: GiveWay) -> None:
    """Raise UnicodeDecodeError, as ``text.decode()`` does, if a long text is not UTF-8."""
    at = 0
    while at < len(text):
        end = min(at + PIECE, len(text))
        while at < end < len(text) and text[end] & 0xC0 == 0x80:  # in a character
            end -= 1
        end = end if end > at else min(at + PIECE, len(text))
        try:
            text[at:end].decode()
        except UnicodeDecodeError as error:
            place = error.start + at
            raise UnicodeDecodeError("utf-8", text, place, error.end + at, error.reason) from None
        at = end
        await give_way()
