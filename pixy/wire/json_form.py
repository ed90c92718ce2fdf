"""Convert message bodies to and from JSON, for people and scripts.

Fields keep their names. Bytes and records become base64, UUIDs the 22 base64url characters that Kafka's own tools show,
the tags of unknown tagged fields strings, and floats that JSON has no number for "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from pixy.wire import schema
from pixy.wire.codegen import append_path
from pixy.wire.exceptions import EncodeError
from pixy.wire.normalize import TAGS
from pixy.wire.schema import Field

_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def to_json(value: Any) -> Any:
    """Convert a body, or a value in it, to values that :mod:`json` accepts."""
    if isinstance(value, dict):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [to_json(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return uuid_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, each in _NOT_FINITE.items() if each == value or math.isnan(value))
    return value


def from_json(name: str, version: int, value: Any) -> Any:
    """Convert parsed JSON to a body for :func:`pixy.wire.messages.encode`, which checks the rest.

    Args:
        name: message name, as ``JoinGroupRequest``.
        version: version of the message.
        value: parsed JSON.

    Raises:
        EncodeError: a field is not valid base64 or no UUID; the text names the field.
        UnsupportedVersionError: the message is unknown.
    """
    try:
        return _struct(schema.message(name).fields, value, "")
    except EncodeError as error:
        raise EncodeError(f"{name} v{version}: {error}") from None


def uuid_text(value: uuid.UUID) -> str:
    """Format a UUID as Kafka does: 22 base64url characters."""
    return base64.urlsafe_b64encode(value.bytes).decode()[:22]


def _struct(fields: tuple[Field, ...], value: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    known = {each.name: each for each in fields}
    found: dict[str, Any] = {}
    for name, each in value.items():
        inner = append_path(path, name)
        if name == TAGS and isinstance(each, Mapping):
            found[name] = {_tag(tag, inner): _bytes(data, f"{inner}[{tag}]") for tag, data in each.items()}
        elif name in known and known[name].array and isinstance(each, list):
            found[name] = [_value(known[name], item, f"{inner}[{i}]") for i, item in enumerate(each)]
        elif name in known and not known[name].array:
            found[name] = _value(known[name], each, inner)
        else:
            found[name] = each
    return found


def _value(field: Field, value: Any, path: str) -> Any:
    if field.kind == "struct":
        return _struct(field.fields, value, path)
    if field.kind in {"bytes", "records"} and value is not None:
        return _bytes(value, path)
    if field.kind == "float64" and isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if field.kind == "uuid" and isinstance(value, str):
        return _uuid(value, path)
    return value


def _bytes(value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise EncodeError(f"{path}: {type(value).__name__} where a string with base64 is needed")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EncodeError(f"{path}: not base64: {error}") from None


def _uuid(value: str, path: str) -> uuid.UUID:
    try:
        if _UUID.fullmatch(value):
            return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{value}=="))
        return uuid.UUID(value)
    except ValueError:
        raise EncodeError(f"{path}: not a UUID: {value!r:.60}") from None


def _tag(value: str, path: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value):
        raise EncodeError(f"{path}: not the number of a tag: {value!r:.40}")
    return int(value)
