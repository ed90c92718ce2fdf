"""The data source as Spark sees it: schema, batch reader, stream reader.

Spark runs each part in a Python process of its own: options are checked and ranges are planned in the
driver's, ranges are read in the executors'. So readers hold plain data, and open sockets where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pixy.pipeline.datasource import columns, options
from pixy.pipeline.datasource.batch_rows import BatchRows
from pixy.pipeline.datasource.cluster import ClusterReader, check_there, places_of
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range, split
from pixy.pipeline.datasource.positions import Kind, Position
from pixy.pipeline.datasource.rows import RecordRows
from pixy.pipeline.datasource.stream import StreamPlanner
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition


class PixyDataSource(DataSource):
    """``format("pixy")``; see docs/datasource.md for its options and columns."""

    @classmethod
    def name(cls) -> str:
        """What goes into ``format()``."""
        return "pixy"

    def schema(self) -> str:
        """All columns of the mode; all options are checked before."""
        source = options.parse(self.options)
        return columns.ddl(source.mode, headers=source.headers)

    def reader(self, schema: StructType) -> PixyReader:
        """For ``spark.read``."""
        source = options.parse(self.options, streaming=False)
        return PixyReader(source, columns.check(schema, source.mode))

    def streamReader(self, schema: StructType) -> PixyStreamReader:
        """For ``spark.readStream``."""
        source = options.parse(self.options, streaming=True)
        return PixyStreamReader(source, columns.check(schema, source.mode))


def read(source: Source, wanted: tuple[str, ...], range_: Range | None) -> Iterator[pa.RecordBatch]:
    """What a task does. Raises SourceError, whose text names topic, partition and offset."""
    if range_ is None:  # how Spark says that there is nothing to read
        return
    rows = BatchRows if source.mode == columns.BATCHES else RecordRows
    yield from rows(source, range_, wanted).read()


class PixyReader(DataSourceReader):
    """A batch query: from the starting to the ending offsets, as they are when it is planned."""

    def __init__(self, source: Source, wanted: tuple[str, ...]) -> None:
        self._source = source
        self._wanted = wanted

    def partitions(self) -> list[Range]:
        """The tasks' ranges; raises SourceError for what is not there."""
        source, cluster = self._source, ClusterReader.of(self._source)
        topics = cluster.topics(source.selection)
        check_there(source.selection, topics)
        places = places_of(topics)
        start = cluster.resolve(source.start, places, committed=source.read_committed)
        end = cluster.resolve(source.end, places, committed=source.read_committed)
        if Kind.OFFSETS in (source.start.kind, source.end.kind):
            bounds = cluster.bounds(places, committed=source.read_committed)
            start = _within(source, source.start, start, bounds)
            end = _within(source, source.end, end, bounds)
        ranges = [
            Range(topic, number, start[topic, number], end[topic, number], topics[topic].id)
            for topic, number in places
        ]
        return split(ranges, source.min_partitions)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """A task's range."""
        return read(self._source, self._wanted, partition)


class PixyStreamReader(DataSourceStreamReader):
    """A stream. Offsets are documents of :mod:`pixy.pipeline.datasource.progress`, kept in the checkpoint.

    Nothing is committed in Kafka. Spark 4.0 has no admission control for Python sources, so ``latestOffset``
    itself goes no further than ``maxOffsetsPerTrigger``.
    """

    def __init__(self, source: Source, wanted: tuple[str, ...]) -> None:
        self._source = source
        self._wanted = wanted
        self._planner: StreamPlanner | None = None

    def _plan(self) -> StreamPlanner:
        # Made where it is used: the reader is sent to executors as well.
        if self._planner is None:
            self._planner = StreamPlanner(self._source, ClusterReader.of(self._source))
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._plan().initial()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends. Spark 4.0 gives no arguments, later ones where it starts."""
        return self._plan().latest(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """The tasks' ranges of a batch."""
        return self._plan().ranges(start, end)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """A task's range."""
        return read(self._source, self._wanted, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Spark has done with what lies before; the checkpoint is the only place that knows."""

    def stop(self) -> None:
        """There is nothing to close: connections live as long as a call."""


def _within(
    source: Source,
    position: Position,
    offsets: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    """Offsets that an option names must be there, unless data loss is no reason to fail."""
    found = dict(offsets)
    if position.kind is not Kind.OFFSETS:
        return found
    for (topic, partition), (first, next_) in sorted(bounds.items()):
        offset = found[topic, partition]
        if first <= offset <= next_:
            continue
        if source.fail_on_data_loss:
            raise SourceError(
                f"option {position.option}: offset {offset} of {topic}/{partition} is out of range, it has "
                f"{first} to {next_}; failOnDataLoss=false takes what there is"
            )
        found[topic, partition] = min(max(offset, first), next_)
    return found


__all__ = ["PixyDataSource", "PixyReader", "PixyStreamReader", "read"]
