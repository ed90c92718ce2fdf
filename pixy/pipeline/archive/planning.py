"""Plan a batch: which offsets of which partitions come next, what was lost before, which topics cannot go on.

Topics fail alone: one that lost records, or its end, is left out, and the others continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pixy.errors import PixyError
from pixy.pipeline.errors import SourceError
from pixy.pipeline.lake.entry import Range
from pixy.pipeline.lake.state import Epoch, Ledger
from pixy.wire.types import TopicPartition

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""The oldest offset of each partition, and the next one to be archived at most."""

EXPIRED = "deleted in Kafka before it was archived"
BEFORE_START = "before --start"


@dataclass(slots=True)
class Plan:
    """The next batch.

    Attributes:
        ranges: offsets to read.
        skipped: offsets that are not archived, with the reason.
        events: changes of topics, as text.
        failed: topics that cannot go on, and why.
    """

    ranges: list[Range] = field(default_factory=list)
    skipped: list[Range] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    failed: dict[str, PixyError] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.ranges or self.skipped)

    def only(self, topic: str) -> Plan:
        """Return the part of one topic."""
        return Plan(
            [each for each in self.ranges if each.topic == topic],
            [each for each in self.skipped if each.topic == topic],
            [each for each in self.events if each.startswith(f"topic {topic}: ")],
        )

    def topics(self) -> list[str]:
        """Return the sorted names of the topics that the plan reads or skips offsets of."""
        return sorted({each.topic for each in (*self.ranges, *self.skipped)})


def plan_batch(
    ledger: Ledger,
    ids: Mapping[str, str],
    bounds: Bounds,
    starts: Mapping[TopicPartition, int],
    limit: int,
    *,
    until: Mapping[TopicPartition, int],
    skip_lost: bool,
) -> Plan:
    """Plan the next batch.

    Args:
        ledger: the folded history of the lake.
        ids: Kafka's id of each topic; empty where the broker gives none.
        bounds: bounds of all partitions of the topics.
        starts: where partitions begin that the lake lacks; others begin at their oldest offset.
        limit: the most offsets to read.
        until: offsets at which to stop before the end, by partition.
        skip_lost: pass over offsets that Kafka has deleted before they were archived, and record them.
    """
    plan = Plan()
    todo: dict[Epoch, tuple[int, int]] = {}
    for topic, id_ in ids.items():
        partitions = {tp[1]: each for tp, each in sorted(bounds.items()) if tp[0] == topic}
        one = _TopicPlan(ledger, topic, id_, skip_lost)
        try:
            for partition, (begin, end) in partitions.items():
                tp = (topic, partition)
                one.add(partition, begin, end, starts.get(tp, begin), until.get(tp, end))
        except SourceError as error:
            plan.failed[topic] = error
            continue
        plan.events += one.events
        plan.skipped += one.skipped
        todo |= one.todo
    for epoch, end in share(todo, limit).items():
        plan.ranges.append(Range(*epoch, todo[epoch][0], end))
    return plan


class _TopicPlan:
    """The plan of one topic."""

    def __init__(self, ledger: Ledger, topic: str, id_: str, skip_lost: bool) -> None:
        self._ledger, self._topic, self._skip_lost = ledger, topic, skip_lost
        before = ledger.topic_ids.get(topic)
        # A broker that gave no id before may give one after an upgrade: the topic is the same.
        self._id = id_ if before is None else before and (id_ or before)
        self._known = any(
            epoch[:2] == (topic, self._id) for epoch in ledger.covered
        )  # the topic's present epoch is in the lake
        self.todo: dict[Epoch, tuple[int, int]] = {}
        self.skipped: list[Range] = []
        self.events: list[str] = []
        if before is not None and before != self._id:
            self._tell(f"created again: its id was {before} and is {self._id}, and its offsets begin anew")
        elif before is None:
            self._tell("added")

    def _tell(self, text: str) -> None:
        self.events.append(f"topic {self._topic}: {text}")

    def add(self, partition: int, begin: int, end: int, start: int, until: int) -> None:
        """Add a partition; raises SourceError if the topic cannot go on."""
        epoch = (self._topic, self._id, partition)
        at = self._ledger.end(epoch)
        if at is None:
            at = self._begin(epoch, begin, begin if self._known else min(start, end))
        elif at < begin:
            at = self._lost(epoch, at, begin)
        if at > end:
            raise SourceError(
                f"{self._topic}/{partition} ends at offset {end}, but it was archived up to {at}: the topic "
                "lost its end (an unclean election of a leader?)"
            )
        if at < min(end, until):
            self.todo[epoch] = (at, min(end, until))

    def _begin(self, epoch: Epoch, begin: int, start: int) -> int:
        if self._known:
            self._tell(f"partition {epoch[2]} was added")
        start = max(begin, start)
        for first, last, reason in ((0, begin, EXPIRED), (begin, start, BEFORE_START)):
            if first < last:
                self.skipped.append(Range(*epoch, first, last, skipped=reason))
        return start

    def _lost(self, epoch: Epoch, at: int, begin: int) -> int:
        if not self._skip_lost:
            raise SourceError(
                f"offsets {at} to {begin - 1} of {self._topic}/{epoch[2]} are out of range: they were "
                "deleted (retention, DeleteRecords) before they were archived; --on-data-loss skip "
                f"continues at {begin}"
            )
        self._tell(f"offsets {at} to {begin - 1} of partition {epoch[2]} were lost")
        self.skipped.append(Range(*epoch, at, begin, skipped=EXPIRED))
        return begin


def share(todo: Mapping[Epoch, tuple[int, int]], limit: int) -> dict[Epoch, int]:
    """Divide a limit among partitions in proportion to what they have.

    Args:
        todo: offsets ``[start, end)`` of each partition.
        limit: the most offsets of all partitions together; each gets at least one.

    Returns:
        The end of each partition's part.
    """
    total = sum(end - start for start, end in todo.values())
    if total <= limit:
        return {epoch: end for epoch, (_, end) in todo.items()}
    return {
        epoch: start + max(1, (end - start) * limit // total) for epoch, (start, end) in sorted(todo.items())
    }


def missing_topics(names: Iterable[str], existing: Mapping[str, int], ledger: Ledger) -> dict[str, PixyError]:
    """Return an error for each subscribed topic that the cluster lacks.

    Args:
        names: the subscribed topics.
        existing: number of partitions of every topic in the cluster.
        ledger: the folded history of the lake.
    """
    return {
        name: SourceError(
            f"topic {name} does not exist"
            + (": it was deleted; the lake keeps what was archived of it" if name in ledger.topic_ids else "")
        )
        for name in names
        if name not in existing
    }
