"""Read a journal in Spark: functions that run over its records, batch by batch, with vectors.

There are two passes. :func:`survey` collects what each batch says about itself and about assignments. That is
little, and all of it goes to the driver, which numbers names and finds holes
(:mod:`pixy.pipeline.audit.journal_view`). :func:`to_facts` then turns ten million events into facts, one
buffer per column: no event ever becomes an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from pixy.journal import Column, JournalBatch, JournalFormatError, Kind, decode
from pixy.pipeline.audit.facts import BLOCK_BITS, FACTS, pack
from pixy.pipeline.audit.tallies import Ints
from pixy.wire.types import TopicPartition

RECORDS_DDL = "partition int, offset bigint, value binary"
"""Input of both passes: columns of Spark's Kafka source and of the lake."""

SURVEY_DDL = "survey binary"

StreamKey = tuple[str, int, str, int, str, int]
"""(client, epoch, topic, partition, group, generation)"""

_MAX_ERRORS = 10
_FACTS_PER_BATCH = 500_000


def column(packed: Column, count: int) -> Ints:
    """Return a column's ``count`` numbers as a vector."""
    if not packed.width:
        return np.full(count, packed.base, np.int64)
    values: Ints = np.frombuffer(packed.data, f"<u{packed.width}").astype(np.int64)
    values += packed.base
    return values


class _Survey:
    """The survey of one task; small, whatever the number of events."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[str, int], dict[str, Any]] = {}
        self.errors: list[tuple[int, int, str]] = []
        self.error_count = 0

    def add(self, partition: int, offset: int, value: bytes | None) -> None:
        """Add one record of the journal, given with its partition and offset there."""
        try:
            batch = decode(value or b"")
        except JournalFormatError as error:
            self.error_count += 1
            if len(self.errors) < _MAX_ERRORS:
                self.errors.append((partition, offset, str(error)))
            return
        epoch = self.epochs.setdefault(
            (batch.client, batch.epoch),
            {
                "batches": [],
                "dropped": [],
                "streams": {},
                "assignments": [],
                "events": 0,
                "heartbeat": batch.heartbeat,
            },
        )
        epoch["batches"].append((batch.sequence, partition, offset, batch.time, batch.final))
        epoch["events"] += batch.count
        if batch.lost.events:
            epoch["dropped"].append((batch.lost.first, batch.lost.last, batch.lost.events))
        if batch.count:
            self._add_streams(epoch, batch)

    @staticmethod
    def _add_streams(epoch: dict[str, Any], batch: JournalBatch) -> None:
        columns = batch.columns
        kind = column(columns["kind"], batch.count)
        stream = column(columns["stream"], batch.count)
        offset = column(columns["offset"], batch.count)
        first_offers = (kind == Kind.OFFERED) & (column(columns["attempt"], batch.count) == 0)
        lowest = np.full(len(batch.streams), np.iinfo(np.int64).max)
        np.minimum.at(lowest, stream[first_offers], offset[first_offers])
        known = epoch["streams"]
        for key, first in zip(batch.streams, lowest.tolist(), strict=True):
            known[key] = min(first, known.get(key, first))
        assignments = np.flatnonzero((kind == Kind.ASSIGNED) | (kind == Kind.REVOKED))
        if len(assignments):
            time = column(columns["time"], batch.count)
            epoch["assignments"] += [
                (int(time[at]), int(kind[at]), batch.streams[int(stream[at])], int(offset[at]))
                for at in assignments
            ]

    def packed(self) -> bytes:
        """Return the survey for :class:`pixy.pipeline.audit.journal_view.JournalView`."""
        document: bytes = msgpack.packb(
            {
                "epochs": [
                    (client, epoch, {**found, "streams": list(found["streams"].items())})
                    for (client, epoch), found in self.epochs.items()
                ],
                "errors": self.errors,
                "error_count": self.error_count,
            }
        )
        return document


def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the first pass, for ``mapInArrow``: one row per task."""
    result = _Survey()
    for partition, offset, value in _records(batches):
        result.add(partition, offset, value)
    yield pa.RecordBatch.from_pydict({"survey": pa.array([result.packed()], pa.binary())})


def to_facts(
    streams: Mapping[StreamKey, int],
    partitions: Mapping[TopicPartition, int],
    skip: frozenset[tuple[int, int]],
    slices: Mapping[TopicPartition, tuple[int, int]] | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the second pass, for ``mapInArrow``: events become packed facts.

    Args:
        streams: the number of each stream.
        partitions: the number of each audited (topic, partition); events of others are left out.
        skip: (partition, offset) of journal records that repeat an earlier one.
        slices: offsets ``[low, high)`` of messages to look at; None for all.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[list[Ints]] = []
        count = 0
        for partition, offset, value in _records(batches):
            if (partition, offset) in skip:
                continue
            part = _facts(decode(value or b""), streams, partitions, slices)
            if part is not None:
                waiting.append(part)
                count += len(part[0])
            if count >= _FACTS_PER_BATCH:
                yield _packed(waiting)
                waiting, count = [], 0
        if waiting:
            yield _packed(waiting)

    return run


def _records(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes | None]]:
    for batch in batches:
        yield from zip(
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            batch.column("value").to_pylist(),
            strict=True,
        )


def _facts(
    batch: JournalBatch,
    streams: Mapping[StreamKey, int],
    partitions: Mapping[TopicPartition, int],
    slices: Mapping[TopicPartition, tuple[int, int]] | None,
) -> list[Ints] | None:
    if not batch.count:
        return None
    count, columns = batch.count, batch.columns
    numbers = np.array(
        [streams.get((batch.client, batch.epoch, *key), -1) for key in batch.streams], np.int64
    )
    tp_ids = _tp_ids(batch, partitions)
    stream, kind = column(columns["stream"], count), column(columns["kind"], count)
    source, tp_id = numbers[stream], tp_ids[stream]
    offset = column(columns["offset"], count)
    is_wanted = (tp_id >= 0) & (kind < Kind.ASSIGNED)
    if slices:
        bounds = np.array([slices.get((key[0], max(key[1], 0)), (0, 0)) for key in batch.streams], np.int64)
        is_wanted &= (offset < 0) | ((offset >= bounds[stream, 0]) & (offset < bounds[stream, 1]))
    wanted = np.flatnonzero(is_wanted)
    if not len(wanted):
        return None
    every = [
        tp_id,
        offset >> BLOCK_BITS,
        offset,
        kind,
        source,
        *(column(columns[name], count) for name in ("time", "timestamp", "attempt", "took", "code")),
    ]
    return every if len(wanted) == count else [each[wanted] for each in every]


def _tp_ids(batch: JournalBatch, partitions: Mapping[TopicPartition, int]) -> Ints:
    # A message that was never written has no partition: it counts for partition 0 of its topic.
    return np.array(
        [partitions.get((topic, max(partition, 0)), -1) for topic, partition, _, _ in batch.streams], np.int64
    )


def _packed(parts: list[list[Ints]]) -> pa.RecordBatch:
    return pack({name: np.concatenate([part[at] for part in parts]) for at, name in enumerate(FACTS.names)})


__all__ = ["RECORDS_DDL", "SURVEY_DDL", "StreamKey", "column", "survey", "to_facts"]
