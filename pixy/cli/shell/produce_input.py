"""Turns messages into records: lines with or without keys, JSON lines, whole files; and gathers batches of what is there."""

from __future__ import annotations

import base64
import queue
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from pixy.cli.shell import numbers_as_text
from pixy.cli.shell.errors import EXIT_USAGE, ShellError, nearest
from pixy.cli.shell.produce_lines import Lines
from pixy.cli.shell.values import MAX_OFFSET, MAX_PARTITION
from pixy.proto import kafkapixy_pb2 as pb

_FRAME: Final = 8
"""Bytes that a record takes in a request beside its own, at most."""
_KNOWN: Final = ("key", "value", "headers", "partition", "timestamp", "offset", "topic")
"""Fields of a JSON line; the last two are what ``consume --json`` prints, and are left out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The rules by which a line becomes a record.

    Attributes:
        key: of all records; None for none.
        key_delimiter: separates key and value; empty if lines have no keys.
        json_lines: a line is a JSON document.
        headers: of all records.
        partition: where to write all records; None leaves the choice to the key.
        empty_is_null: an empty value is a tombstone.
    """

    key: bytes | None = None
    key_delimiter: bytes = b""
    json_lines: bool = False
    headers: tuple[tuple[str, bytes], ...] = field(default=())
    partition: int | None = None
    empty_is_null: bool = False


def header(text: str) -> tuple[str, bytes]:
    """Parse ``NAME=VALUE``. Raises ShellError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ShellError(f"-H {text}: NAME=VALUE is expected, such as -H source=shell", EXIT_USAGE)
    return name, value.encode()


def to_record(line: bytes, number: int, shape: Shape) -> pb.Record:
    """Make a record of a line.

    Args:
        line: without its end.
        number: the line's, from 1, for errors.
        shape: see there.

    Raises:
        ShellError: the line does not have the shape.
    """
    try:
        return _to_record(line, number, shape)
    except UnicodeEncodeError:
        raise ShellError(
            f"line {number}: half of a surrogate pair (\\ud800 to \\udfff) is no text: it cannot be written as UTF-8"
        ) from None
    except RecursionError:
        raise ShellError(f"line {number}: not JSON that can be read: it is nested too deeply") from None
    except (ValueError, TypeError) as error:  # protobuf's
        raise ShellError(f"line {number}: {error}") from None


def _to_record(line: bytes, number: int, shape: Shape) -> pb.Record:
    if shape.json_lines:
        record = _of_json(line, number, shape)
    else:
        key, value = shape.key, line
        if shape.key_delimiter:
            before, found, after = line.partition(shape.key_delimiter)
            if found:
                key, value = before, after
        record = _record(key, None if shape.empty_is_null and not value else value)
    for name, content in shape.headers:
        record.headers.add(key=name, value=content)
    if shape.partition is not None:
        record.partition = shape.partition
    return record


def _record(key: bytes | None, value: bytes | None) -> pb.Record:
    return pb.Record(key=key, key_undefined=key is None, value=value, tombstone=value is None)


def _of_json(line: bytes, number: int, shape: Shape) -> pb.Record:
    try:
        found = numbers_as_text.decode(line)
    except ValueError as error:
        raise ShellError(f"line {number}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ShellError(f'line {number}: an object such as {{"key": "k", "value": "v"}} is expected')
    for name in found:
        if name not in _KNOWN:
            raise ShellError(
                f"line {number}: unknown field {name!r}; {nearest(name, _KNOWN) or f'known are {_KNOWN}'}"
            )
    key = _bytes(found["key"], number, "key") if "key" in found else shape.key
    value = _bytes(found.get("value"), number, "value")
    record = _record(key, None if shape.empty_is_null and not value else value)
    for name, content in _headers(found.get("headers"), number):
        record.headers.add(key=name, value=content)
    for name, most in (("partition", MAX_PARTITION), ("timestamp", MAX_OFFSET)):
        at = found.get(name)
        if at is None:
            continue
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at <= most:
            raise ShellError(f"line {number}: {name} {at!r} is not a number from 0 to {most}")
        setattr(record, name, at)
    return record


def _headers(found: Any, number: int) -> Iterator[tuple[str, bytes]]:
    if isinstance(found, dict):
        found = [{"key": name, "value": value} for name, value in found.items()]
    if not isinstance(found, list | None):
        raise ShellError(f"line {number}: headers are neither an object nor a list")
    for each in found or ():
        if not isinstance(each, dict) or not isinstance(each.get("key"), str):
            raise ShellError(f'line {number}: a header is {{"key": "name", "value": "text"}}')
        each["key"].encode()  # what cannot be written fails here, not in protobuf
        yield each["key"], _bytes(each.get("value"), number, "header") or b""


def _bytes(value: Any, number: int, what: str) -> bytes | None:
    """Convert a string, ``{"text"}``, ``{"base64"}``, null, or any other JSON, which stays JSON."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"text": str(text)} if len(value) == 1:
            return text.encode()
        case {"base64": str(text)} if len(value) == 1:
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise ShellError(f"line {number}: {what}: not base64: {error}") from None
    return numbers_as_text.encode(value)


class ReadAhead:
    """Gathers batches that hold what has been read, and wait for nothing more.

    Args:
        stream, skip, lines: as of :class:`pixy.cli.shell.produce_lines.Lines`.
    """

    def __init__(
        self, stream: BinaryIO | Iterable[bytes], skip: int = 0, lines: str = "standard input"
    ) -> None:
        self._source = Lines(stream, skip, lines)
        self._ended = False
        self._held: tuple[pb.Record, int] | None = None
        """A record that had no room in the last batch, and the bytes of its line."""
        self._number = skip

    @property
    def skipped(self) -> int:
        """The number of messages that were left out."""
        return self._source.skipped

    def batch(
        self, most: int, max_bytes: int, make: Callable[[bytes, int], pb.Record]
    ) -> tuple[list[pb.Record], int]:
        """Wait for a line, and take with it those that are there. A signal that came before there is one ends the wait.

        Args:
            most: lines.
            max_bytes: of all records in a request; a record that is larger is a batch by itself.
            make: makes a record of a line and its number, from 1; the lines that were left out count.

        Returns:
            The records, none at the end of the input; and how many bytes of the input they are.
        """
        records: list[pb.Record] = []
        read = size = 0
        while len(records) < most:
            try:
                found, self._held = self._held or self._next(make, block=not records), None
            except queue.Empty:
                break
            if found is None:
                break
            size += found[0].ByteSize() + _FRAME
            if records and size > max_bytes:
                self._held = found
                break
            records.append(found[0])
            read += found[1]
        return records, read

    def _next(self, make: Callable[[bytes, int], pb.Record], *, block: bool) -> tuple[pb.Record, int] | None:
        """Return the next record and the bytes of its line; None at the end. Raises queue.Empty."""
        found = None if self._ended else self._source.next(block=block)
        if found is None:
            self._ended = True
            return None
        self._number += 1
        return make(found[0], self._number), found[1]


__all__ = ["ReadAhead", "Shape", "header", "to_record"]
