"""What writing a decoder and an encoder have in common: lines of Python, and where each came from.

Schemas are data, and walking them for every message costs tens of microseconds. So the first use of
a message in a version writes a function for it alone, with every nested structure inlined, and
compiles that. When the function fails, its line and its variables tell which field it was at:
precise errors cost nothing until there is one.
"""

from __future__ import annotations

import contextlib
import linecache
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Final

from pixy.wire.exceptions import UnsupportedVersionError
from pixy.wire.schema import INTEGERS, NULL_UUID, Field, Message

FORMATS: Final = {**INTEGERS, "bool": "?", "float64": "d", "uuid": "16s"}
"""Types of a fixed size, as :mod:`struct` calls them."""
STRING_MAX: Final = 0x7FFF
"""Bytes in a string, also in a compact one (Kafka's own limit)."""


SMALL: Final = 16
"""Elements of an array of numbers that has a :class:`struct.Struct` of its own."""


@cache
def _bound_array(format_: str, method: str) -> list[Any]:
    return [getattr(struct.Struct(f">{count}{format_}"), method) for count in range(SMALL + 1)]


@dataclass(frozen=True, slots=True)
class Part:
    """A field as it is in one version. ``unit`` is the least an element, or the field, takes in bytes."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    compact: bool
    default: Any
    parts: tuple[Part, ...]
    unit: int


def parts(fields: tuple[Field, ...], version: int, flexible: bool) -> tuple[Part, ...]:
    """The fields that ``version`` has, in wire order."""
    return tuple(_part(each, version, flexible) for each in fields if version in each.versions)


def _part(field: Field, version: int, flexible: bool) -> Part:
    nested = parts(field.fields, version, flexible)
    compact = flexible and field.compact
    if field.kind == "struct":
        unit = sum(_least(each) for each in nested if each.tag is None) + flexible
    elif field.kind in FORMATS:
        unit = struct.calcsize(">" + FORMATS[field.kind])
    else:
        unit = 1 if compact else 2 if field.kind == "string" else 4
    return Part(
        field.name,
        field.kind,
        field.array,
        version in field.nullable,
        field.tag if flexible else None,
        compact,
        field.default_in(version),
        nested,
        max(unit, 1),
    )


def _least(part: Part) -> int:
    if part.array:
        return 1 if part.compact else 4
    return 1 if part.kind == "struct" and part.nullable else part.unit


def check_version(message: Message, version: int) -> None:
    """Raise UnsupportedVersionError unless the version is known."""
    if version not in message.versions:
        first, last = message.versions[0], message.versions[-1]
        known = str(first) if first == last else f"{first} to {last}"
        raise UnsupportedVersionError(f"{message.name} has no version {version} (known: {known})")


class Source:
    """Lines of a function being written, each with the path of the field it deals with."""

    def __init__(self, title: str) -> None:
        self.file = f"<{title}>"
        self.globals: dict[str, Any] = {}
        self._lines: list[str] = []
        self._paths: list[str | list[tuple[str, int]]] = []
        self._depth = 0
        self._names = 0
        self.path = ""

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._depth + text)
        self._paths.append(self.path)

    def line_at(self, text: str, fields: list[tuple[str, int]]) -> None:
        """Add a line that reads several fields at once: their paths and sizes."""
        self.line(text)
        self._paths[-1] = fields

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that others belong to."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Name the field that the lines inside deal with."""
        before, self.path = self.path, path
        yield
        self.path = before

    def name(self, prefix: str) -> str:
        """A variable that is not used yet."""
        self._names += 1
        return f"{prefix}{self._names}"

    def bound(self, format_: str, method: str) -> str:
        """A method of a :class:`struct.Struct`, as a global of the function."""
        name = f"{method}_{format_.replace('?', 'o')}"
        self.globals[name] = getattr(struct.Struct(f">{format_}"), method)
        return name

    def bound_array(self, format_: str, method: str) -> str:
        """The same for arrays by their length, up to SMALL: a global list.

        Most arrays are lists of replicas: with the format made anew each time, a MetadataResponse of 20 topics with
        12 partitions took 0.64 ms to decode instead of 0.46.
        """
        name = f"{method}s_{format_.replace('?', 'o')}"
        self.globals[name] = _bound_array(format_, method)
        return name

    def compile(self, function: str) -> Callable[..., Any]:
        """The function that the lines define."""
        text = "\n".join(self._lines) + "\n"
        # For whoever looks at a traceback, or at the code itself.
        linecache.cache[self.file] = (len(text), None, text.splitlines(keepends=True), self.file)
        exec(compile(text, self.file, "exec"), self.globals)  # noqa: S102  our own table, nobody else's text
        made: Callable[..., Any] = self.globals[function]
        made.__wire_paths__ = self._paths  # type: ignore[attr-defined]
        return made


def place(function: Callable[..., Any], trace: TracebackType | None) -> tuple[str, dict[str, Any]]:
    """Where in the message a compiled function was when it failed: the field's path, its variables."""
    code = function.__code__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    assert trace is not None
    variables = dict(trace.tb_frame.f_locals)
    found: str | list[tuple[str, int]] = function.__wire_paths__[trace.tb_lineno - 1]  # type: ignore[attr-defined]
    path = found if isinstance(found, str) else found[0][0]
    for each, length in () if isinstance(found, str) else found:
        path = each
        if variables["pos"] + length > variables["size"]:
            break
        variables["pos"] += length
    return path.format_map(variables), variables


def append_path(path: str, name: str) -> str:
    """``Topics[0]`` and ``Name`` make ``Topics[0].Name``."""
    return f"{path}.{name}" if path else name


def literal(part: Part) -> str:
    """The default of a field, as source code."""
    return "NULL" if part.default == NULL_UUID else repr(part.default)
