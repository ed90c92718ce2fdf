"""The journal's format: the events of a daemon, many to one Kafka record.

A record is one batch of one daemon: a msgpack map that holds the events column by column. Columns
make it small (a column of one value takes no bytes, the others the fewest bytes per value that suffice)
and quick to read: each is one buffer of little-endian integers, which a vectorized reader uses
as it is, rather than ten million small arrays. ``docs/pipeline.md`` documents it for other readers.

The engine writes it and the pipeline reads it. This module does no I/O.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import msgpack

from pixy.errors import PixyError

VERSION = 1
"""Incremented when a reader of the previous version would misread a batch, but not for new fields."""


class Kind(IntEnum):
    """The kind of an event."""

    PRODUCED = 1
    """Kafka has a message. ``took``: from the request to Kafka's confirmation."""
    PRODUCE_FAILED = 2
    """Kafka does not have a message, or nobody knows: ``code`` is Kafka's error, the offset is -1."""
    OFFERED = 3
    """A message was handed to a request. ``took``: since the message's own timestamp; ``attempt`` 0 is the
    first offer, more are retries."""
    RETURNED = 4
    """The request's client was gone: the previous offer of the message does not count."""
    ACKED = 5
    """A message was acknowledged. ``took``: since its last offer."""
    ACK_REFUSED = 6
    """An acknowledgement was refused; ``code`` is a :class:`Refusal`."""
    DROPPED = 7
    """A message was given up after ``attempt`` retries, and logged."""
    ASSIGNED = 8
    """A partition was assigned to this daemon. ``offset``: the first to offer; ``attempt``: how often its
    owner was restarted within this assignment."""
    REVOKED = 9
    """A partition was revoked from this daemon. ``offset``: the first for the next owner. ``code`` 1: it was
    not drained, because it was lost or the time was over."""


class Refusal(IntEnum):
    """The reason why an acknowledgement was refused."""

    DUPLICATE = 1
    NEVER_OFFERED = 2
    NOT_OWNED = 3


WAITED = 1
"""Flag of PRODUCED and PRODUCE_FAILED: a caller waited for the answer (a synchronous produce)."""
AUTO = 2
"""Flag of ACKED: the daemon acknowledged the message when it had sent it, not the client."""

COLUMNS = ("kind", "time", "stream", "offset", "attempt", "timestamp", "took", "code", "flags")
"""``time``: microseconds since 1970. ``stream``: index into the batch's streams. ``timestamp``: the
message's, in milliseconds since 1970, -1 if it has none. ``took``: microseconds, -1 if unknown."""


CALLER = "caller"
"""A further column, which batches before it lack, and which a daemon may leave out: index into the batch's callers. Of PRODUCED
and PRODUCE_FAILED who wrote the message, of other kinds who got it last; 0: not known."""


class JournalFormatError(PixyError):
    """A record is not a journal batch, or has a version that this program does not know."""


class Stream:
    """The topic, partition and group that many events have in common. Compared by identity.

    Attributes:
        group: empty for produced messages.
        generation: number of the assignment on this daemon; each assignment has another one.
    """

    __slots__ = ("generation", "group", "partition", "topic")

    def __init__(self, topic: str, partition: int, group: str = "", generation: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group
        self.generation = generation


Event = tuple[int, int, Stream, int, int, int, int, int, int]
"""An event in the order of :data:`COLUMNS`, with the stream itself; the caller's name may follow."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Events that happened but were not written: the gap is known, its content is not.

    Attributes:
        events: how many.
        first: time of the first of them, in microseconds since 1970.
        last: time of the last.
    """

    events: int = 0
    first: int = 0
    last: int = 0

    def __add__(self, other: Lost) -> Lost:
        if not self.events or not other.events:
            return self if self.events else other
        return Lost(self.events + other.events, min(self.first, other.first), max(self.last, other.last))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of integers: ``base`` plus each unsigned number in ``data``.

    Attributes:
        width: bytes of each number in ``data``: 1, 2, 4 or 8; 0 if every value is ``base``.
    """

    base: int
    width: int
    data: bytes

    def values(self, count: int) -> list[int]:
        """Unpack ``count`` values."""
        if not self.width:
            return [self.base] * count
        numbers = array(_CODES[self.width])
        numbers.frombytes(self.data)
        if sys.byteorder == "big":
            numbers.byteswap()
        return [self.base + number for number in numbers]


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One record of the journal.

    Attributes:
        client: ``client_id`` of the daemon.
        epoch: when this journal began, in microseconds since 1970; a restart begins another epoch.
        sequence: numbers the batches of an epoch from 0; a missing number is a lost batch.
        count: how many events it has.
        streams: (topic, partition, group, generation) of each stream.
        columns: by the names in :data:`COLUMNS`.
        lost: events that were lost before this batch.
        final: whether the daemon stopped in order after this batch.
        time: when it was encoded, in microseconds since 1970; all earlier events are in the batches so far.
        callers: names in the column :data:`CALLER`, the first one empty: principals, or addresses without ``auth``.
        heartbeat: microseconds after which another batch follows even if nothing happens. A daemon that is
            silent for longer has died or cannot reach Kafka.
    """

    client: str
    epoch: int
    sequence: int
    count: int
    streams: tuple[tuple[str, int, str, int], ...]
    columns: dict[str, Column] = field(default_factory=dict)
    lost: Lost = Lost()
    final: bool = False
    time: int = 0
    heartbeat: int = 0
    callers: tuple[str, ...] = ()

    def events(self) -> list[dict[str, Any]]:
        """Return the events one by one, as dictionaries: for people and tests, too slow for millions."""
        columns = [self.columns[name].values(self.count) for name in COLUMNS]
        callers = self.callers_of()
        made = []
        for caller, row in zip(callers, zip(*columns, strict=True), strict=True):
            event: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
            topic, partition, group, generation = self.streams[event.pop("stream")]
            event |= {
                "kind": Kind(event["kind"]),
                "topic": topic,
                "partition": partition,
                "group": group,
                "generation": generation,
                "client": self.client,
                "caller": caller,
            }
            made.append(event)
        return made

    def callers_of(self) -> list[str]:
        """Return the caller of each event; empty where it is not known."""
        column = self.columns.get(CALLER)
        if column is None:
            return [""] * self.count
        names = self.callers
        return [names[at] if 0 <= at < len(names) else "" for at in column.values(self.count)]


HEARTBEAT = 10.0
"""Seconds of silence after which a daemon writes an empty batch."""

_BYTE = 256
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def encode(
    client: str,
    epoch: int,
    sequence: int,
    events: Sequence[Event],
    *,
    time: int = 0,
    heartbeat: int = 0,
    lost: Lost = Lost(),
    final: bool = False,
) -> bytes:
    """Encode events as one record's value. Arguments as in :func:`encode_columns`."""
    columns: list[Any] = list(zip(*events, strict=True)) or [()] * len(COLUMNS)
    return encode_columns(
        client, epoch, sequence, columns, time=time, heartbeat=heartbeat, lost=lost, final=final
    )


def encode_columns(
    client: str,
    epoch: int,
    sequence: int,
    columns: Sequence[Sequence[Any]],
    *,
    time: int = 0,
    heartbeat: int = 0,
    lost: Lost = Lost(),
    final: bool = False,
) -> bytes:
    """Encode columns as one record's value.

    A column is stored as its smallest value and the distances to it (frame of reference) rather than as
    deltas from event to event: that is nearly as small after the producer's compression, and a reader needs
    no running sum.

    Args:
        client: ``client_id`` of the daemon.
        epoch: see :class:`JournalBatch`, as for the arguments below.
        sequence: of this batch within the epoch.
        columns: in the order of :data:`COLUMNS`, all of one length; ``stream`` has Stream objects. Names of callers may follow.
        time: microseconds since 1970.
        heartbeat: microseconds.
        lost: events that were lost before this batch.
        final: whether this is the last batch of an orderly stop.
    """
    index: dict[Stream, int] = {stream: number for number, stream in enumerate(dict.fromkeys(columns[2]))}
    numbers = list(columns[: len(COLUMNS)])
    packed_columns: dict[str, Any] = {}
    callers: dict[str, int] = {}
    if len(columns) > len(COLUMNS):
        callers = {name: number for number, name in enumerate(dict.fromkeys(("", *columns[-1])))}
        packed_columns[CALLER] = _column(list(map(callers.__getitem__, columns[-1])))
    numbers[2] = list(map(index.__getitem__, columns[2]))
    packed: bytes = msgpack.packb(
        {
            "version": VERSION,
            "client": client,
            "epoch": epoch,
            "sequence": sequence,
            "count": len(columns[0]),
            "streams": [
                (stream.topic, stream.partition, stream.group, stream.generation) for stream in index
            ],
            "columns": {
                **{name: _column(values) for name, values in zip(COLUMNS, numbers, strict=True)},
                **packed_columns,
            },
            "callers": list(callers),
            "lost": (lost.events, lost.first, lost.last),
            "final": final,
            "time": time,
            "heartbeat": heartbeat,
        },
        unicode_errors="replace",
    )
    return packed


def _column(values: Sequence[int]) -> tuple[int, int, bytes]:
    if not values:
        return 0, 0, b""
    first = values[0]
    if first is values[-1] and values.count(first) == len(values):
        return first, 0, b""  # most columns have one value; comparing identity first makes the check cheap
    if 0 <= first < _BYTE:  # kinds, streams, flags: bytes() checks that all fit in a ninth of the time
        try:
            return 0, 1, bytes(values)
        except ValueError:
            pass
    base, most = min(values), max(values)
    spread = most - base
    if not spread:
        return base, 0, b""
    width = 1 if spread < 1 << 8 else 2 if spread < 1 << 16 else 4 if spread < 1 << 32 else 8
    numbers = array(_CODES[width], [value - base for value in values] if base else values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base, width, numbers.tobytes()


def decode(value: bytes) -> JournalBatch:
    """Decode a record's value; the columns stay packed.

    Raises:
        JournalFormatError: the value has another version or is not a batch; the text says what is wrong.
    """
    try:
        found = msgpack.unpackb(value)
    except (ValueError, msgpack.UnpackException) as error:
        raise JournalFormatError(f"not a journal batch: {error}") from error
    if not isinstance(found, dict) or "version" not in found:
        raise JournalFormatError("not a journal batch: no msgpack map with a version")
    if found["version"] != VERSION:
        raise JournalFormatError(
            f"journal version {found['version']!r} is unknown: this program reads {VERSION}"
        )
    try:
        callers = tuple(map(str, found.get("callers", ())))
        more = (CALLER,) if callers and CALLER in found["columns"] else ()
        batch = JournalBatch(
            found["client"],
            found["epoch"],
            found["sequence"],
            found["count"],
            tuple((topic, part, group, gen) for topic, part, group, gen in found["streams"]),
            {name: Column(*found["columns"][name]) for name in (*COLUMNS, *more)},
            Lost(*found["lost"]),
            found["final"],
            found["time"],
            found["heartbeat"],
            callers if more else (),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JournalFormatError(f"journal batch is damaged: {error!r}") from error
    _check(batch)
    return batch


def _check(batch: JournalBatch) -> None:
    for name, column in batch.columns.items():
        if column.width not in (0, *_CODES) or len(column.data) != column.width * batch.count:
            raise JournalFormatError(
                f"journal batch is damaged: column {name} has {len(column.data)} bytes for "
                f"{batch.count} events of {column.width}"
            )


__all__ = [
    "AUTO",
    "CALLER",
    "COLUMNS",
    "HEARTBEAT",
    "VERSION",
    "WAITED",
    "Column",
    "Event",
    "JournalBatch",
    "JournalFormatError",
    "Kind",
    "Lost",
    "Refusal",
    "Stream",
    "decode",
    "encode",
    "encode_columns",
]
