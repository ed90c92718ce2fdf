"""Where each batch of a stream begins and ends: exactly after the one before, and never further than it is told.

Spark 4.0 asks ``latestOffset`` without saying from where, so the planner keeps the end of the batch that was
planned last: Spark tells it by planning each batch, and after a restart by planning an empty one at the offset
that the checkpoint has last.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pixy.pipeline.datasource.cluster import ClusterReader, Topic, check_there, missing, places_of
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range, limited, split
from pixy.pipeline.datasource.positions import EARLIEST, LATEST
from pixy.pipeline.datasource.progress import Progress, ranges
from pixy.pipeline.errors import SourceError
from pixy.wire.types import TopicPartition

logger = logging.getLogger(__name__)


class StreamPlanner:
    """The state of a stream in the driver's Python process."""

    def __init__(self, source: Source, cluster: ClusterReader) -> None:
        self._source = source
        self._cluster = cluster
        self._at: Progress | None = None
        """The end of what was planned last."""
        self._told: Progress | None = None
        """What was answered last; asked again before it was planned, the answer is the same."""

    def initial(self) -> dict[str, Any]:
        """Where the stream begins; the same each time.

        Asked when the first batch is planned again after a restart, it is that batch's end that says where it
        begins, see :mod:`pixy.pipeline.datasource.progress`; the brokers are not asked again.
        """
        at = self._start()
        return (at if at.initial else Progress(at.begin, at.ids, initial=True)).document()

    def _start(self) -> Progress:
        if self._at is None:
            topics = self._cluster.topics(self._source.selection)
            check_there(self._source.selection, topics)
            begin = self._cluster.resolve(
                self._source.start, places_of(topics), committed=self._source.read_committed
            )
            self._at = Progress(begin, _ids(topics), initial=True)
        return self._at

    def latest(self, start: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Where the next batch ends; the offset that the last one ended at if there is nothing new.

        Raises:
            SourceError: a topic is gone, made anew, or ends before what was read of it; the text names it.
        """
        at = self._start() if start is None else Progress.of(start)
        if self._told is None or self._told == at or (start is not None and start != at.document()):
            self._told = self._next(at)
        return self._told.document()

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """What a batch reads, divided into tasks."""
        until = Progress.of(end)
        found = ranges(Progress.of(start), until, fail_on_data_loss=self._source.fail_on_data_loss)
        self._at = until
        return split(found, self._source.min_partitions)

    # -- the next end ----------------------------------------------------------------------------

    def _next(self, at: Progress) -> Progress:
        topics = self._cluster.topics(self._source.selection)
        known = self._still_known(at, topics)
        committed = self._source.read_committed
        places = places_of(topics)
        ends = self._cluster.offsets(dict.fromkeys(places, LATEST), committed=committed)
        begin = dict(known) if at.initial else {}
        fresh = [place for place in places if place not in known]
        # A partition that comes later is read from its beginning, whatever startingOffsets says.
        begin |= self._cluster.offsets(dict.fromkeys(fresh, EARLIEST), committed=committed)
        starts = {**known, **begin}
        self._check_shrunk(known, ends)
        until = limited(starts, ends, self._source.max_offsets)
        found = Progress(until, _ids(topics), begin)
        # The very same document tells Spark that there is nothing new.
        return at if not at.initial and not begin and found.same_place(at) else found

    def _still_known(self, at: Progress, topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
        """The positions that still mean something."""
        never = [
            each for each in missing(self._source.selection, topics) if each.partition("/")[0] not in at.ids
        ]
        if never:
            check_there(self._source.selection, topics)
        gone = sorted({topic for topic, _ in at.next if topic not in topics})
        if gone:
            self._lost(f"topic {', '.join(gone[:5])} does not exist any more")
        anew = {
            topic
            for topic, id_ in at.ids.items()
            if topic in topics and id_ and topics[topic].id and id_ != topics[topic].id
        }
        for topic in sorted(anew):
            self._lost(
                f"topic {topic} was deleted and created again: the checkpoint has id {at.ids[topic]}, the "
                f"cluster {topics[topic].id}"
            )
        here = set(places_of(topics))
        return {place: offset for place, offset in at.next.items() if place in here and place[0] not in anew}

    def _check_shrunk(self, known: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        for (topic, partition), offset in sorted(known.items()):
            end = ends[topic, partition]
            if end < offset:
                self._lost(
                    f"{topic}/{partition} ends at offset {end}, and was read up to {offset}: the topic was "
                    "deleted and created again, or lost its end"
                )

    def _lost(self, what: str) -> None:
        if self._source.fail_on_data_loss:
            raise SourceError(f"{what}; failOnDataLoss=false goes on without what is gone")
        logger.warning("%s", what)


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: topic.id for name, topic in topics.items()}


__all__ = ["StreamPlanner"]
