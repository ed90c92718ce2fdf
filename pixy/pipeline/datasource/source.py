"""The data source that Spark calls: schema, batch reader, stream reader.

Spark runs each part in its own Python process: the driver's process checks options and plans ranges, the
executors' processes read ranges. So readers hold plain data, and connections are opened where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pixy.pipeline.datasource import columns, options
from pixy.pipeline.datasource.batch_rows import BatchRows
from pixy.pipeline.datasource.cluster import ClusterReader, check_exist, partitions_of
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range, split
from pixy.pipeline.datasource.positions import Kind, Position
from pixy.pipeline.datasource.record_rows import RecordRows
from pixy.pipeline.datasource.stream import StreamPlanner
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition


class PixyDataSource(DataSource):
    """``format("pixy")``; see docs/datasource.md for its options and columns."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return "pixy"

    def schema(self) -> str:
        """Check all options and return the columns of the mode."""
        source = options.parse(self.options)
        return columns.ddl(source.mode, headers=source.headers)

    def reader(self, schema: StructType) -> PixyReader:
        """Return the reader of a batch query."""
        source = options.parse(self.options, streaming=False)
        return PixyReader(source, columns.check_schema(schema, source.mode))

    def streamReader(self, schema: StructType) -> PixyStreamReader:
        """Return the reader of a stream."""
        source = options.parse(self.options, streaming=True)
        return PixyStreamReader(source, columns.check_schema(schema, source.mode))


def read(source: Source, wanted: tuple[str, ...], range_: Range | None) -> Iterator[pa.RecordBatch]:
    """Read a task's range.

    Args:
        source: the checked options.
        wanted: the columns.
        range_: the offsets to read; None if Spark planned nothing.

    Raises:
        SourceError: the range cannot be read; the text names topic, partition and offset.
    """
    if range_ is None:
        return
    rows = BatchRows if source.mode == columns.BATCHES else RecordRows
    yield from rows(source, range_, wanted).read()


class PixyReader(DataSourceReader):
    """A batch query; its starting and ending offsets are determined when it is planned."""

    def __init__(self, source: Source, wanted: tuple[str, ...]) -> None:
        self._source = source
        self._wanted = wanted

    def partitions(self) -> list[Range]:
        """Plan the tasks' ranges; raises SourceError if a topic, partition or offset does not exist."""
        source, cluster = self._source, ClusterReader.of(self._source)
        topics = cluster.topics(source.selection)
        check_exist(source.selection, topics)
        partitions = partitions_of(topics)
        start = cluster.resolve(source.start, partitions, committed=source.read_committed)
        end = cluster.resolve(source.end, partitions, committed=source.read_committed)
        if Kind.OFFSETS in (source.start.kind, source.end.kind):
            bounds = cluster.bounds(partitions, committed=source.read_committed)
            start = _check_range(source, source.start, start, bounds)
            end = _check_range(source, source.end, end, bounds)
        ranges = [
            Range(topic, number, start[topic, number], end[topic, number], topics[topic].id)
            for topic, number in partitions
        ]
        return split(ranges, source.min_partitions)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read a task's range."""
        return read(self._source, self._wanted, partition)


class PixyStreamReader(DataSourceStreamReader):
    """A stream; its offsets are documents of :mod:`pixy.pipeline.datasource.progress`.

    Nothing is committed to Kafka. Spark 4.0 has no admission control for Python sources, so ``latestOffset``
    itself obeys ``maxOffsetsPerTrigger``.
    """

    def __init__(self, source: Source, wanted: tuple[str, ...]) -> None:
        self._source = source
        self._wanted = wanted
        self._planner: StreamPlanner | None = None

    def _get_planner(self) -> StreamPlanner:
        # Created on first use, because Spark also sends the reader to executors.
        if self._planner is None:
            self._planner = StreamPlanner(self._source, ClusterReader.of(self._source))
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query."""
        return self._get_planner().initial()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return the end of the next batch.

        Args:
            start: where the batch starts; Spark 4.0 does not pass it, later versions do.
            limit: ignored; ``maxOffsetsPerTrigger`` applies.
        """
        return self._get_planner().latest(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """Plan the tasks' ranges of a batch.

        Args:
            start: where it starts: the end of the batch before, or what :meth:`initialOffset` returned.
            end: where it ends, as returned by :meth:`latestOffset`.
        """
        return self._get_planner().ranges(start, end)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read a task's range."""
        return read(self._source, self._wanted, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: the progress is kept in the checkpoint."""

    def stop(self) -> None:
        """Do nothing: no connection outlives a call."""


def _check_range(
    source: Source,
    position: Position,
    offsets: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    """Check that an option's offsets exist; with ``failOnDataLoss=false``, move them into range."""
    result = dict(offsets)
    if position.kind is not Kind.OFFSETS:
        return result
    for (topic, partition), (first, next_) in sorted(bounds.items()):
        offset = result[topic, partition]
        if first <= offset <= next_:
            continue
        if source.fail_on_data_loss:
            raise SourceError(
                f"option {position.option}: offset {offset} of {topic}/{partition} is out of range, which is "
                f"{first} to {next_}; failOnDataLoss=false reads the offsets that exist"
            )
        result[topic, partition] = min(max(offset, first), next_)
    return result


__all__ = ["PixyDataSource", "PixyReader", "PixyStreamReader", "read"]
