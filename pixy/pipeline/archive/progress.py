"""Progress of an archive run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pixy.pipeline.lake.entry import Entry
from pixy.wire.types import TopicPartition


@dataclass
class Progress:
    """Counts of a run so far; reported after each batch.

    Attributes:
        batches, records, bytes: published by this run; bytes of payload.
        batch_seconds: duration of the last batch.
        by_topic: (records, bytes) of each topic.
        offsets: next offset to archive, by partition.
        lag: offsets that the broker has and the lake lacks, by partition.
        decoded: numbers of keys and values by outcome, by part (``key``, ``value``) and topic.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    batch_seconds: float = 0.0
    by_topic: dict[str, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    lag: dict[TopicPartition, int] = field(default_factory=dict)
    decoded: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    def add(self, entry: Entry, seconds: float) -> None:
        """Count a published batch.

        Args:
            entry: its entry in the lake's history.
            seconds: how long it took.
        """
        self.batches += 1
        self.batch_seconds = seconds
        for each in entry.ranges:
            self.records += each.stats.count
            self.bytes += each.stats.bytes
            count, size = self.by_topic.get(each.topic, (0, 0))
            self.by_topic[each.topic] = (count + each.stats.count, size + each.stats.bytes)
            self.offsets[each.topic, each.partition] = each.end

    def add_decoded(self, counts: Mapping[tuple[str, str], Mapping[str, int]]) -> None:
        """Count the keys and values of a published batch."""
        for key, outcomes in counts.items():
            sums = self.decoded.setdefault(key, {})
            for outcome, count in outcomes.items():
                sums[outcome] = sums.get(outcome, 0) + count
