"""Mode ``batches``: a row for each record batch, from its header alone. Nothing is decompressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pixy.pipeline.datasource import columns
from pixy.pipeline.datasource.fetching import Found, RangeFetcher, batch_error
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range
from pixy.pipeline.datasource.rows import codecs, micros
from pixy.wire.batch_header import CODEC_MASK, Header
from pixy.wire.exceptions import UnsupportedMagicError

_FIELDS: Final[dict[str, Callable[[Header], int]]] = {
    "baseOffset": lambda header: header.base_offset,
    "lastOffset": lambda header: header.last_offset,
    "count": lambda header: header.records_count,
    "bytes": lambda header: header.size,
    "codec": lambda header: header.attributes & CODEC_MASK,
    "timestampType": lambda header: header.is_log_append_time,
    "baseTimestamp": lambda header: header.base_timestamp,
    "maxTimestamp": lambda header: header.max_timestamp,
    "producerId": lambda header: header.producer_id,
    "producerEpoch": lambda header: header.producer_epoch,
    "baseSequence": lambda header: header.base_sequence,
    "isTransactional": lambda header: header.is_transactional,
    "isControl": lambda header: header.is_control,
    "leaderEpoch": lambda header: header.partition_leader_epoch,
    "crc": lambda header: header.crc,
}
_TIMES: Final = ("baseTimestamp", "maxTimestamp")


class BatchRows:
    """Headers of one range, gathered into Arrow batches.

    A batch belongs to the range that its last offset lies in: so each is in one range, however a log is
    divided, and the batch that a log begins in the middle of is there.
    """

    def __init__(self, source: Source, range_: Range, wanted: Sequence[str]) -> None:
        self._source, self._range = source, range_
        self._schema = columns.arrow_schema(columns.BATCHES, wanted)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The range, fetched. Raises SourceError."""
        return self.of(iter(RangeFetcher(self._source, self._range, check_crc=False)))

    def of(self, batches: Iterator[Found]) -> Iterator[pa.RecordBatch]:
        """A row each. Raises SourceError for messages of the formats before Kafka 0.11."""
        waiting: list[tuple[Header, bool]] = []
        for found in batches:
            if found.header is None:
                offset = int.from_bytes(found.buffer[found.start : found.start + 8], "big")
                raise batch_error(
                    self._range,
                    offset,
                    UnsupportedMagicError(found.buffer[found.start + 16], found.start + 16),
                )
            if self._range.start <= found.header.last_offset < self._range.end:
                waiting.append((found.header, found.crc_valid))
            if len(waiting) >= self._source.limits.arrow_records:
                yield self._made(waiting)
                waiting = []
        if waiting:
            yield self._made(waiting)

    def _made(self, rows: list[tuple[Header, bool]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [self._column(name, rows) for name in self._schema.names], schema=self._schema
        )

    def _column(self, name: str, rows: list[tuple[Header, bool]]) -> pa.Array:
        if name == "topic":
            return pa.repeat(pa.scalar(self._range.topic, pa.string()), len(rows))
        if name == "partition":
            return pa.repeat(pa.scalar(self._range.partition, pa.int32()), len(rows))
        if name == "crcValid":
            return pa.array([valid for _, valid in rows], pa.bool_())
        field = _FIELDS[name]
        values = np.array([field(header) for header, _ in rows], np.int64)
        if name == "codec":
            return codecs(values)
        if name in _TIMES:
            return micros(values)
        return pa.array(values).cast(self._schema.field(name).type)


__all__ = ["BatchRows"]
