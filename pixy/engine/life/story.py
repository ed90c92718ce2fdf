"""What is known of one message, as plain data, and as the document that is shown. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pixy.kafka.log_reader import StoredRecord

LONGEST: Final = 1024
"""Bytes of a key, or of a header's name or value, that are shown."""
MOST_HEADERS: Final = 100


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the message.

    Attributes:
        time: seconds since 1970.
        event: ``written``, or a kind of the journal in lower case, such as ``offered``.
        source: ``log``, ``journal`` or ``live``.
        daemon: the client id of the daemon that says so; empty if none does.
        group: empty if it concerns no group.
        detail: further facts, by name.
    """

    time: float
    event: str
    source: str
    daemon: str = ""
    group: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the message stands in a group now.

    Attributes:
        group: its name.
        state: ``done``, ``held`` (a client has it), ``waits again`` (to be offered again), ``fetched`` (waits for a first
            offer), ``not fetched``, ``not done``, ``not committed`` or ``unknown``.
        owner: ``here`` if this daemon owns the partition for the group; else empty: another member does, or nobody.
        committed: the committed offset; None if there is none, or nobody could tell.
        detail: further facts, by name.
    """

    group: str
    state: str
    owner: str
    committed: int | None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that cannot be answered, and why."""

    what: str
    why: str


@dataclass(slots=True)
class Story:
    """What is known of one message.

    Attributes:
        at: when it was asked, in seconds since 1970.
        record: None if the log does not hold it.
        with_content: whether key and headers may be shown.
        events: in any order.
    """

    at: float
    cluster: str
    topic: str
    partition: int
    offset: int
    record: StoredRecord | None = None
    with_content: bool = True
    events: list[Event] = field(default_factory=list)
    groups: list[Standing] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as JSON; the events by time."""
        return {
            "at": self.at,
            "cluster": self.cluster,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "record": None if self.record is None else record_document(self.record, self.with_content),
            "events": [asdict(each) for each in sorted(self.events, key=lambda each: each.time)],
            "groups": [asdict(each) for each in sorted(self.groups, key=lambda each: each.group)],
            "unknown": [asdict(each) for each in self.unknown],
        }


def record_document(stored: StoredRecord, with_content: bool) -> dict[str, Any]:
    """Describe a record; never its value.

    Args:
        stored: the record.
        with_content: whether key and headers may be shown, the trace context among them.
    """
    record = stored.record
    document: dict[str, Any] = {
        "timestamp": None if record.timestamp < 0 else record.timestamp / 1000,
        "key_size": None if record.key is None else len(record.key),
        "value_size": None if record.value is None else len(record.value),
        "headers_count": len(record.headers),
        "batch": None if stored.batch is None else asdict(stored.batch),
    }
    if with_content:
        document["traceparent"] = header(record.headers, "traceparent")
        document["key"] = None if record.key is None else shown(record.key)
        document["headers"] = [
            {"name": clean(name[:LONGEST]), **(shown(value) or {"text": None})}
            for name, value in record.headers[:MOST_HEADERS]
        ]
    return document


def header(headers: Iterable[tuple[str, bytes | None]], wanted: str) -> str | None:
    """Return the first header of a name as text, at most :data:`LONGEST` characters of it; None if there is none."""
    for name, value in headers:
        if name == wanted and value is not None:
            return value[:LONGEST].decode("utf-8", "replace")
    return None


def shown(value: bytes | None) -> dict[str, str] | None:
    """Return bytes as text if they are UTF-8, else as base64, cut to :data:`LONGEST` bytes."""
    if value is None:
        return None
    part = value[:LONGEST]
    cut = {"cut": str(len(value))} if len(part) < len(value) else {}
    try:
        return {"text": part.decode(), **cut}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(part).decode(), **cut}


def clean(name: str) -> str:
    """Return a header's name without halves of characters, which no JSON can have."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


__all__ = ["Event", "Standing", "Story", "Unknown", "clean", "header", "record_document", "shown"]
