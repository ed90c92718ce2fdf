"""Convert records to and from JSON: ``{"offset", "timestamp", "key", "value", "headers"}``, bytes in base64."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any

from pixy.wire.exceptions import DecodeError
from pixy.wire.record import Record

_FIELDS = ("offset", "timestamp", "key", "value", "headers")
_INT64 = range(-(1 << 63), 1 << 63)


def to_json(record: Record) -> dict[str, Any]:
    """Convert a record to a JSON document."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [{"key": key, "value": _base64(value)} for key, value in record.headers],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def read_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, keywords of ``Builder.add``) for each line that is not empty.

    Every field may be missing: the offset counts on, the timestamp is now, key and value are null. Raises DecodeError
    that names the line, with the line's offset in the input.
    """
    start = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, _parse(line)
            except ValueError as error:
                raise DecodeError(f"line {number}: {error}", start) from None
        start += len(line)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    if document.get("control") is not None:
        raise ValueError("a control record; only brokers write those")
    unknown = document.keys() - {*_FIELDS, "control"}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}; there are {', '.join(_FIELDS)}")
    found: dict[str, Any] = {
        "key": _bytes(document, "key"),
        "value": _bytes(document, "value"),
        "headers": _headers(document.get("headers")),
    }
    for name in ("offset", "timestamp"):
        value = document.get(name)
        if value is None:
            continue
        if type(value) is not int or value not in _INT64:
            raise ValueError(f"{name} is not a 64 bit integer")
        found[name] = value
    if found.get("offset", 0) < 0:
        raise ValueError("offset is negative")
    return found


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} is neither base64 nor null")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


def _headers(value: Any) -> list[tuple[str, bytes | None]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("headers is not a list")
    found = []
    for index, header in enumerate(value):
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise ValueError(f'header {index} is not an object with a "key"')
        if header.keys() - {"key", "value"}:
            raise ValueError(f'header {index} has more than "key" and "value"')
        try:
            header["key"].encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"key of header {index} is not text") from None
        try:
            found.append((header["key"], _bytes(header, "value")))
        except ValueError as error:
            raise ValueError(f"header {index}: {error}") from None
    return found
