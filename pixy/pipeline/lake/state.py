"""The history of a lake, folded: ``Ledger`` has what a writer must know, ``State`` what a reader may ask."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pixy.pipeline.errors import ManifestError
from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.entry import REMOVALS, Entry, Range
from pixy.pipeline.lake.ranges_table import SCHEMA, entries_of
from pixy.wire.types import TopicPartition

Epoch = tuple[str, str, int]
"""Topic, Kafka's id of it, partition: offsets of a topic that was created again begin anew."""


@dataclass(frozen=True, slots=True)
class Archived:
    """A range of a partition, with the entry that published it.

    Attributes:
        published: when, in milliseconds of the epoch.
        job, batch: the archive job and the number of its batch.
        seq: the number of the entry.
    """

    range: Range
    published: int
    job: str
    batch: int
    seq: int


@dataclass(slots=True)
class Ledger:
    """The covered offsets of each partition, and the end of the chain; its size does not grow with the batches.

    Attributes:
        version: the version of the table of records that was folded last.
        seq: number of the last entry; -1 for an empty lake.
        digest: digest of the last entry.
        batches: the last batch of each job.
        covered: disjoint intervals ``[start, end)``, sorted, by partition of a topic's epoch: archived or skipped.
        topic_ids: the last id of each topic.
    """

    version: int = -1
    seq: int = -1
    digest: str = ""
    batches: dict[str, int] = field(default_factory=dict)
    covered: dict[Epoch, list[tuple[int, int]]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    def apply(self, version: int, entry: Entry) -> None:
        """Add the next entry.

        Raises:
            ManifestError: it does not continue the chain.
        """
        if entry.seq != self.seq + 1 or entry.previous != self.digest:
            raise ManifestError(
                f"version {version} of the table has entry {entry.seq}, which does not continue entry {self.seq}: "
                "entries were removed or exchanged"
            )
        self.version, self.seq, self.digest = version, entry.seq, entry.digest
        if entry.job:
            self.batches[entry.job] = max(entry.batch, self.batches.get(entry.job, -1))
        for each in entry.ranges if entry.kind not in REMOVALS else ():
            self._cover((each.topic, each.topic_id, each.partition), each.start, each.end)

    def _cover(self, epoch: Epoch, start: int, end: int) -> None:
        known = self.covered.setdefault(epoch, [])
        known.insert(bisect_left(known, (start, end)), (start, end))
        merged = known[:1]
        for begin, until in known[1:]:
            if begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], until))
            else:
                merged.append((begin, until))
        self.covered[epoch] = merged
        self.topic_ids[epoch[0]] = epoch[1]

    def end(self, epoch: Epoch) -> int | None:
        """Return the offset after the last covered one; None for a partition that the lake lacks."""
        known = self.covered.get(epoch)
        return known[-1][1] if known else None

    def overlap(self, each: Range) -> tuple[int, int] | None:
        """Return offsets ``[start, end)`` of a range that are covered already, if there are any."""
        for start, end in self.covered.get((each.topic, each.topic_id, each.partition), ()):
            if start < each.end and each.start < end:
                return max(start, each.start), min(end, each.end)
        return None

    NEEDED: ClassVar[tuple[str, ...]] = (
        *("seq", "digest", "kind", "job", "batch"),
        *("topic", "topic_id", "partition", "start", "end"),
    )
    """Columns of the table of ranges that :meth:`load` needs."""

    def load(self, version: int, rows: pa.Table) -> None:
        """Begin with the rows of the table of ranges, without making an object of each: a year has millions.

        Args:
            version: up to which version of the table of records they are complete.
            rows: in any order.

        Raises:
            ManifestError: entries are missing in the middle.
        """
        self.version = version
        if not len(rows):
            return
        self.seq = pc.max(rows.column("seq")).as_py()
        self.digest = rows.filter(pc.equal(rows.column("seq"), self.seq)).column("digest")[0].as_py()
        if pc.count_distinct(rows.column("seq")).as_py() != self.seq + 1:
            raise ManifestError("entries are missing from the table of ranges: `verify` says which")
        jobs = rows.group_by("job").aggregate([("batch", "max")]).to_pylist()
        self.batches = {each["job"]: each["batch_max"] for each in jobs if each["job"]}
        removals = pc.is_in(rows.column("kind"), value_set=pa.array(REMOVALS))
        ranges = rows.filter(pc.and_(pc.is_valid(rows.column("topic")), pc.invert(removals)))
        ranges = ranges.append_column("length", pc.subtract(ranges.column("end"), ranges.column("start")))
        keys = ["topic", "topic_id", "partition"]
        for each in (
            ranges.group_by(keys)
            .aggregate([("start", "min"), ("end", "max"), ("length", "sum"), ("seq", "max")])
            .sort_by("seq_max")
            .to_pylist()
        ):
            epoch = (each["topic"], each["topic_id"], each["partition"])
            if each["end_max"] - each["start_min"] == each["length_sum"]:
                self._cover(epoch, each["start_min"], each["end_max"])
                continue
            mask = pc.and_(
                pc.and_(
                    pc.equal(ranges.column("topic"), epoch[0]), pc.equal(ranges.column("topic_id"), epoch[1])
                ),
                pc.equal(ranges.column("partition"), epoch[2]),
            )
            some = ranges.filter(mask)
            for start, end in zip(
                some.column("start").to_pylist(), some.column("end").to_pylist(), strict=True
            ):
                self._cover(epoch, start, end)


@dataclass(slots=True)
class State(Ledger):
    """A consistent view of a lake: its live files and all ranges.

    A topic that was created again has several epochs, whose offsets begin anew. ``ranges``, ``removed``, ``select`` and
    ``partition_stats`` show one of them: the last, or the one that ``chosen`` names.

    Attributes:
        all_files: live files by path, relative to the lake.
        all_ranges: ranges of each partition and epoch, in the order of publishing; those that were skipped too.
        all_removed: the ranges whose records have expired or were erased, likewise.
        chosen: ids of topics whose earlier epoch to show, by topic.
    """

    all_files: dict[str, DataFile] = field(default_factory=dict)
    all_ranges: dict[Epoch, list[Archived]] = field(default_factory=dict)
    all_removed: dict[Epoch, list[Archived]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    first_ids: dict[str, str] = field(default_factory=dict)

    def apply(self, version: int, entry: Entry) -> None:
        """See Ledger."""
        Ledger.apply(self, version, entry)
        for each in entry.ranges:
            self.first_ids.setdefault(each.topic, each.topic_id)
            kept = self.all_removed if entry.kind in REMOVALS else self.all_ranges
            kept.setdefault((each.topic, each.topic_id, each.partition), []).append(
                Archived(each, entry.published, entry.job, entry.batch, entry.seq)
            )

    NEEDED: ClassVar[tuple[str, ...]] = tuple(SCHEMA.names)

    def load(self, version: int, rows: pa.Table) -> None:
        """See Ledger; checks each entry's digest."""
        for at, entry in entries_of(rows):
            self.apply(at, entry)
        self.version = version

    def topic_id(self, topic: str) -> str:
        """Return the id of the topic's epoch that is shown."""
        return self.chosen.get(topic) or self.topic_ids.get(topic, "")

    def id_of(self, file: DataFile) -> str:
        """Return the id of a file's topic: that of the first epoch for files of a migrated lake, which have no ids."""
        return file.topic_id or self.first_ids.get(file.topic, "")

    @property
    def ranges(self) -> dict[TopicPartition, list[Archived]]:
        """Ranges of each partition that were archived, not skipped, in the order of publishing."""
        shown = self._shown(self.all_ranges)
        kept = {tp: [each for each in ranges if not each.range.skipped] for tp, ranges in shown.items()}
        return {tp: ranges for tp, ranges in kept.items() if ranges}

    @property
    def removed(self) -> dict[TopicPartition, list[Archived]]:
        """Ranges of each partition whose records have expired or were erased, in that order."""
        return self._shown(self.all_removed)

    def _shown(self, ranges: dict[Epoch, list[Archived]]) -> dict[TopicPartition, list[Archived]]:
        return {(topic, n): found for (topic, id_, n), found in ranges.items() if id_ == self.topic_id(topic)}

    @property
    def files(self) -> dict[str, DataFile]:
        """Live files by path, relative to the lake."""
        return {
            path: file
            for path, file in self.all_files.items()
            if self.id_of(file) == self.topic_id(file.topic)
        }

    def topics(self) -> list[str]:
        """Return the sorted names of the archived topics."""
        return sorted({topic for topic, _ in self.ranges})

    def select(self, topic: str | None = None) -> list[DataFile]:
        """Return the live files of one topic, or of all."""
        return [file for file in self.files.values() if topic in (None, file.topic)]

    def partition_stats(self, topic: str) -> dict[int, Stats]:
        """Sum the stats of each partition's ranges, without the records that have expired or were erased."""
        removed = self.removed
        sums = {
            tp[1]: total(each.range.stats for each in ranges)
            - total(each.range.stats for each in removed.get(tp, ()))
            for tp, ranges in sorted(self.ranges.items())
            if tp[0] == topic
        }
        return {partition: stats for partition, stats in sums.items() if stats.count}
