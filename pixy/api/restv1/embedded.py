"""Keys and values as they stand in JSON: base64 (binary) or any JSON value (json). Pure.

Null, empty, ``0``, ``false``, ``""`` and ``{}`` are different things and stay so: JSON null is a
null key or a tombstone, in both formats; the empty string is no bytes in binary and two quotes in
json. A JSON value is stored as the client wrote it, less the white space between its tokens, so
numbers keep their digits.
"""

from __future__ import annotations

import binascii
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pixy.api.restv1 import errors
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.negotiation import Format

_NULL = b"null"
_BLANKS = (b" ", b"\n", b"\t", b"\r")


# -- records of answers ---------------------------------------------------------------------------


class HeaderView(Struct, gc=False):
    """A record header; the value is base64 in the document."""

    key: str
    value: bytes | None


class RecordView(Struct, gc=False, kw_only=True):
    """A record of an answer. ``bytes`` become base64; what is UNSET is left out."""

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
    """Beside ``error``: the key as it is."""
    raw_value: bytes | UnsetType | None = UNSET


_RECORD_OVERHEAD = 160
_encode = msgspec.json.Encoder().encode


def record_view(message: Any, embedded: Format) -> RecordView:
    """A consumed message (the methods of confluent-kafka's) for an answer.

    One that is not JSON in the json format becomes an entry with ``error_code``, ``error`` and its
    bytes in ``raw_key`` and ``raw_value``: it does not take the batch with it.
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
    if kind:
        view.timestamp = at
    _show_headers(view, message)
    if embedded == "json":
        _show_json(view, key, value)
    return view


def _show_headers(view: RecordView, message: Any) -> None:
    try:
        headers = message.headers()
    except UnicodeDecodeError:
        # confluent-kafka refuses names that are not UTF-8 and then tells none of the headers.
        view.error_code = errors.SERIALIZATION.code
        view.error = "the names of the record's headers are not UTF-8; its headers are left out"
        return
    if headers:
        view.headers = [HeaderView(name, value) for name, value in headers]


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
    """Stored bytes as a part of a JSON document; None for null. Raises ValueError."""
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
    """About how many bytes of a binary answer a message takes; for budgets."""
    size = len(message)  # the value's length
    key = message.key()
    if key:
        size += len(key)
    return size * 4 // 3 + _RECORD_OVERHEAD


def encode_records(records: list[RecordView]) -> bytes:
    """The document."""
    return _encode(records)


# -- records of requests --------------------------------------------------------------------------


def decode_value(raw: Raw | bytes, what: str, embedded: Format, *, v2: bool = False) -> bytes | None:
    """An embedded key or value as bytes; None for null.

    Args:
        raw: the JSON text that stands in the request.
        what: ``key`` or ``value``, for the error.
        v2: whether the error is to be that of v2.

    Raises:
        ApiError: it is not base64 (binary format only).
    """
    text = bytes(raw).strip()
    if text == _NULL:
        return None
    if embedded == "json":
        return compact(text)
    try:
        found = msgspec.json.decode(text)
        if isinstance(found, str):
            return decode_base64(found)
    except (ValueError, RecursionError):
        pass
    raise bad_base64(what, text, v2=v2)


def decode_base64(text: str) -> bytes:
    """Standard base64; white space, as some encoders fold lines, is ignored. Raises ValueError."""
    return binascii.a2b_base64("".join(text.split()).encode("ascii"), strict_mode=True)


def bad_base64(what: str, text: bytes, *, v2: bool) -> ApiError:
    """The error of each version."""
    if v2:
        shown = text.decode("utf-8", "replace")
        if len(shown) > 80:
            shown = shown[:80] + "..."
        return ApiError(errors.BAD_REQUEST, f"data={shown} is not a base64 string.")
    return ApiError(errors.INVALID, f"Record {what} contains invalid base64 encoding")


def compact(text: bytes) -> bytes:
    """A valid JSON document without white space between its tokens."""
    if any(blank in text for blank in _BLANKS):
        return msgspec.json.format(text, indent=-1)
    return text
