"""Reading a journal: functions that Spark runs over its records, batch by batch, with vectors.

Two passes. :func:`survey` reads what each batch says about itself and about partitions that come and
go: little, and all of it goes to the driver, which numbers names and finds holes
(:mod:`pixy.pipeline.audit.journal_view`). :func:`to_facts` then turns ten million events into facts, one
buffer a column: no event is ever an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pixy.journal import Column, JournalBatch, JournalFormatError, Kind, decode
from pixy.pipeline.audit.facts import BLOCK_BITS, FACTS, pack

Ints = NDArray[np.int64]

RECORDS_DDL = "partition int, offset bigint, value binary"
"""What both passes take; the columns of Spark's Kafka source and of the lake."""

SURVEY_DDL = "survey binary"

StreamKey = tuple[str, int, str, int, str, int]
"""(client, epoch, topic, partition, group, generation)"""

_MOST_ERRORS = 10
_EVENTS = 500_000
"""Facts that are handed over together."""


def column(packed: Column, count: int) -> Ints:
    """A column's numbers as a vector."""
    if not packed.width:
        return np.full(count, packed.base, np.int64)
    found: Ints = np.frombuffer(packed.data, f"<u{packed.width}").astype(np.int64)
    found += packed.base
    return found


class _Survey:
    """What one task learns; small, whatever the number of events."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[str, int], dict[str, Any]] = {}
        self.errors: list[tuple[int, int, str]] = []
        self.bad = 0

    def add(self, partition: int, offset: int, value: bytes | None) -> None:
        """Look into one record."""
        try:
            batch = decode(value or b"")
        except JournalFormatError as error:
            self.bad += 1
            if len(self.errors) < _MOST_ERRORS:
                self.errors.append((partition, offset, str(error)))
            return
        epoch = self.epochs.setdefault(
            (batch.client, batch.epoch),
            {
                "batches": [],
                "lost": [],
                "streams": {},
                "moves": [],
                "events": 0,
                "heartbeat": batch.heartbeat,
            },
        )
        epoch["batches"].append((batch.sequence, partition, offset, batch.time, batch.final))
        epoch["events"] += batch.count
        if batch.lost.events:
            epoch["lost"].append((batch.lost.first, batch.lost.last, batch.lost.events))
        if batch.count:
            self._streams(epoch, batch)

    @staticmethod
    def _streams(epoch: dict[str, Any], batch: JournalBatch) -> None:
        columns = batch.columns
        kind = column(columns["kind"], batch.count)
        stream = column(columns["stream"], batch.count)
        offset = column(columns["offset"], batch.count)
        fresh = (kind == Kind.OFFERED) & (column(columns["attempt"], batch.count) == 0)
        least = np.full(len(batch.streams), np.iinfo(np.int64).max)
        np.minimum.at(least, stream[fresh], offset[fresh])
        known = epoch["streams"]
        for key, first in zip(batch.streams, least.tolist(), strict=True):
            known[key] = min(first, known.get(key, first))
        moved = np.flatnonzero((kind == Kind.ASSIGNED) | (kind == Kind.REVOKED))
        if len(moved):
            time = column(columns["time"], batch.count)
            epoch["moves"] += [
                (int(time[at]), int(kind[at]), batch.streams[int(stream[at])], int(offset[at]))
                for at in moved
            ]

    def packed(self) -> bytes:
        """For the driver."""
        made: bytes = msgpack.packb(
            {
                "epochs": [
                    (client, epoch, {**found, "streams": list(found["streams"].items())})
                    for (client, epoch), found in self.epochs.items()
                ],
                "errors": self.errors,
                "bad": self.bad,
            }
        )
        return made


def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first pass; for ``mapInArrow``. One row a task."""
    found = _Survey()
    for batch in batches:
        for partition, offset, value in zip(
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            batch.column("value").to_pylist(),
            strict=True,
        ):
            found.add(partition, offset, value)
    yield pa.RecordBatch.from_pydict({"survey": pa.array([found.packed()], pa.binary())})


def to_facts(
    streams: Mapping[StreamKey, int],
    places: Mapping[tuple[str, int], int],
    skip: frozenset[tuple[int, int]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The second pass, for ``mapInArrow``: events as packed facts.

    Args:
        streams: the number of each stream.
        places: the number of each (topic, partition) that is audited; others are left out.
        skip: (partition, offset) of records that are in the journal twice.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[list[Ints]] = []
        held = 0
        for records in batches:
            for partition, offset, value in zip(
                records.column("partition").to_pylist(),
                records.column("offset").to_pylist(),
                records.column("value").to_pylist(),
                strict=True,
            ):
                if (partition, offset) in skip:
                    continue
                part = _facts(decode(value), streams, places)
                if part is not None:
                    waiting.append(part)
                    held += len(part[0])
                if held >= _EVENTS:
                    yield _joined(waiting)
                    waiting, held = [], 0
        if waiting:
            yield _joined(waiting)

    return run


def _facts(
    batch: JournalBatch, streams: Mapping[StreamKey, int], places: Mapping[tuple[str, int], int]
) -> list[Ints] | None:
    if not batch.count:
        return None
    count, columns = batch.count, batch.columns
    numbers = np.array(
        [streams.get((batch.client, batch.epoch, *key), -1) for key in batch.streams], np.int64
    )
    tps = _places(batch, places)
    stream, kind = column(columns["stream"], count), column(columns["kind"], count)
    source, tp = numbers[stream], tps[stream]
    wanted = np.flatnonzero((tp >= 0) & (kind < Kind.ASSIGNED))
    if not len(wanted):
        return None
    offset = column(columns["offset"], count)
    every = [
        tp,
        offset >> BLOCK_BITS,
        offset,
        kind,
        source,
        *(column(columns[name], count) for name in ("time", "timestamp", "attempt", "took", "code")),
    ]
    return every if len(wanted) == count else [each[wanted] for each in every]


def _places(batch: JournalBatch, places: Mapping[tuple[str, int], int]) -> Ints:
    # A message that was never written has no partition: it is counted with its topic's first.
    return np.array(
        [places.get((topic, max(partition, 0)), -1) for topic, partition, _, _ in batch.streams], np.int64
    )


def _joined(parts: list[list[Ints]]) -> pa.RecordBatch:
    return pack({name: np.concatenate([part[at] for part in parts]) for at, name in enumerate(FACTS.names)})


__all__ = ["RECORDS_DDL", "SURVEY_DDL", "StreamKey", "column", "survey", "to_facts"]
