"""Mode ``batches``: one row per record batch, from its header alone. Nothing is decompressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pixy.pipeline.datasource import columns
from pixy.pipeline.datasource.fetching import FetchedBatch, RangeFetcher, batch_error
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range
from pixy.pipeline.datasource.record_rows import codecs, micros
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
    """Turns the headers of one range into Arrow batches.

    A batch belongs to the range that contains its last offset. So each is in exactly one range, however the
    log is divided, including the batch that the log starts in the middle of.

    Args:
        source: the checked options.
        range_: the offsets to read.
        wanted: the columns, of those of mode ``batches``.
    """

    def __init__(self, source: Source, range_: Range, wanted: Sequence[str]) -> None:
        self._source, self._range = source, range_
        self._schema = columns.arrow_schema(columns.BATCHES, wanted)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Fetch the range and convert it; raises SourceError if it cannot be read."""
        return self.convert(iter(RangeFetcher(self._source, self._range, check_crc=False)))

    def convert(self, batches: Iterator[FetchedBatch]) -> Iterator[pa.RecordBatch]:
        """Convert batches to rows; raises SourceError for messages of the formats before Kafka 0.11."""
        waiting: list[tuple[Header, bool]] = []
        for batch in batches:
            if batch.header is None:
                offset = int.from_bytes(batch.buffer[batch.start : batch.start + 8], "big")
                raise batch_error(
                    self._range,
                    offset,
                    UnsupportedMagicError(batch.buffer[batch.start + 16], batch.start + 16),
                )
            if self._range.start <= batch.header.last_offset < self._range.end:
                waiting.append((batch.header, batch.crc_valid))
            if len(waiting) >= self._source.limits.arrow_records:
                yield self._record_batch(waiting)
                waiting = []
        if waiting:
            yield self._record_batch(waiting)

    def _record_batch(self, rows: list[tuple[Header, bool]]) -> pa.RecordBatch:
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
