"""Read request parameters as the original does. Pure: text in, values or InvalidParameter out."""

from __future__ import annotations

import base64
import binascii
import codecs
import io
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from pixy.api.limits import MOST_COMMAS, MOST_OFFSETS, MOST_PARAMETERS
from pixy.errors import InvalidParameter

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_JSON_TYPE = re.compile(r"^application/(?:.*\+)?json(?:;.*)?$")
LONG = 64 * 1024
"""Bytes of a value, or characters of a text, that are converted at once: a millisecond, or some six with as many lone surrogates."""
_LONGEST_NAME = 256
"""Bytes of a parameter's name, still encoded; nothing that is longer has a meaning."""
_SPACES = bytes.maketrans(b"+", b" ")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HEADER_PREFIX = "x-kafka-"
_INT32, _INT64 = 2**31, 2**63


class Params:
    """Query and form parameters by name, each with all its values, as bytes."""

    __slots__ = ("_values",)

    def __init__(self, query: bytes, form: bytes = b"") -> None:
        self._values: dict[str, list[bytes]] = {}
        # A form's values come first and therefore take precedence.
        for source in (form, query):
            for name, value in _pairs(source):
                try:
                    self._add(name, _unquote(value))
                except ValueError:
                    continue  # as Go's net/url does here

    @classmethod
    async def read(cls, query: bytes, form: bytes, give_way: Callable[[], Awaitable[None]]) -> Params:
        """Read the parameters of a long form; ``give_way`` is called between its pieces."""
        found = cls(b"")
        for source in (form, query):
            for name, value in _pairs(source):
                try:
                    found._add(name, await _unquote_long(value, give_way))
                except ValueError:
                    continue
        return found

    def _add(self, name: bytes, value: bytes) -> None:
        self._values.setdefault(_unquote(name).decode("utf-8", "replace"), []).append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def first(self, name: str) -> bytes | None:
        """Return the first value of a parameter, or None."""
        values = self._values.get(name)
        return values[0] if values else None

    def group(self, *, optional: bool = False) -> str:
        """Return the consumer group; an empty string if it is optional and missing."""
        groups = self._values.get("group", [])
        if len(groups) > 1 or (not groups and not optional):
            raise InvalidParameter(f"one consumer group is expected, but {len(groups)} provided")
        if not groups:
            return ""
        try:
            return groups[0].decode()
        except UnicodeDecodeError:
            raise InvalidParameter("bad group: not UTF-8") from None

    def ack(self, partition_name: str, offset_name: str) -> tuple[int, int] | None:
        """Return (partition, offset) of the message to acknowledge; None if neither parameter is given.

        Args:
            partition_name: the name of the parameter with the partition.
            offset_name: of the one with the offset.
        """
        found = [self._integer(partition_name, _INT32), self._integer(offset_name, _INT64)]
        if found[0] is None and found[1] is None:
            return None
        if found[0] is None or found[1] is None:
            raise InvalidParameter(
                f"{partition_name} and {offset_name} either both should be provided or neither"
            )
        for name, value in zip((partition_name, offset_name), found, strict=True):
            if value is not None and value < 0:
                raise InvalidParameter(f"bad {name}: [{value}]: must not be negative")
        return found[0], found[1]

    def _integer(self, name: str, bound: int) -> int | None:
        values = self._values.get(name)
        if not values:
            return None
        texts = [value.decode("utf-8", "replace") for value in values]
        problem = ""
        if not _INTEGER.match(texts[0]):
            problem = "invalid syntax"
        # A number of a thousand digits is out of range: do not convert it.
        elif len(texts[0]) > 40 or not -bound <= int(texts[0]) < bound:
            problem = "value out of range"
        if problem:
            quoted = texts[0].replace("\\", "\\\\").replace('"', '\\"')
            raise InvalidParameter(
                f'bad {name}: [{" ".join(texts)}]: strconv.ParseInt: parsing "{quoted}": {problem}'
            )
        return int(texts[0])


def _pairs(source: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and values, still encoded. Raises InvalidParameter: there are too many."""
    if source.count(b"&") >= MOST_PARAMETERS:
        raise InvalidParameter(f"too many parameters, at most {MOST_PARAMETERS} are read")
    for pair in source.split(b"&"):
        if not pair or b";" in pair:
            continue  # dropped silently, as Go's net/url does here
        name, _, value = pair.partition(b"=")
        if len(name) <= _LONGEST_NAME:
            yield name, value


async def _unquote_long(value: bytes, give_way: Callable[[], Awaitable[None]]) -> bytes:
    """Decode percent-encoding, piece by piece. Raises ValueError."""
    if len(value) <= LONG:
        return _unquote(value)
    found, at = io.BytesIO(), 0
    while at < len(value):
        end = min(at + LONG, len(value))
        escape = value.rfind(b"%", end - 2, end) if end < len(value) else -1
        end = escape if escape >= 0 else end
        found.write(_unquote(value[at:end]))
        at = end
        await give_way()
    return found.getvalue()


def _unquote(value: bytes) -> bytes:
    """Decode percent-encoding. Raises ValueError.

    In one call into C: ``urllib`` takes half a second for a message of a megabyte, and holds up the event loop.
    """
    value = value.translate(_SPACES)
    if b"%" not in value:
        return value
    # Escapes of Python's literals: a backslash is itself, and %41 is \x41.
    return codecs.escape_decode(value.replace(b"\\", b"\\\\").replace(b"%", b"\\x"))[0]


def is_form(content_type: str) -> bool:
    """Return whether the content type is a form, with or without a charset."""
    return _media_type(content_type) == "application/x-www-form-urlencoded"


def is_message_body(content_type: str) -> bool:
    """Return whether the body itself is the message."""
    return (
        _media_type(content_type) in ("text/plain", "application/octet-stream")
        or _JSON_TYPE.match(content_type) is not None
    )


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def record_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, bytes]]:
    """Collect record headers, ``X-Kafka-<Name>: <base64>``, in the order of the request."""
    found: list[tuple[str, bytes]] = []
    for name, value in headers:
        if not name.lower().startswith(_HEADER_PREFIX):
            continue
        canonical = "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))
        try:
            decoded = base64.b64decode(value.strip(" \t").encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError, ValueError):
            raise InvalidParameter(f"Invalid base64 encoding for header: {canonical}") from None
        found.append((canonical[len(_HEADER_PREFIX) :], decoded))
    return found


def offsets_of(document: Any) -> list[Any]:
    """Return the elements of the body of a request to set offsets. Raises InvalidParameter, as :func:`offset_of` does."""
    if document is None:
        return []
    if not isinstance(document, list):
        raise _cannot(document, "Go value of type []httpsrv.partitionInfo")
    if len(document) > MOST_OFFSETS:
        raise _too_many()
    return document


def offset_of(element: Any) -> tuple[int, int, str]:
    """Convert such an element to partition, offset and metadata; long metadata is left to :func:`printable_metadata`.

    Raises:
        InvalidParameter: with Go's text for a value of the wrong type, or there are too many elements.
    """
    if element is None:
        element = {}
    if not isinstance(element, dict):
        raise _cannot(element, "Go value of type httpsrv.partitionInfo")
    # Go ignores the case of field names.
    fields = {str(name).lower(): value for name, value in element.items()}
    partition = _int_field(fields, "partition", "int32", _INT32)
    offset = _int_field(fields, "offset", "int64", _INT64)
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, str):
        raise _cannot(metadata, "Go struct field partitionInfo.metadata of type string")
    metadata = metadata or ""
    return partition, offset, metadata if len(metadata) > LONG else _printable(metadata)


def check_size(body: bytes) -> None:
    """Refuse a document of so many objects that parsing it would hold up the event loop. Raises InvalidParameter."""
    if body.count(b"{") > MOST_OFFSETS or body.count(b",") > MOST_COMMAS:
        raise _too_many()


def _too_many() -> InvalidParameter:
    return InvalidParameter(f"Failed to parse the request: err=(more than {MOST_OFFSETS} objects)")


async def printable_metadata(text: str, give_way: Callable[[], Awaitable[None]]) -> str:
    """Replace lone surrogate escapes of JSON by U+FFFD, as Go does; ``give_way`` is called between the pieces of the text."""
    found = []
    for at in range(0, len(text), LONG):
        found.append(_printable(text[at : at + LONG]))
        await give_way()
    return "".join(found)


def _printable(text: str) -> str:
    # Those that are no pair: the parser has made one character of each pair.
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _int_field(fields: dict[str, Any], name: str, go_type: str, bound: int) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
        raise _cannot(value, f"Go struct field partitionInfo.{name} of type {go_type}")
    return value


def _cannot(value: Any, wanted: str) -> InvalidParameter:
    if isinstance(value, bool):
        kind = "bool"
    elif isinstance(value, (int, float)):
        kind = f"number {value}" if "field" in wanted else "number"
    else:
        names: dict[type, str] = {str: "string", list: "array", dict: "object"}
        kind = names.get(type(value), "value")
    return InvalidParameter(f"Failed to parse the request: err=(json: cannot unmarshal {kind} into {wanted})")
