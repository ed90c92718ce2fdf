"""Verify a lake: its history against itself, files against the table, records against checksums.

Everything is computed again in Python; no code that wrote the lake takes part. A file is read by one task, on this
machine or on Spark's executors, and its result is a few numbers; so memory does not grow with the lake.
"""

from __future__ import annotations

import multiprocessing
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_files import FileContents, examine
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import DATA, LOG
from pixy.pipeline.lake.locations import Location
from pixy.pipeline.lake.removal import COMPARED, Segment, counts, segments
from pixy.pipeline.lake.state import Epoch, State

_MAX_PENDING: Final = 64
_MAX_RANGES: Final = 5
"""Ranges of a partition that are named."""


@dataclass(frozen=True, slots=True)
class FileCheck:
    """One file to read; small enough to be sent to an executor.

    Attributes:
        root: the lake.
        options: of delta-rs for the store.
        path: relative to the lake.
        topic: the topic that every record must be of.
        cuts: offsets at which to cut the sums of ``partition``; empty to sum all partitions whole.
        partition: the partition to cut.
    """

    root: str
    options: tuple[tuple[str, str], ...]
    path: str
    topic: str
    cuts: tuple[int, ...] = ()
    partition: int = -1

    def run(self) -> FileContents | str:
        """Read the file; return what it holds, or why it cannot be read."""
        location = Location(self.root, dict(self.options))
        try:
            return examine(
                location.for_arrow(self.path),
                self.topic,
                location.filesystem,
                (
                    lambda partition, offset: (
                        bisect_right(self.cuts, offset) - 1 if partition == self.partition else -1
                    )
                )
                if self.cuts
                else None,
            )
        except LakeError as error:
            return str(error)


Runner = Callable[[Sequence[FileCheck]], Iterable[FileContents | str]]
"""Runs checks, in their order."""


def in_processes(count: int) -> Runner:
    """Return a runner that uses processes of this machine.

    Args:
        count: how many.
    """

    def run(checks: Sequence[FileCheck]) -> Iterator[FileContents | str]:
        if count <= 1 or len(checks) <= 1:
            yield from (each.run() for each in checks)
            return
        # Spawn, not fork: a forked child lacks pyarrow's threads.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(count, len(checks)), mp_context=context) as pool:
            for at in range(0, len(checks), _MAX_PENDING):
                yield from pool.map(FileCheck.run, checks[at : at + _MAX_PENDING])

    return run


@dataclass
class Verdict:
    """Counts of the checked objects, and the problems found."""

    entries: int = 0
    files: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    """Files below ``data`` that the table does not list: replaced, or left by a killed job."""
    removed: dict[str, int] = field(default_factory=dict)
    """Records that were archived and are gone on purpose, by reason: ``expired``, ``erased``."""


def verify(
    lake: Lake,
    *,
    records: bool = True,
    topic: str | None = None,
    run: Runner | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Verdict:
    """Check a lake.

    Args:
        lake: the lake.
        records: read every record; False checks only the history and the files' sizes.
        topic: check the files of this topic only.
        run: reads the files; default: this process.
        on_progress: called with the number of files read and of all files.

    Returns:
        The verdict; problems do not raise.
    """
    verdict = Verdict()
    _check_history(lake, verdict)
    try:
        state = lake.state()
    except LakeError as error:
        verdict.problems.append(f"{error}; the records were not compared")
        return verdict
    _check_coverage(state, verdict)
    verdict.removed = counts(
        ranges for epoch, ranges in state.all_removed.items() if topic in (None, epoch[0])
    )
    live = [file for file in state.all_files.values() if topic in (None, file.topic)]
    present = [file for file in live if _is_present(lake, file, verdict)]
    verdict.files = len(live)
    if records:
        check = _RecordCheck(lake, state, verdict, run or in_processes(1), on_progress)
        check.run(present, topic)
    verdict.unlisted = [
        path
        for path, _ in lake.location.files(DATA)
        if path not in state.all_files and not path.endswith(".crc") and not path.startswith(f"{DATA}/{LOG}/")
    ]
    return verdict


def _check_history(lake: Lake, verdict: Verdict) -> None:
    """Check the chain of digests, in the table of ranges and in Delta's log where it still has the entries."""
    digest, seq = "", -1
    digests: dict[int, str] = {}
    try:
        for entry in lake.history():
            if entry.seq != seq + 1 or entry.previous != digest:
                verdict.problems.append(
                    f"entry {entry.seq} does not continue entry {seq}: one of the two was exchanged"
                )
            seq, digest = entry.seq, entry.digest
            digests[seq] = digest
            verdict.entries += 1
        for version, entry in lake.entries(lake.table.oldest_commit() - 1):
            if digests.get(entry.seq) != entry.digest:
                verdict.problems.append(
                    f"version {version} of {lake.table.uri} has another entry {entry.seq} than the table of ranges"
                )
    except LakeError as error:
        verdict.problems.append(f"{error}; later entries were not checked")


def _check_coverage(state: State, verdict: Verdict) -> None:
    for (topic, _, partition), ranges in sorted(state.all_ranges.items()):
        ordered = sorted(ranges, key=lambda each: each.range.start)
        furthest = ordered[0]
        for each in ordered[1:]:
            start, end = each.range.start, furthest.range.end
            if start < end:
                verdict.problems.append(
                    f"offsets {start} to {min(end, each.range.end) - 1} of {topic}/{partition} are there "
                    f"twice: entries {furthest.seq} and {each.seq}"
                )
            elif start > end:
                verdict.problems.append(
                    f"offsets {end} to {start - 1} of {topic}/{partition} are neither archived nor skipped, between "
                    f"entries {furthest.seq} and {each.seq}"
                )
            furthest = max(furthest, each, key=lambda one: one.range.end)


def _is_present(lake: Lake, file: DataFile, verdict: Verdict) -> bool:
    size = lake.size(file.path)
    if size == file.size:
        return True
    verdict.problems.append(
        f"{lake.path(file.path)} is missing"
        if size is None
        else f"{lake.path(file.path)} has {size} bytes, the table says {file.size}"
    )
    return False


@dataclass
class _RecordCheck:
    """Compare the records of the files with the ranges of the history."""

    lake: Lake
    state: State
    verdict: Verdict
    runner: Runner
    on_progress: Callable[[int, int], None]

    def run(self, files: list[DataFile], topic: str | None) -> None:
        found: dict[Epoch, Stats] = {}
        for done, (file, contents) in enumerate(self._contents(files), 1):
            self.on_progress(done, len(files))
            if isinstance(contents, str):
                self.verdict.problems.append(contents)
                continue
            self._count(file, contents)
            for number, stats in contents.partitions.items():
                epoch = (file.topic, self.state.id_of(file), number)
                found[epoch] = found.get(epoch, Stats()) + stats
        state = self.state
        for epoch in sorted({*found, *state.all_ranges}):
            if topic in (None, epoch[0]):
                ranges, removed = state.all_ranges.get(epoch, []), state.all_removed.get(epoch, [])
                listed = Segment(0, 0, ranges, removed)
                if not listed.fits(found.get(epoch, Stats())):
                    self._tell(epoch, files, found.get(epoch, Stats()), listed)

    def _contents(
        self, files: Sequence[DataFile], partition: int = -1, cuts: tuple[int, ...] = ()
    ) -> Iterator[tuple[DataFile, FileContents | str]]:
        location = self.lake.location
        options = tuple(location.options.items())
        checks = [FileCheck(location.root, options, file.path, file.topic, cuts, partition) for file in files]
        return zip(files, self.runner(checks), strict=True)

    def _count(self, file: DataFile, contents: FileContents) -> None:
        verdict, where = self.verdict, self.lake.path(file.path)
        verdict.records += contents.rows
        verdict.bytes += sum(stats.bytes for stats in contents.partitions.values())
        verdict.problems += contents.faults
        if contents.rows != file.rows:
            verdict.problems.append(f"{where} has {contents.rows} records, the table says {file.rows}")

    def _tell(self, epoch: Epoch, files: list[DataFile], found: Stats, listed: Segment) -> None:
        """Say how a partition differs, and in which of its ranges: read its files once more, cut by range."""
        topic, _, partition = epoch
        expected = listed.expected
        for name in Stats.__dataclass_fields__ if not listed.removed else COMPARED:
            if getattr(expected, name) != getattr(found, name):
                self.verdict.problems.append(
                    f"{name} of {topic}/{partition} is {_shown(name, found)}, the entries say {_shown(name, expected)}"
                )
        parts = segments(listed.archived, listed.removed)
        if not parts:
            return
        cuts = tuple(each.start for each in parts)
        sums: dict[int, Stats] = {}
        some = [
            file
            for file in files
            if file.topic == topic and self.state.id_of(file) == epoch[1] and file.may_hold(partition)
        ]
        for _, contents in self._contents(some, partition, cuts):
            if not isinstance(contents, str):
                for number, stats in contents.cut.items():
                    sums[number] = sums.get(number, Stats()) + stats
        odd = [
            (each, sums.get(number, Stats()))
            for number, each in enumerate(parts)
            if not each.fits(sums.get(number, Stats()))
        ]
        for each, stats in odd[:_MAX_RANGES]:
            self.verdict.problems.append(_range_problem(f"{topic}/{partition}", each, stats))
        if len(odd) > _MAX_RANGES:
            self.verdict.problems.append(
                f"{len(odd) - _MAX_RANGES} more ranges of {topic}/{partition} differ"
            )


def _range_problem(where: str, each: Segment, found: Stats) -> str:
    seqs = sorted({one.seq for one in (*each.archived, *each.removed)})
    said = f"entry {seqs[0]} says" if len(seqs) == 1 else f"entries {seqs[0]} to {seqs[-1]} say"
    return (
        f"offsets {each.start} to {each.end - 1} of {where} have {found.count} records "
        f"with checksum {found.checksum:016x}, {said} {each.expected.count} with {each.expected.checksum:016x}"
    )


def _shown(name: str, stats: Stats) -> str:
    value = getattr(stats, name)
    return f"{value:016x}" if "checksum" in name else str(value)
