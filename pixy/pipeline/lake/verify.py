"""Verify a lake: the log against itself, files against the log, records against checksums.

Everything is computed again in Python; no code that wrote the lake takes part.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake.arrow_store import filesystem_of
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_files import FileContents, examine
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import CHECKPOINTS, DATA
from pixy.pipeline.lake.manifest import BATCH, COMPACTION, DataFile, Manifest
from pixy.pipeline.lake.state import State, sum_by_partition

_MAX_PENDING = 64


@dataclass
class Verdict:
    """Counts of the checked objects, and the problems found."""

    manifests: int = 0
    files: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    """Files that no entry of the log lists; every reader ignores them."""


def verify(
    lake: Lake,
    *,
    records: bool = True,
    topic: str | None = None,
    processes: int = 1,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Verdict:
    """Check a lake.

    Args:
        lake: the lake.
        records: read every record; False checks only the log and the files' sizes.
        topic: check the files of this topic only.
        processes: number of processes that read files.
        on_progress: called with the number of files read and of all files.

    Returns:
        The verdict; problems do not raise.
    """
    verdict = Verdict()
    state = _check_log(lake, verdict)
    live = state.select(topic)
    present = []
    for file in live:
        size = lake.store.size(file.path)
        if size is None:
            verdict.problems.append(f"{lake.path(file.path)} is missing")
        elif size != file.size:
            verdict.problems.append(f"{lake.path(file.path)} has {size} bytes, its manifest says {file.size}")
        else:
            present.append(file)
    verdict.files = len(live)
    if records:
        for done, (file, found) in enumerate(_examined(lake, present, processes), 1):
            _compare(lake, file, found, verdict)
            on_progress(done, len(present))
    known = {*state.files, *state.replaced}
    verdict.unlisted = [
        path
        for path in lake.store.walk(DATA)
        if path not in known and not path.endswith(".crc") and "/_delta_log/" not in path
    ]
    return verdict


# -- the log --------------------------------------------------------------------------------------


def _check_log(lake: Lake, verdict: Verdict) -> State:
    state = State()
    try:
        for manifest in lake.manifests():
            _check_entry(state, manifest, verdict)
            state.apply(manifest)
            verdict.manifests += 1
    except LakeError as error:
        verdict.problems.append(f"{error}; later entries were not checked")
    else:
        _check_checkpoints(lake, state, verdict)
    _check_coverage(state, verdict)
    return state


def _check_entry(state: State, manifest: Manifest, verdict: Verdict) -> None:
    where = f"manifest {manifest.seq}"
    sums = sum_by_partition(manifest.files)
    if manifest.kind == BATCH:
        listed = {(each.topic, each.partition): each.stats for each in manifest.ranges if each.stats.count}
        if sums != listed:
            verdict.problems.append(f"{where}: its ranges are not the sum of its files")
    elif manifest.kind == COMPACTION:
        before = sum_by_partition([state.files[path] for path in manifest.replaces if path in state.files])
        if sums != before:
            verdict.problems.append(f"{where}: the compacted files differ from those they replace")
    else:
        verdict.problems.append(f"{where} has the unknown kind {manifest.kind!r}")


def _check_coverage(state: State, verdict: Verdict) -> None:
    for (topic, partition), ranges in sorted(state.ranges.items()):
        ordered = sorted(ranges, key=lambda each: each.range.start)
        furthest = ordered[0]
        for each in ordered[1:]:
            start, end = each.range.start, furthest.range.end
            if start < end:
                verdict.problems.append(
                    f"offsets {start} to {min(end, each.range.end) - 1} of {topic}/{partition} are there "
                    f"twice: manifests {furthest.seq} and {each.seq}"
                )
            elif start > end and each.job == furthest.job:
                verdict.problems.append(
                    f"offsets {end} to {start - 1} of {topic}/{partition} were skipped between manifests "
                    f"{furthest.seq} and {each.seq}"
                )
            furthest = max(furthest, each, key=lambda one: one.range.end)


def _check_checkpoints(lake: Lake, state: State, verdict: Verdict) -> None:
    """Detect entries missing at the end of the log: the checkpoint of the job that wrote them has more batches."""
    for job in lake.store.names(CHECKPOINTS):
        commits = lake.store.names(f"{CHECKPOINTS}/{job}/spark/commits")
        done = max((int(name) for name in commits if name.isdecimal()), default=-1)
        last = state.jobs.get(job)
        if done > (last.batch if last is not None else -1):
            verdict.problems.append(
                f"job {job} has published batch {done}, the log's last one of it is "
                f"{last.batch if last is not None else 'none'}: entries are missing at the end of the log"
            )


# -- files ----------------------------------------------------------------------------------------


def _examine(path: str, topic: str, filesystem: Any = None) -> FileContents | str:
    try:
        return examine(path, topic, filesystem)
    except LakeError as error:
        return str(error)


def _examined(
    lake: Lake, files: list[DataFile], processes: int
) -> Iterator[tuple[DataFile, FileContents | str]]:
    filesystem = filesystem_of(lake.store)
    if processes <= 1 or len(files) <= 1:
        for file in files:
            yield file, _examine(lake.path(file.path), file.topic, filesystem)
        return
    # Spawn, not fork: a forked child lacks pyarrow's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(files)), mp_context=context) as pool:
        for at in range(0, len(files), _MAX_PENDING):
            some = files[at : at + _MAX_PENDING]
            results = pool.map(
                _examine,
                [lake.path(file.path) for file in some],
                [file.topic for file in some],
                [filesystem] * len(some),
            )
            yield from zip(some, results, strict=True)


def _compare(lake: Lake, file: DataFile, found: FileContents | str, verdict: Verdict) -> None:
    if isinstance(found, str):
        verdict.problems.append(found)
        return
    verdict.records += found.rows
    verdict.bytes += sum(stats.bytes for stats in found.partitions.values())
    verdict.problems += found.faults
    where = lake.path(file.path)
    if found.rows != file.rows:
        verdict.problems.append(f"{where} has {found.rows} records, its manifest says {file.rows}")
    for number in sorted({*file.partitions, *found.partitions}):
        listed, actual = file.partitions.get(number, Stats()), found.partitions.get(number, Stats())
        for name in Stats.__dataclass_fields__:
            if getattr(listed, name) != getattr(actual, name):
                verdict.problems.append(
                    f"{where}: {name} of partition {number} is {_shown(name, actual)}, its manifest says "
                    f"{_shown(name, listed)}"
                )


def _shown(name: str, stats: Stats) -> str:
    value = getattr(stats, name)
    return f"{value:016x}" if "checksum" in name else str(value)
