"""Plan the batches of a stream: each starts where the one before ended, and obeys ``maxOffsetsPerTrigger``.

Spark 4.0 calls ``latestOffset`` without a start, so the planner remembers the end of the last planned batch.
It learns that end when Spark plans a batch; after a restart, Spark plans an empty batch at the checkpoint's
last offset.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pixy.pipeline.datasource.cluster import ClusterReader, Topic, check_exist, missing, partitions_of
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range, limit_offsets, split
from pixy.pipeline.datasource.positions import EARLIEST, LATEST
from pixy.pipeline.datasource.progress import Progress, ranges
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition

logger = logging.getLogger(__name__)


class StreamPlanner:
    """The state of a stream in the driver's Python process.

    Args:
        source: the checked options.
        cluster: answers queries about topics and offsets.
    """

    def __init__(self, source: Source, cluster: ClusterReader) -> None:
        self._source = source
        self._cluster = cluster
        self._planned_end: Progress | None = None
        """End of the last planned batch."""
        self._announced: Progress | None = None
        """The last result of ``latest``; until its batch is planned, ``latest`` returns it again."""

    def initial(self) -> dict[str, Any]:
        """Return the start of the stream; the same at each call.

        When the first batch is planned again after a restart, the start comes from that batch's end and not
        from the brokers, see :mod:`pixy.pipeline.datasource.progress`.
        """
        at = self._start()
        return (at if at.initial else Progress(at.begin, at.ids, initial=True)).document()

    def _start(self) -> Progress:
        if self._planned_end is None:
            topics = self._cluster.topics(self._source.selection)
            check_exist(self._source.selection, topics)
            begin = self._cluster.resolve(
                self._source.start, partitions_of(topics), committed=self._source.read_committed
            )
            self._planned_end = Progress(begin, _ids(topics), initial=True)
        return self._planned_end

    def latest(self, start: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the end of the next batch; the end of the last one if there is nothing new.

        Args:
            start: where the next batch starts; None for the end of the last planned batch.

        Raises:
            SourceError: a topic was deleted, recreated, or ends below the offset that was reached; the text
                names it.
        """
        at = self._start() if start is None else Progress.of(start)
        if self._announced is None or self._announced == at or (start is not None and start != at.document()):
            self._announced = self._next(at)
        return self._announced.document()

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """Return the ranges of a batch, divided into tasks.

        Args:
            start: end of the batch before.
            end: end of this batch.
        """
        until = Progress.of(end)
        found = ranges(Progress.of(start), until, fail_on_data_loss=self._source.fail_on_data_loss)
        self._planned_end = until
        return split(found, self._source.min_partitions)

    # -- the end of the next batch ---------------------------------------------------------------

    def _next(self, at: Progress) -> Progress:
        topics = self._cluster.topics(self._source.selection)
        known = self._still_known(at, topics)
        committed = self._source.read_committed
        partitions = partitions_of(topics)
        ends = self._cluster.offsets(dict.fromkeys(partitions, LATEST), committed=committed)
        begin = dict(known) if at.initial else {}
        fresh = [tp for tp in partitions if tp not in known]
        # Partitions that are added later are read from their beginning, whatever startingOffsets says.
        begin |= self._cluster.offsets(dict.fromkeys(fresh, EARLIEST), committed=committed)
        starts = {**known, **begin}
        self._check_ends(known, ends)
        until = limit_offsets(starts, ends, self._source.max_offsets)
        found = Progress(until, _ids(topics), begin)
        # An equal document tells Spark that there is nothing new.
        return at if not at.initial and not begin and found.same_offsets(at) else found

    def _still_known(self, at: Progress, topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
        """Return the next offsets of partitions that still exist and belong to the same topic."""
        never = [
            each for each in missing(self._source.selection, topics) if each.partition("/")[0] not in at.ids
        ]
        if never:
            check_exist(self._source.selection, topics)
        gone = sorted({topic for topic, _ in at.next if topic not in topics})
        if gone:
            self._data_lost(f"topic {', '.join(gone[:5])} no longer exists")
        recreated = {
            topic
            for topic, id_ in at.ids.items()
            if topic in topics and id_ and topics[topic].id and id_ != topics[topic].id
        }
        for topic in sorted(recreated):
            self._data_lost(
                f"topic {topic} was deleted and created again: the checkpoint has id {at.ids[topic]}, the "
                f"cluster has {topics[topic].id}"
            )
        here = set(partitions_of(topics))
        return {tp: offset for tp, offset in at.next.items() if tp in here and tp[0] not in recreated}

    def _check_ends(self, known: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        for (topic, partition), offset in sorted(known.items()):
            end = ends[topic, partition]
            if end < offset:
                self._data_lost(
                    f"{topic}/{partition} ends at offset {end}, but was read up to {offset}: the topic was "
                    "deleted and created again, or lost its end"
                )

    def _data_lost(self, problem: str) -> None:
        if self._source.fail_on_data_loss:
            raise SourceError(f"{problem}; failOnDataLoss=false continues without the lost data")
        logger.warning("%s", problem)


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: topic.id for name, topic in topics.items()}


__all__ = ["StreamPlanner"]
