"""Keys and values embedded in JSON: base64 (binary) or any JSON value (json). Pure.

Null, empty, ``0``, ``false``, ``""`` and ``{}`` stay different. JSON null is a null key or a tombstone
in both formats. The empty string is zero bytes in binary, and two quotes in json. A JSON value is stored
as the client wrote it, without the white space between its tokens, so numbers keep their digits.
"""

from __future__ import annotations

import binascii
import io
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pixy.api.restv1 import errors, long_values
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.negotiation import Format
from pixy.kafka.record_headers import UNREADABLE, headers_of

_NULL = b"null"
_BLANKS = (b" ", b"\n", b"\t", b"\r")
_WHITE_SPACE = b" \t\n\v\f\r\x1c\x1d\x1e\x1f"
_SHOWN = 80
"""Characters of a text that an error shows."""


# -- records of answers ---------------------------------------------------------------------------


class HeaderView(Struct, gc=False):
    """A record header; the value is base64 in the document."""

    key: str
    value: bytes | None


class RecordView(Struct, gc=False, kw_only=True):
    """A record of an answer. ``bytes`` become base64; UNSET fields are left out."""

    topic: str
    key: bytes | Raw | None
    value: bytes | Raw | None
    partition: int
    offset: int
    timestamp: int | UnsetType = UNSET
    """Milliseconds since 1970."""
    headers: list[HeaderView] | UnsetType = UNSET
    error_code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    raw_key: bytes | UnsetType | None = UNSET
    """With ``error``: the key's bytes."""
    raw_value: bytes | UnsetType | None = UNSET


_RECORD_OVERHEAD = 160
_encode = msgspec.json.Encoder().encode


class UnreadableHeaders(Exception):
    """A record's headers have to be read again (:mod:`pixy.kafka.record_headers`) before it can be shown."""


def record_view(message: Any, embedded: Format, *, lenient: bool = False) -> RecordView:
    """Convert a consumed message for an answer.

    A record that is not JSON, in the json format, becomes an entry with ``error_code``, ``error`` and its
    bytes in ``raw_key`` and ``raw_value``, so that the other records are returned all the same.

    Args:
        message: with the methods of confluent-kafka's Message.
        embedded: the format of key and value.
        lenient: whether to leave out headers that cannot be decoded.

    Raises:
        UnreadableHeaders: unless ``lenient``.
    """
    key, value = message.key(), message.value()
    view = RecordView(
        topic=message.topic(),
        key=key,
        value=value,
        partition=message.partition(),
        offset=message.offset(),
    )
    kind, at = message.timestamp()
    if kind and at >= 0:  # -1: the producer gave none
        view.timestamp = at
    _show_headers(view, message, lenient)
    if embedded == "json":
        _show_json(view, key, value)
    return view


def _show_headers(view: RecordView, message: Any, lenient: bool) -> None:
    headers = headers_of(message)
    if headers:
        view.headers = [HeaderView(name, value) for name, value in headers]
    elif headers is UNREADABLE:
        if not lenient:
            raise UnreadableHeaders
        view.error_code = errors.SERIALIZATION.code
        view.error = "the names of the record's headers are not UTF-8; its headers are left out"


def _show_json(view: RecordView, key: bytes | None, value: bytes | None) -> None:
    try:
        shown = json_or_none(key, "key"), json_or_none(value, "value")
    except ValueError as error:
        view.key = view.value = None
        view.error_code = errors.SERIALIZATION.code
        view.error = str(error)
        view.raw_key, view.raw_value = key, value
        return
    view.key, view.value = shown


def json_or_none(data: bytes | None, what: str) -> Raw | None:
    """Return stored bytes as a part of a JSON document.

    Args:
        data: the key or value; None for null.
        what: ``key`` or ``value``, for the error.

    Raises:
        ValueError: the bytes are not JSON.
    """
    if data is None:
        return None
    try:
        data.decode()  # the parser below does not look into strings
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the record's {what} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"the record's {what} is not JSON: nested too deep") from None
    return Raw(data)


def encoded_size(message: Any) -> int:
    """Return about how many bytes a message takes in a binary answer; for the byte budget."""
    size = len(message)  # the value's length
    key = message.key()
    if key:
        size += len(key)
    return size * 4 // 3 + _RECORD_OVERHEAD


def encode_records(records: list[RecordView]) -> bytes:
    """Return the JSON document of these records."""
    return _encode(records)


# -- records of requests --------------------------------------------------------------------------

_decode_text = msgspec.json.Decoder(str).decode


def decode_value(raw: Raw | bytes, what: str, embedded: Format, *, v2: bool = False) -> bytes | None:
    """Decode an embedded key or value; None for null.

    Args:
        raw: its JSON text in the request.
        what: ``key`` or ``value``, for the error.
        embedded: its format.
        v2: whether to raise v2's error.

    Raises:
        ApiError: the text is not base64 (binary format only).
    """
    text = bytes(raw).strip()
    if text == _NULL:
        return None
    if embedded == "json":
        return compact(text)
    try:
        return decode_base64(
            _decode_text(text)
        )  # what is no string is not decoded: a list may have millions of elements
    except ValueError:
        raise bad_base64(what, text, v2=v2) from None


def decode_base64(text: str) -> bytes:
    """Decode standard base64. White space is ignored, as some encoders fold lines. Raises ValueError."""
    return binascii.a2b_base64(_stripped(text), strict_mode=True)


def _stripped(text: str) -> bytes:
    return text.encode("ascii").translate(None, _WHITE_SPACE)


LONG: Final = 512 * 1024
"""Bytes of the text of a value that is decoded at once. Escapes, such as those of folded lines, take 10 ns each, and blanks 12 ns."""
_ESCAPE: Final = 6
"""Bytes of the longest escape."""


async def decode_long(
    raw: Raw | bytes, what: str, give_way: Callable[[], Awaitable[None]], *, v2: bool = False
) -> bytes:
    """Decode a long base64 value, piece by piece. The result and the errors are those of :func:`decode_value`.

    Args:
        raw: its JSON text in the request.
        what: ``key`` or ``value``, for the error.
        give_way: called between the pieces.
        v2: whether to raise v2's error.
    """
    text = memoryview(raw)  # a copy would take milliseconds
    found, left, at, last = io.BytesIO(), b"", 1, len(text) - 1
    try:
        if bytes(text[:1]) != b'"':
            raise ValueError
        while at < last:
            end = min(at + LONG, last)
            if end < last:
                escape = bytes(text[end - _ESCAPE : end]).rfind(b"\\")
                end -= _ESCAPE - escape if escape >= 0 else 0
            piece = left + _stripped(_decode_text(b"".join((b'"', text[at:end], b'"'))))
            at = end
            # Some characters are left for the next piece, so that padding is only where it ends.
            whole = len(piece) if at >= last else max(0, len(piece) - 4) & ~3
            if at < last and b"=" in piece[:whole]:
                raise ValueError
            found.write(binascii.a2b_base64(piece[:whole], strict_mode=True))
            left = piece[whole:]
            await give_way()
    except ValueError:
        raise bad_base64(what, bytes(text[: 8 * _SHOWN + 1]), v2=v2) from None
    return found.getvalue()


async def compact_long(raw: Raw | bytes, give_way: Callable[[], Awaitable[None]]) -> bytes:
    """Return a long JSON value without the white space between its tokens, as :func:`compact` does, piece by piece.

    Args:
        raw: its JSON text in the request.
        give_way: called between the pieces.
    """
    text = bytes(raw)
    return await long_values.compact(text, give_way) if any(blank in text for blank in _BLANKS) else text


def bad_base64(what: str, text: bytes, *, v2: bool) -> ApiError:
    """Return the error for text that is not base64.

    Args:
        what: ``key`` or ``value``.
        text: the text.
        v2: whether to return v2's error or v1's.
    """
    if v2:
        shown = text[: 8 * _SHOWN].decode("utf-8", "replace")  # a character has at most four bytes
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        return ApiError(errors.BAD_REQUEST, f"data={shown} is not a base64 string.")
    return ApiError(errors.INVALID, f"Record {what} contains invalid base64 encoding")


def compact(text: bytes) -> bytes:
    """Remove the white space between the tokens of a valid JSON document."""
    if any(blank in text for blank in _BLANKS):
        return msgspec.json.format(text, indent=-1)
    return text
