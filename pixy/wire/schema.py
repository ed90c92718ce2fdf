"""The schemas of Kafka's messages, from the generated table ``messages.txt``.

The table has one line for each field, so it can be read, compared and searched. It is loaded at the first lookup, and a
message is parsed when it is first used.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from pixy.wire.exceptions import UnsupportedVersionError

ALWAYS: Final = range(0x8000)
NEVER: Final = range(0)
NULL_UUID: Final = uuid.UUID(int=0)
INTEGERS: Final = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
"""Integer types and their format characters in :mod:`struct`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message, for all versions.

    ``kind`` is Kafka's name of the type (the element's, for an ``array``), or ``struct`` if it has fields of its own.
    """

    name: str
    kind: str
    array: bool
    versions: range
    nullable: range
    tag: int | None
    compact: bool
    default: Any
    fields: tuple[Field, ...]

    def default_in(self, version: int) -> Any:
        """Return a new copy of the field's default in ``version``."""
        if self.default == [] and self.array:
            return []
        if self.kind == "struct" and self.default is not None:
            return {each.name: each.default_in(version) for each in self.fields if version in each.versions}
        return self.default


@dataclass(frozen=True, slots=True)
class Message:
    """A message. ``key`` is its API key, None for a header or embedded data; ``versions`` are the known ones."""

    name: str
    key: int | None
    versions: range
    flexible: range
    fields: tuple[Field, ...]


@cache
def blocks() -> dict[str, str]:
    """Return the table's text by message name, in order of API keys."""
    return _read("messages.txt")


@cache
def internal_blocks() -> dict[str, str]:
    """Return the text of the records of internal topics, by name (see :mod:`pixy.wire.internal_topics`)."""
    return _read("internal_topics.txt")


def _read(file: str) -> dict[str, str]:
    text = resources.files("pixy.wire").joinpath(file).read_text(encoding="utf-8")
    return {block[: block.index(" ")]: block for block in text.split("\n\n")[1:]}


@cache
def message(name: str) -> Message:
    """Return the message, or record, called ``name`` in Kafka's schemas. Raises UnsupportedVersionError if there is none."""
    try:
        block = blocks().get(name) or internal_blocks()[name]
        head, *lines = block.rstrip("\n").split("\n")
    except KeyError:
        raise UnsupportedVersionError(f"unknown message {name!r}") from None
    words = head.split(" ")
    options = dict(zip(words[1::2], words[2::2], strict=True))
    versions = _range(options["versions"], ALWAYS)
    parsed = list(_fields(lines, 1, versions))
    return Message(
        name,
        int(options["key"]) if "key" in options else None,
        versions,
        _range(options["flexible"], versions),
        tuple(parsed),
    )


@cache
def keys() -> dict[int, str]:
    """Map API keys to API names (``JoinGroup``). Of two names for one key, the newer wins."""
    found: dict[int, str] = {}
    for name, block in blocks().items():
        words = block.split(maxsplit=3)
        if name.endswith("Request") and words[1] == "key":
            # KIP-1142 renamed ListClientMetricsResources; names come sorted, so the newer is the last.
            found[int(words[2])] = name.removesuffix("Request")
    return found


def _range(text: str, within: range) -> range:
    if text == "none":
        return NEVER
    first, _, last = text.rstrip("+").partition("-")
    return range(int(first), within.stop if text[-1] == "+" else int(last or first) + 1)


def _fields(lines: list[str], depth: int, within: range) -> Iterator[Field]:
    # A line indented by ``depth`` begins a field; deeper lines after it are the fields of its structure.
    starts = [i for i, line in enumerate(lines) if line[depth] != " "]
    for start, stop in zip(starts, [*starts, len(lines)][1:], strict=True):
        name, type_, versions, *rest = lines[start].split()
        options = dict(each.split("=", 1) for each in rest)
        kind = type_.removeprefix("[]")
        yield Field(
            name,
            kind,
            type_ != kind,
            _range(versions, within),
            _range(options.get("null", "none"), within),
            int(options["tag"]) if "tag" in options else None,
            options.get("flexible") != "none",
            _default(kind, type_ != kind, options.get("default", "")),
            tuple(_fields(lines[start + 1 : stop], depth + 1, within)),
        )


def _default(kind: str, array: bool, text: str) -> Any:
    if text == "null" or kind == "records":
        return None
    if array:
        return []
    if kind in INTEGERS:
        return int(text or 0)
    if kind == "float64":
        return float(text or 0)
    plain = {"bool": text == "true", "string": text, "bytes": b"", "uuid": NULL_UUID, "struct": {}}
    return plain[kind]
