"""Decoders of messages, generated and compiled at first use: one function for each message and version."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from pixy.wire import schema
from pixy.wire.codegen import (
    FORMATS,
    SMALL,
    STRING_MAX,
    Part,
    Source,
    append_path,
    check_version,
    literal,
    locate,
    parts,
)
from pixy.wire.exceptions import DecodeError, TruncatedError
from pixy.wire.varint import decode_unsigned as uvarint

Decoder = Callable[[bytes, int, int], tuple[dict[str, Any], int]]
"""Takes a buffer, the body's first byte and the buffer's length; returns the body and the offset after it."""

FAILURES: Final = (DecodeError, IndexError, struct.error, UnicodeDecodeError)
"""Exceptions that a decoder raises for malformed bytes."""


@cache
def decoder(name: str, version: int, tolerant: bool = False) -> Decoder:
    """Return the decoder of a message in a version.

    The decoder raises one of FAILURES; :func:`explain` turns it into an error for the caller.

    Args:
        name: message name, as ``JoinGroupRequest``.
        version: version of the message.
        tolerant: a body may end before any of its outermost fields, which then get their defaults.

    Raises:
        UnsupportedVersionError: the message or version is unknown.
    """
    message = schema.message(name)
    check_version(message, version)
    flexible = version in message.flexible
    source = Source(f"decode {name} v{version}")
    source.globals |= {
        "UUID": uuid.UUID,
        "NULL": schema.NULL_UUID,
        "DecodeError": DecodeError,
        "unpack_from": struct.unpack_from,
        "uvarint": uvarint,
        "tags": _tags,
        "spans": _spans,
        "string": _string,
        "blob": _blob,
        "bad_length": _bad_length,
    }
    writer = _Writer(source, flexible)
    with source.block("def decode(buf, pos, size):"):
        expression = writer.struct(parts(message.fields, version, flexible), "", tolerant)
        source.line(f"return {expression}, pos")
    return source.compile("decode")


def explain(function: Decoder, title: str, error: Exception, size: int) -> DecodeError:
    """Turn an exception of a decoder into an error that names the field, the defect and the byte.

    Args:
        function: the decoder.
        title: message and version, for the text.
        error: the exception, with its traceback.
        size: length of the buffer in bytes.
    """
    path, variables = locate(function, error.__traceback__)
    where = f"{title}: {path}" if path else title
    pos: int = variables["pos"]
    if isinstance(error, DecodeError):
        return type(error)(f"{where}: {error.reason}", error.offset)
    if isinstance(error, UnicodeDecodeError):
        # The text begins at or soon after ``pos``.
        return DecodeError(f"{where}: not UTF-8", variables["buf"].index(error.object, pos) + error.start)
    return TruncatedError(f"{where}: the message ends, {max(size - pos, 0)} bytes are left", pos)


def _spans(buf: bytes, pos: int, size: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Return (start, end) of each value in a section of tagged fields by tag, and the offset after the section."""
    count, pos = uvarint(buf, pos)
    if count * 2 > size - pos:
        raise TruncatedError(f"{count} tagged fields announced, {size - pos} bytes are left", pos)
    found: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        tag, pos = uvarint(buf, pos)
        length, pos = uvarint(buf, pos)
        if pos + length > size:
            raise TruncatedError(f"{length} bytes announced for tag {tag}, {size - pos} are left", pos)
        if tag in found:
            raise DecodeError(f"tag {tag} twice", pos)
        found[tag] = pos, pos + length
        pos += length
    return found, pos


def _tags(buf: bytes, pos: int, size: int) -> tuple[dict[int, bytes], int]:
    """Read a section of tagged fields, none of them known."""
    spans, pos = _spans(buf, pos, size)
    return {tag: buf[start:end] for tag, (start, end) in spans.items()}, pos


def _blob(buf: bytes, pos: int, size: int) -> tuple[bytes, int]:
    """Read compact bytes of any length."""
    length, pos = uvarint(buf, pos)
    end = pos + length - 1
    if not length or end > size:
        raise _bad_length(length - 1, pos, size)
    return buf[pos:end], end


def _string(buf: bytes, pos: int, size: int) -> tuple[str, int]:
    """Read a compact string of any length."""
    value, end = _blob(buf, pos, size)
    if len(value) > STRING_MAX:
        raise DecodeError(f"string of {len(value)} bytes, {STRING_MAX} are allowed", end - len(value))
    return value.decode(), end


def _bad_length(length: int, pos: int, size: int, what: str = "bytes") -> DecodeError:
    if length == -1:
        return DecodeError("null, which is not allowed here", pos)
    if length < 0:
        return DecodeError(f"length of {length}", pos)
    return TruncatedError(f"{length} {what} announced, {size - pos} bytes are left", pos)


class _Writer:
    """Generates the code. Numbered variables keep nested structures from overwriting outer ones."""

    def __init__(self, source: Source, flexible: bool) -> None:
        self._source = source
        self._flexible = flexible
        self._run: list[tuple[str, str, str]] = []

    def struct(self, fields: Sequence[Part], path: str, tolerant: bool = False) -> str:
        """Generate code for a structure and return the expression of its value."""
        source = self._source
        names = {each.name: source.name("v") for each in fields}
        if tolerant:
            for each in fields:
                source.line(f"{names[each.name]} = {literal(each)}")
        for each in fields:
            if each.tag is None:
                if tolerant:
                    with source.block("if pos != size:"):
                        self._field(each, names[each.name], append_path(path, each.name))
                        self._flush()
                else:
                    self._field(each, names[each.name], append_path(path, each.name))
        self._flush()
        value = "{" + ", ".join(f"{name!r}: {var}" for name, var in names.items()) + "}"
        if not self._flexible:
            return value
        return self._tagged([each for each in fields if each.tag is not None], names, path, value)

    def _tagged(self, known: list[Part], names: dict[str, str], path: str, value: str) -> str:
        source = self._source
        body = source.name("d")
        with source.at(append_path(path, "tags")):
            if not known:
                source.line(f"{body} = {value}")
                with source.block("if buf[pos]:"):
                    source.line(f"{body}['_tags'], pos = tags(buf, pos, size)")
                with source.block("else:"):
                    source.line("pos += 1")
                return body
            for each in known:
                source.line(f"{names[each.name]} = {literal(each)}")
            spans = source.name("t")
            source.line(f"{spans} = None")
            with source.block("if buf[pos]:"):
                source.line(f"{spans}, pos = spans(buf, pos, size)")
                for each in known:
                    self._known_tag(each, names[each.name], spans, append_path(path, each.name))
            with source.block("else:"):
                source.line("pos += 1")
            source.line(f"{body} = {value}")
            with source.block(f"if {spans}:"):
                source.line(f"{body}['_tags'] = {{t: buf[s:e] for t, (s, e) in {spans}.items()}}")
        return body

    def _known_tag(self, field: Part, name: str, spans: str, path: str) -> None:
        """Generate code for a tagged field, which must fill its length exactly."""
        source = self._source
        outer = source.name("o")
        with source.block(f"if {field.tag} in {spans}:"), source.at(path):
            source.line(f"{outer} = pos, size")
            source.line(f"pos, size = {spans}.pop({field.tag})")
            self._field(field, name, path)
            self._flush()
            source.line(
                "if pos != size: raise DecodeError(f'{size - pos} bytes too many in a tagged field', pos)"
            )
            source.line(f"pos, size = {outer}")

    def _field(self, field: Part, name: str, path: str) -> None:
        source = self._source
        with source.at(path):
            if field.array:
                self._array(field, name, path)
            elif field.kind in FORMATS:
                self._fixed(field, name)
            elif field.kind == "struct":
                self._nested(field, name, path)
            else:
                self._blob(field, name, field.nullable)

    def _fixed(self, field: Part, name: str) -> None:
        self._run.append((name, FORMATS[field.kind], self._source.path))
        if field.kind == "uuid":
            self._flush()
            self._source.line(f"{name} = UUID(bytes={name})")

    def _flush(self) -> None:
        """Generate one call that reads the adjacent fields of fixed size collected so far."""
        if not self._run:
            return
        source = self._source
        format_ = "".join(each for _, each, _ in self._run)
        names = ", ".join(name for name, _, _ in self._run)
        source.line_at(
            f"{names}, = {source.bound(format_, 'unpack_from')}(buf, pos)",
            [(path, struct.calcsize(">" + each)) for _, each, path in self._run],
        )
        source.line(f"pos += {struct.calcsize('>' + format_)}")
        self._run = []

    def _length(self, compact: bool, format_: str) -> str:
        """Generate code that reads a length or count, -1 for null, and return its variable."""
        source = self._source
        name = source.name("n")
        if not compact:
            self._run.append((name, format_, source.path))
            self._flush()
            return name
        self._flush()
        # A length below 127 takes one byte and needs no call.
        source.line(f"{name} = buf[pos] - 1")
        with source.block(f"if {name} < 127:"):
            source.line("pos += 1")
        with source.block("else:"):
            source.line(f"{name}, pos = uvarint(buf, pos)")
            source.line(f"{name} -= 1")
        return name

    def _blob(self, field: Part, name: str, nullable: bool) -> None:
        source = self._source
        string = field.kind == "string"
        if field.compact:
            self._flush()
            self._compact(name, string, nullable)
            return
        length = self._length(False, "h" if string else "i")
        if nullable:
            with source.block(f"if {length} == -1:"):
                source.line(f"{name} = None")
            with source.block("else:"):
                self._bytes(name, length, string)
        else:
            self._bytes(name, length, string)

    def _compact(self, name: str, string: bool, nullable: bool) -> None:
        """Generate code that reads up to 126 bytes inline and more in a helper; the length on the wire is one more."""
        source = self._source
        length, end = source.name("n"), source.name("e")
        source.line(f"{length} = buf[pos]")
        source.line(f"{end} = pos + {length}")
        with source.block(f"if 0 < {length} < 128 and {end} <= size:"):
            source.line(f"{name} = buf[pos + 1:{end}]{'.decode()' if string else ''}")
        if nullable:
            with source.block(f"elif not {length}:"):
                source.line(f"{name} = None")
                source.line(f"{end} = pos + 1")
        with source.block("else:"):
            source.line(f"{name}, {end} = {'string' if string else 'blob'}(buf, pos, size)")
        source.line(f"pos = {end}")

    def _bytes(self, name: str, length: str, string: bool) -> None:
        source = self._source
        end = source.name("e")
        source.line(f"{end} = pos + {length}")
        source.line(f"if {length} < 0 or {end} > size: raise bad_length({length}, pos, size)")
        source.line(f"{name} = buf[pos:{end}]{'.decode()' if string else ''}")
        source.line(f"pos = {end}")

    def _nested(self, field: Part, name: str, path: str) -> None:
        source = self._source
        self._flush()
        if not field.nullable:
            source.line(f"{name} = {self.struct(field.parts, path)}")
            return
        flag = self._length(False, "b")
        # In front of a structure null is -1, in a tagged field 0: brokers write that in their own records.
        with source.block(f"if {flag} < {0 if field.tag is None else 1}:"):
            source.line(f"{name} = None")
        with source.block("else:"):
            value = self.struct(field.parts, path)
            source.line(f"{name} = {value}")

    def _array(self, field: Part, name: str, path: str) -> None:
        source = self._source
        count = self._length(field.compact, "i")
        if field.nullable:
            with source.block(f"if {count} == -1:"):
                source.line(f"{name} = None")
            with source.block("else:"):
                self._elements(field, name, count, path)
        else:
            self._elements(field, name, count, path)

    def _elements(self, field: Part, name: str, count: str, path: str) -> None:
        source = self._source
        # An element takes at least ``unit`` bytes, so a count beyond the buffer fails before any allocation.
        source.line(
            f"if {count} < 0 or {count} * {field.unit} > size - pos: raise bad_length({count}, pos, size, 'elements')"
        )
        if field.kind in FORMATS and field.kind != "uuid":
            format_ = FORMATS[field.kind]
            small = source.bound_array(format_, "unpack_from")
            with source.block(f"if {count} <= {SMALL}:"):
                source.line(f"{name} = list({small}[{count}](buf, pos))")
            with source.block("else:"):
                source.line(f"{name} = list(unpack_from(f'>{{{count}}}{format_}', buf, pos))")
            source.line(f"pos += {count} * {field.unit}")
            return
        index, item = source.name("i"), source.name("x")
        source.line(f"{name} = []")
        with source.block(f"for {index} in range({count}):"):
            inner = f"{path}[{{{index}}}]"
            with source.at(inner):
                if field.kind == "struct":
                    item = self.struct(field.parts, inner)
                elif field.kind == "uuid":
                    self._fixed(field, item)
                else:
                    self._blob(field, item, False)
                source.line(f"{name}.append({item})")
