"""Encoders of messages, generated and compiled at first use: one function for each message and version.

The compiled function takes bodies that have every field of the version with a value of the exact type. Any other body
first goes through :mod:`pixy.wire.normalize`, which checks it and fills in defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from pixy.wire import schema
from pixy.wire.codegen import (
    FORMATS,
    SMALL,
    STRING_MAX,
    Part,
    Source,
    check_version,
    literal,
    parts,
)
from pixy.wire.varint import encode_unsigned as uvarint

Encoder = Callable[[Mapping[str, Any]], bytes]
FAILURES: Final = (TypeError, KeyError, AttributeError, ValueError, struct.error)
"""Exceptions that an encoder raises for a body that is not in the exact form."""

_SHORT: Final = [bytes([value]) for value in range(128)]


@cache
def encoder(name: str, version: int) -> Encoder:
    """Return the encoder of a message in a version.

    The encoder raises one of FAILURES for a body that is not in the exact form.

    Args:
        name: message name, as ``JoinGroupRequest``.
        version: version of the message.

    Raises:
        UnsupportedVersionError: the message or version is unknown.
    """
    message = schema.message(name)
    check_version(message, version)
    flexible = version in message.flexible
    source = Source(f"encode {name} v{version}")
    source.globals |= {
        "uvarint": uvarint,
        "SHORT": _SHORT,
        "tags": _tags,
        "pack": struct.pack,
        "NULL": schema.NULL_UUID,
        "INT": {int},
        "FLOAT": {float},
        "BOOL": {bool},
    }
    writer = _Writer(source, flexible)
    with source.block("def encode(body):"):
        source.line("out = []")
        source.line("add = out.append")
        writer.body(parts(message.fields, version, flexible))
        source.line("return b''.join(out)")
    return source.compile("encode")


def _tags(values: Mapping[int, bytes], *more: tuple[int, bytes] | None) -> bytes:
    """Encode a section of tagged fields, in ascending order of tags."""
    known = [each for each in more if each]
    if not values and not known:
        return b"\0"
    if not all(type(tag) is int and type(value) is bytes for tag, value in values.items()):
        raise TypeError
    found = sorted([*values.items(), *known])
    return b"".join(
        [
            uvarint(len(found)),
            *(uvarint(tag) + uvarint(len(value)) + value for tag, value in found),
        ]
    )


class _Writer:
    """Generates the code. In it, ``add`` appends the next bytes."""

    def __init__(self, source: Source, flexible: bool) -> None:
        self._source = source
        self._flexible = flexible
        self._add = "add"
        self._run: list[tuple[str, str]] = []

    def body(self, fields: Sequence[Part]) -> None:
        """Generate code for the outermost structure."""
        self.struct(fields, "body")
        self._flush()

    def struct(self, fields: Sequence[Part], body: str) -> None:
        """Generate code for a structure in the variable named ``body``."""
        source = self._source
        # The code below looks up every field, so the right number of keys means the right keys.
        tags = source.name("t")
        if self._flexible:
            source.line(f"{tags} = None")
        with source.block(f"if len({body}) != {len(fields)}:"):
            if self._flexible:
                source.line(f"{tags} = {body}['_tags']")
                source.line(
                    f"if len({body}) != {len(fields) + 1} or type({tags}) is not dict: raise KeyError"
                )
            else:
                source.line("raise KeyError")
        known = []
        for each in fields:
            name = source.name("v")
            source.line(f"{name} = {body}[{each.name!r}]")
            if each.tag is None:
                self._field(each, name)
            else:
                known.append((each, name))
        if self._flexible:
            self._flush()
            self._tagged(known, tags)

    def _tagged(self, known: list[tuple[Part, str]], tags: str) -> None:
        source = self._source
        if not known:
            source.line(f"{self._add}(tags({tags}) if {tags} else b'\\0')")
            return
        source.line(f"{tags} = {tags} or {{}}")
        found = []
        for field, name in known:
            value, outer = source.name("t"), self._add
            found.append(value)
            source.line(f"{value} = None")
            with source.block(f"if {name} != {literal(field)} or {field.tag} in {tags}:"):
                source.line(f"if {field.tag} in {tags}: raise KeyError")
                out = source.name("o")
                self._add = source.name("a")
                source.line(f"{out} = []; {self._add} = {out}.append")
                self._field(field, name)
                self._flush()
                source.line(f"{value} = {field.tag}, b''.join({out})")
            self._add = outer
        source.line(f"{self._add}(tags({tags}, {', '.join(found)}))")

    def _field(self, field: Part, name: str) -> None:
        if field.array:
            self._array(field, name)
        elif field.kind in FORMATS:
            self._fixed(field, name)
        elif field.kind == "struct":
            self._nested(field, name)
        else:
            self._blob(field, name)

    def _fixed(self, field: Part, name: str) -> None:
        if field.kind == "uuid":
            self._run.append((f"{name}.bytes", "16s"))
            return
        # struct accepts True as 1, and anything as a bool.
        type_ = {"bool": "bool", "float64": "float"}.get(field.kind, "int")
        self._source.line(f"if type({name}) is not {type_}: raise TypeError")
        self._run.append((name, FORMATS[field.kind]))

    def _flush(self) -> None:
        if self._run:
            pack = self._source.bound("".join(each for _, each in self._run), "pack")
            self._source.line(f"{self._add}({pack}({', '.join(value for value, _ in self._run)}))")
            self._run = []

    def _length(self, compact: bool, format_: str, value: str) -> None:
        """Generate code that writes a length or count."""
        if not compact:
            self._run.append((value, format_))
            self._flush()
            return
        self._flush()
        if value == "-1":
            self._source.line(f"{self._add}(b'\\0')")
            return
        self._source.line(f"{self._add}(SHORT[{value} + 1] if {value} < 127 else uvarint({value} + 1))")

    def _blob(self, field: Part, name: str) -> None:
        source = self._source
        if not field.nullable:
            self._bytes(field, name)
            return
        self._flush()
        with source.block(f"if {name} is None:"):
            self._length(field.compact, "h" if field.kind == "string" else "i", "-1")
        with source.block("else:"):
            self._bytes(field, name)

    def _bytes(self, field: Part, name: str) -> None:
        source = self._source
        length = source.name("n")
        if field.kind == "string":
            source.line(f"{name} = {name}.encode()")
            source.line(f"{length} = len({name})")
            source.line(f"if {length} > {STRING_MAX}: raise ValueError")
        else:
            source.line(f"if type({name}) is not bytes: raise TypeError")
            source.line(f"{length} = len({name})")
        self._length(field.compact, "h" if field.kind == "string" else "i", length)
        source.line(f"{self._add}({name})")

    def _nested(self, field: Part, name: str) -> None:
        source = self._source
        if not field.nullable:
            self.struct(field.parts, name)
            return
        self._flush()
        with source.block(f"if {name} is None:"):
            source.line(f"{self._add}(b'\\xff')")
        with source.block("else:"):
            source.line(f"{self._add}(b'\\x01')")
            self.struct(field.parts, name)
            self._flush()

    def _array(self, field: Part, name: str) -> None:
        source = self._source
        if not field.nullable:
            self._elements(field, name)
            return
        self._flush()
        with source.block(f"if {name} is None:"):
            self._length(field.compact, "i", "-1")
        with source.block("else:"):
            self._elements(field, name)

    def _elements(self, field: Part, name: str) -> None:
        source = self._source
        source.line(f"if type({name}) is not list: raise TypeError")
        count = source.name("n")
        source.line(f"{count} = len({name})")
        self._length(field.compact, "i", count)
        if field.kind in FORMATS and field.kind != "uuid":
            type_ = {"bool": "BOOL", "float64": "FLOAT"}.get(field.kind, "INT")
            source.line(f"if not {type_}.issuperset(map(type, {name})): raise TypeError")
            format_ = FORMATS[field.kind]
            small = source.bound_array(format_, "pack")
            with source.block(f"if {count} <= {SMALL}:"):
                source.line(f"{self._add}({small}[{count}](*{name}))")
            with source.block("else:"):
                source.line(f"{self._add}(pack(f'>{{{count}}}{format_}', *{name}))")
            return
        item = source.name("x")
        with source.block(f"for {item} in {name}:"):
            if field.kind == "struct":
                self.struct(field.parts, item)
            elif field.kind == "uuid":
                self._fixed(field, item)
            else:
                self._bytes(field, item)
            self._flush()
