"""Generate Python source for decoders and encoders, remembering the field behind each line.

Interpreting a schema for every message costs tens of microseconds. Instead, the first use of a message in a version
generates and compiles a function for it alone, with all nested structures inlined. If the function fails, the failing
line and the variables tell the field, so precise errors cost nothing until one occurs.
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
"""Types of fixed size and their format characters in :mod:`struct`."""
STRING_MAX: Final = 0x7FFF
"""Largest size of a string in bytes, compact ones included (Kafka's own limit)."""


SMALL: Final = 16
"""Longest array of numbers for which a :class:`struct.Struct` is kept."""


@cache
def _bound_array(format_: str, method: str) -> list[Any]:
    return [getattr(struct.Struct(f">{count}{format_}"), method) for count in range(SMALL + 1)]


@dataclass(frozen=True, slots=True)
class Part:
    """A field in one version. ``unit`` is the smallest size of an element, or of the field, in bytes."""

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
    """Return the fields of a version, in wire order.

    Args:
        fields: those of all versions.
        version: of the message.
        flexible: the version has compact lengths and tagged fields (KIP-482).
    """
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
    """Raise UnsupportedVersionError if the message has no such version."""
    if version not in message.versions:
        first, last = message.versions[0], message.versions[-1]
        known = str(first) if first == last else f"{first} to {last}"
        raise UnsupportedVersionError(f"{message.name} has no version {version} (known: {known})")


class Source:
    """The source of a function being generated, with the path of the field that each line handles."""

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
        """Add a line that reads several fields at once.

        Args:
            text: the line.
            fields: their paths and sizes in bytes, in wire order.
        """
        self.line(text)
        self._paths[-1] = fields

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line and indent the lines inside the ``with`` statement below it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Set the path of the field that the lines inside the ``with`` statement handle."""
        before, self.path = self.path, path
        yield
        self.path = before

    def name(self, prefix: str) -> str:
        """Return an unused variable name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def bound(self, format_: str, method: str) -> str:
        """Add a method of a :class:`struct.Struct` to the function's globals and return its name.

        Args:
            format_: of the struct, big-endian, without the ``>``.
            method: its name, such as ``unpack_from``.
        """
        name = f"{method}_{format_.replace('?', 'o')}"
        self.globals[name] = getattr(struct.Struct(f">{format_}"), method)
        return name

    def bound_array(self, format_: str, method: str) -> str:
        """Add a list of such methods, indexed by array length up to SMALL, to the globals and return its name.

        Most arrays are short lists of replicas. Without the list, a MetadataResponse of 20 topics with 12 partitions
        took 0.64 ms to decode instead of 0.46.

        Args:
            format_: of one element, as for :meth:`bound`.
            method: likewise.
        """
        name = f"{method}s_{format_.replace('?', 'o')}"
        self.globals[name] = _bound_array(format_, method)
        return name

    def compile(self, function: str) -> Callable[..., Any]:
        """Compile the source and return the function called ``function``."""
        text = "\n".join(self._lines) + "\n"
        # Lets tracebacks show the generated code.
        linecache.cache[self.file] = (len(text), None, text.splitlines(keepends=True), self.file)
        exec(compile(text, self.file, "exec"), self.globals)  # noqa: S102  generated from our own table
        made: Callable[..., Any] = self.globals[function]
        made.__wire_paths__ = self._paths  # type: ignore[attr-defined]
        return made


def locate(function: Callable[..., Any], trace: TracebackType | None) -> tuple[str, dict[str, Any]]:
    """Return the path of the field at which a generated function failed, and the function's variables."""
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
    """Join ``Topics[0]`` and ``Name`` to ``Topics[0].Name``."""
    return f"{path}.{name}" if path else name


def literal(part: Part) -> str:
    """Return the default of a field as source code."""
    return "NULL" if part.default == NULL_UUID else repr(part.default)
