"""The state of a lake: its log of manifests, folded from the first entry to the last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pixy.pipeline.errors import ManifestError
from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.manifest import BATCH, DataFile, Manifest, Range
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Archived:
    """A range of a partition, with the entry of the log that published it.

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
class State:
    """The folded log.

    The live files are those that entries added, less those that compactions replaced.

    Attributes:
        seq: number of the last entry; -1 for an empty lake.
        digest: digest of the last entry.
        files: live files by path, in the order of publishing.
        ranges: archived ranges of each partition, in the order of publishing.
        jobs: the last batch of each job.
        replaced: files that a compaction replaced, and when (milliseconds of the epoch).
    """

    seq: int = -1
    digest: str = ""
    files: dict[str, DataFile] = field(default_factory=dict)
    ranges: dict[TopicPartition, list[Archived]] = field(default_factory=dict)
    jobs: dict[str, Manifest] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)

    def apply(self, manifest: Manifest) -> None:
        """Add the next entry.

        Raises:
            ManifestError: it replaces a file that is not live.
        """
        for path in manifest.replaces:
            if self.files.pop(path, None) is None:
                raise ManifestError(
                    f"manifest {manifest.seq} replaces {path}, which no entry before it has added"
                )
            self.replaced[path] = manifest.published
        for file in manifest.files:
            self.files[file.path] = file
        if manifest.kind == BATCH:
            self.jobs[manifest.job] = manifest
            for each in manifest.ranges:
                self.ranges.setdefault((each.topic, each.partition), []).append(
                    Archived(each, manifest.published, manifest.job, manifest.batch, manifest.seq)
                )
        self.seq, self.digest = manifest.seq, manifest.digest

    def topics(self) -> list[str]:
        """Sorted names of the archived topics."""
        return sorted({topic for topic, _ in self.ranges})

    def select(self, topic: str | None = None) -> list[DataFile]:
        """Live files of one topic, or of all."""
        return [file for file in self.files.values() if topic in (None, file.topic)]

    def partition_stats(self, topic: str) -> dict[int, Stats]:
        """Sum the live files' stats of each partition of a topic."""
        found: dict[int, list[Stats]] = {}
        for file in self.select(topic):
            for number, stats in file.partitions.items():
                found.setdefault(number, []).append(stats)
        return {number: total(stats) for number, stats in sorted(found.items())}


def sum_by_partition(files: Iterable[DataFile]) -> dict[TopicPartition, Stats]:
    """Sum the files' stats by partition."""
    found: dict[TopicPartition, Stats] = {}
    for file in files:
        for number, stats in file.partitions.items():
            partition = (file.topic, number)
            found[partition] = found.get(partition, Stats()) + stats
    return found
