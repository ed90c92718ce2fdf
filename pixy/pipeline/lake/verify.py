"""Is the lake what its log says? Log against itself, files against the log, records against checksums.

Everything is computed anew in Python; nothing of what wrote the lake takes part.
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
from pixy.pipeline.lake.data_files import Found, examine
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import CHECKPOINTS, DATA
from pixy.pipeline.lake.manifest import BATCH, COMPACTION, DataFile, Manifest
from pixy.pipeline.lake.state import State, sum_by_partition

_MAX_PENDING = 64


@dataclass
class Verdict:
    """What was looked at and what is wrong."""

    manifests: int = 0
    files: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    """Files that no entry of the log lists: leftovers, ignored by every reader."""


def verify(
    lake: Lake,
    *,
    records: bool = True,
    topic: str | None = None,
    processes: int = 1,
    told: Callable[[int, int], None] = lambda *_: None,
) -> Verdict:
    """Check a lake.

    Args:
        records: read every record too; otherwise the log, and the files' sizes.
        topic: look at the files of one topic only.
        processes: how many read files at a time.
        told: called with files done and files in all.
    """
    verdict = Verdict()
    state = _log(lake, verdict)
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
            continue
    verdict.files = len(live)
    if records:
        for done, (file, found) in enumerate(_examined(lake, present, processes), 1):
            _compare(lake, file, found, verdict)
            told(done, len(present))
    known = {*state.files, *state.replaced}
    verdict.unlisted = [
        path
        for path in lake.store.walk(DATA)
        if path not in known and not path.endswith(".crc") and "/_delta_log/" not in path
    ]
    return verdict


# -- the log --------------------------------------------------------------------------------------


def _log(lake: Lake, verdict: Verdict) -> State:
    state = State()
    try:
        for manifest in lake.manifests():
            _entry(state, manifest, verdict)
            state.apply(manifest)
            verdict.manifests += 1
    except LakeError as error:
        verdict.problems.append(f"{error}; what comes after it was not looked at")
    else:
        _checkpoints(lake, state, verdict)
    _coverage(state, verdict)
    return state


def _entry(state: State, manifest: Manifest, verdict: Verdict) -> None:
    where = f"manifest {manifest.seq}"
    sums = sum_by_partition(manifest.files)
    if manifest.kind == BATCH:
        said = {(each.topic, each.partition): each.stats for each in manifest.ranges if each.stats.count}
        if sums != said:
            verdict.problems.append(f"{where}: its ranges are not the sum of its files")
    elif manifest.kind == COMPACTION:
        before = sum_by_partition([state.files[path] for path in manifest.replaces if path in state.files])
        if sums != before:
            verdict.problems.append(f"{where}: the compacted files do not hold what they replace")
    else:
        verdict.problems.append(f"{where} is of unknown kind {manifest.kind!r}")


def _coverage(state: State, verdict: Verdict) -> None:
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


def _checkpoints(lake: Lake, state: State, verdict: Verdict) -> None:
    """An entry cut off at the log's end is betrayed by the checkpoint of the job that wrote it."""
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


def _examine(path: str, topic: str, filesystem: Any = None) -> Found | str:
    try:
        return examine(path, topic, filesystem)
    except LakeError as error:
        return str(error)


def _examined(lake: Lake, files: list[DataFile], processes: int) -> Iterator[tuple[DataFile, Found | str]]:
    filesystem = filesystem_of(lake.store)
    if processes <= 1 or len(files) <= 1:
        for file in files:
            yield file, _examine(lake.path(file.path), file.topic, filesystem)
        return
    # Not forked: pyarrow's threads would not be in the child.
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


def _compare(lake: Lake, file: DataFile, found: Found | str, verdict: Verdict) -> None:
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
        said, is_ = file.partitions.get(number, Stats()), found.partitions.get(number, Stats())
        for name in Stats.__dataclass_fields__:
            if getattr(said, name) != getattr(is_, name):
                verdict.problems.append(
                    f"{where}: {name} of partition {number} is {_shown(name, is_)}, its manifest says "
                    f"{_shown(name, said)}"
                )


def _shown(name: str, stats: Stats) -> str:
    value = getattr(stats, name)
    return f"{value:016x}" if "checksum" in name else str(value)
