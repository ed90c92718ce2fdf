"""Finds a message's events in the journal: reads it from the message's timestamp on, within bounds. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.engine.life.story import Event
from pixy.errors import KafkaError
from pixy.journal import (
    AUTO,
    COLUMNS,
    WAITED,
    JournalBatch,
    JournalFormatError,
    Kind,
    Refusal,
    decode,
)
from pixy.kafka.log_reader import Budget, LogReader

logger = logging.getLogger("pixy.engine")

MOST_EVENTS: Final = 500
"""Events of one message; a message that was offered more often says so by its attempts."""
_ABOUT_PARTITION: Final = frozenset({Kind.ASSIGNED, Kind.REVOKED})
"""Their offset is a position, not a message."""
_KNOWN: Final = frozenset(Kind)
"""Others are of a later version."""


@dataclass(slots=True)
class JournalScan:
    """What was found.

    Attributes:
        events: of the message, and assignments of its partition.
        read_until: seconds since 1970 up to which all partitions of the journal were read; None if they were to their ends.
        lost: events that daemons say they have lost meanwhile.
        damaged: records that are no batches.
        failed: why a partition could not be read; empty if all could.
        full: whether :data:`MOST_EVENTS` were found, and perhaps there are more.
    """

    events: list[Event] = field(default_factory=list)
    read_until: float | None = None
    lost: int = 0
    damaged: int = 0
    failed: str = ""
    full: bool = False


def read_journal(
    reader: LogReader,
    journal: str,
    ranges: Mapping[int, tuple[int, int]],
    message: tuple[str, int, int],
    budget: Budget,
) -> JournalScan:
    """Read the journal for one message.

    Args:
        reader: reads logs.
        journal: the topic.
        ranges: first offset, and the one after the last, by the journal's partition.
        message: topic, partition and offset.
        budget: is used up, each partition in turn with an equal share of what is left.
    """
    scan = JournalScan()
    left = len(ranges)
    # The small ones first: what they leave of their shares is for the large ones.
    for partition, (start, stop) in sorted(ranges.items(), key=lambda each: each[1][1] - each[1][0]):
        share = budget.share(left)
        given = share.records, share.size
        left -= 1
        reached, last = start, None
        try:
            for record in reader.scan(journal, partition, start, stop, share):
                reached, last = record.offset + 1, record.timestamp / 1000
                _take(scan, record.value or b"", message)
        except KafkaError as error:
            scan.failed = str(error)
            logger.info("journal %s/%d cannot be read: %s", journal, partition, error)
        budget.spend(share, given)
        if reached < stop and not share.left:
            last = 0.0 if last is None else last
            scan.read_until = last if scan.read_until is None else min(scan.read_until, last)
    return scan


def _take(scan: JournalScan, value: bytes, message: tuple[str, int, int]) -> None:
    topic, partition, _ = message
    try:
        batch = decode(value)
    except JournalFormatError:
        scan.damaged += 1
        return
    scan.lost += batch.lost.events
    mine = {number for number, each in enumerate(batch.streams) if each[0] == topic and each[1] == partition}
    if mine:
        for event in _events(batch, mine, message[2]):
            if len(scan.events) >= MOST_EVENTS:
                scan.full = True
                return
            scan.events.append(event)


def _events(batch: JournalBatch, mine: set[int], offset: int) -> Iterator[Event]:
    """Yield a batch's events of the message and its partition. Only the columns that choose are unpacked for all events."""
    columns = {name: batch.columns[name].values(batch.count) for name in COLUMNS}
    callers = batch.callers_of()
    kinds, streams, offsets = columns["kind"], columns["stream"], columns["offset"]
    for at in range(batch.count):
        if (
            streams[at] in mine
            and kinds[at] in _KNOWN
            and (offsets[at] == offset or kinds[at] in _ABOUT_PARTITION)
        ):
            yield _event(batch, {name: values[at] for name, values in columns.items()}, callers[at])


def _event(batch: JournalBatch, row: Mapping[str, int], caller: str) -> Event:
    kind = Kind(row["kind"])
    group = batch.streams[row["stream"]][2]
    detail: dict[str, Any] = {"client": caller} if caller else {}
    if row["took"] >= 0:
        detail["took"] = row["took"] / 1e6
    match kind:
        case Kind.PRODUCED:
            detail["answered"] = bool(row["flags"] & WAITED)
        case Kind.OFFERED | Kind.DROPPED:
            detail["attempt"] = row["attempt"] + 1
        case Kind.ACKED:
            detail["auto"] = bool(row["flags"] & AUTO)
            detail["attempt"] = row["attempt"] + 1
        case Kind.ACK_REFUSED:
            detail["reason"] = _reason(row["code"])
        case Kind.ASSIGNED | Kind.REVOKED:
            detail["position"] = row["offset"]
            if kind is Kind.REVOKED:
                detail["drained"] = not row["code"]
    return Event(row["time"] / 1e6, kind.name.lower(), "journal", batch.client, group, detail)


def _reason(code: int) -> str:
    try:
        return Refusal(code).name.lower().replace("_", " ")
    except ValueError:
        return str(code)


__all__ = ["MOST_EVENTS", "JournalScan", "read_journal"]
