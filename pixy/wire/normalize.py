"""Check the body of a message field by field before encoding, and fill in defaults.

Stricter than Java in one respect: Java drops an *ignorable* field that the version lacks, while this module refuses any
value but the default, so that no data is lost silently.
"""

from __future__ import annotations

import difflib
import operator
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pixy.wire.codegen import STRING_MAX, append_path
from pixy.wire.exceptions import EncodeError
from pixy.wire.schema import INTEGERS, Field, Message

TAGS: Final = "_tags"
"""The key of a structure's unknown tagged fields."""

_BITS: Final = {
    "b": (-0x80, 0x7F),
    "h": (-0x8000, 0x7FFF),
    "H": (0, 0xFFFF),
    "i": (-(1 << 31), (1 << 31) - 1),
    "I": (0, 0xFFFFFFFF),
    "q": (-(1 << 63), (1 << 63) - 1),
}


def normalize(message: Message, version: int, body: object) -> dict[str, Any]:
    """Return ``body`` with all fields of the version and values of the exact types.

    Args:
        message: the schema.
        version: a known version of the message.
        body: a mapping of fields; anything else is an error.

    Raises:
        EncodeError: an unknown field, a wrong type, an integer out of range, a null that is not allowed, or a value
            other than the default in a field that the version lacks.
    """
    walk = _Walk(version, version in message.flexible)
    try:
        return walk.struct(message.fields, body, "")
    except EncodeError as error:
        raise EncodeError(f"{message.name} v{version}: {error}") from None


class _Walk:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible

    def struct(self, fields: tuple[Field, ...], body: object, path: str) -> dict[str, Any]:
        if not isinstance(body, Mapping):
            raise _wrong(path, body, "a mapping of fields")
        known = {each.name: each for each in fields}
        for key in body:
            if key not in known and key != TAGS:
                raise EncodeError(f"{append_path(path, str(key))}: no such field{_hint(str(key), known)}")
        found = {}
        for name, field in known.items():
            inner = append_path(path, name)
            if self._version in field.versions:
                found[name] = (
                    self._field(field, body[name], inner) if name in body else field.default_in(self._version)
                )
            elif name in body and not _is_default(field, body[name]):
                raise EncodeError(
                    f"{inner}: version {self._version} has no such field (it is in {_versions(field)}), "
                    f"and {body[name]!r:.40} is not its default"
                )
        if body.get(TAGS):
            found[TAGS] = self._tags(body[TAGS], fields, path)
        return found

    def _field(self, field: Field, value: object, path: str) -> Any:
        if value is None:
            if self._version in field.nullable:
                return None
            raise EncodeError(f"{path}: null, which version {self._version} does not allow")
        if not field.array:
            return self._value(field, value, path)
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
            raise _wrong(path, value, "a list")
        return [self._value(field, each, f"{path}[{i}]") for i, each in enumerate(value)]

    def _value(self, field: Field, value: Any, path: str) -> Any:
        if field.kind == "struct":
            return self.struct(field.fields, value, path)
        if field.kind in INTEGERS:
            return _integer(field.kind, value, path)
        if field.kind == "string":
            return _string(value, path)
        if field.kind in {"bytes", "records"}:
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise _wrong(path, value, "bytes")
            return bytes(value)
        if field.kind == "float64" and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        needed = {"bool": bool, "uuid": uuid.UUID}.get(field.kind, float)
        if not isinstance(value, needed):
            raise _wrong(path, value, f"a {field.kind}")
        return value

    def _tags(self, tags: object, fields: tuple[Field, ...], path: str) -> dict[int, bytes]:
        path = append_path(path, TAGS)
        if not self._flexible:
            raise EncodeError(f"{path}: version {self._version} has no tagged fields")
        if not isinstance(tags, Mapping):
            raise _wrong(path, tags, "a mapping of tags to bytes")
        found = {}
        for tag, value in tags.items():
            number = _integer("uint32", tag, path)
            for field in fields:
                if field.tag == number and self._version in field.versions:
                    raise EncodeError(f"{path}[{tag}]: this tag is the field {field.name}")
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise _wrong(f"{path}[{tag}]", value, "bytes")
            found[number] = bytes(value)
        return found


def _integer(kind: str, value: Any, path: str) -> int:
    if isinstance(value, bool):
        raise _wrong(path, value, f"an {kind}")
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(path, value, f"an {kind}") from None
    least, most = _BITS[INTEGERS[kind]]
    if not least <= number <= most:
        raise EncodeError(f"{path}: {number} does not fit an {kind} ({least} to {most})")
    return number


def _string(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, value, "a string")
    try:
        length = len(value.encode())
    except UnicodeEncodeError as error:
        raise EncodeError(f"{path}: not encodable as UTF-8: {error.reason}") from None
    if length > STRING_MAX:
        raise EncodeError(f"{path}: string of {length} bytes, {STRING_MAX} are allowed")
    return value


def _is_default(field: Field, value: object) -> bool:
    default = field.default_in(field.versions[0])
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


def _wrong(path: str, value: object, needed: str) -> EncodeError:
    text = f"{'null' if value is None else type(value).__name__} where {needed} is needed"
    return EncodeError(f"{path}: {text}" if path else text)


def _hint(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, 1) or [
        each for each in known if each.lower() == name.lower().replace("_", "")
    ]
    return f" (did you mean {close[0]}?)" if close else f" (there are {', '.join(known)})" if known else ""


def _versions(field: Field) -> str:
    first, last = field.versions[0], field.versions[-1]
    return f"version {first}" if first == last else f"versions {first} to {last}"
