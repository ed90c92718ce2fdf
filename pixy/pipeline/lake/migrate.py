"""Migrate a lake of format 1, with its own log of manifests, to the Delta table; no file of records is rewritten.

Each manifest becomes a commit that adds and removes the same files, with the same ranges, counts and checksums. A kill may
come at any point: the table knows the last entry that it has, and the next run continues after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pixy.pipeline.errors import LakeError, ManifestError
from pixy.pipeline.lake.data_table import DataFile, DataTable
from pixy.pipeline.lake.entry import BATCH, OPTIMIZATION, Entry, Range
from pixy.pipeline.lake.lake import Lake, properties
from pixy.pipeline.lake.layout import DATA, LOG, OLD_IDENTITY, OLD_LOG
from pixy.pipeline.lake.locations import Location
from pixy.pipeline.lake.manifest_v1 import Manifest, decode, parse_object
from pixy.pipeline.lake.state import Epoch

UNRECORDED: Final = "not archived; format 1 did not record why"


@dataclass(slots=True)
class Migrated:
    """Result of a migration."""

    entries: int = 0
    files: int = 0
    records: int = 0


def migrate(
    uri: str, options: dict[str, str] | None = None, on_progress: Callable[[int, int], None] = lambda *_: None
) -> Migrated:
    """Migrate a lake, or continue a migration.

    Args:
        uri: folder or URI of the lake.
        options: of delta-rs for the store.
        on_progress: called with the number of migrated entries and of all.

    Raises:
        LakeError: it is no lake of format 1, or its log is damaged; the old lake stays as it is.
    """
    location = Location(uri, options)
    if location.size(OLD_IDENTITY) is None:
        raise LakeError(f"{location.root} is not a lake of format 1: it has no {OLD_IDENTITY}")
    where = location.at(OLD_IDENTITY)
    identity = parse_object(location.read(OLD_IDENTITY), where)
    manifests = [path for path, _ in location.files(OLD_LOG) if path.endswith(".json")]
    _set_old_table_aside(location)
    try:
        configuration = properties(identity["cluster"], identity["cluster_id"], identity["id"])
    except KeyError as error:
        raise LakeError(f"{where} lacks {error}") from error
    description = f"topics of Kafka cluster {identity['cluster']}, archived by kafka-pixy"
    lake = Lake(location, DataTable.create(location, description, configuration))
    ledger = lake.ledger()
    done = Migrated()
    live: dict[str, DataFile] = {}
    ends: dict[Epoch, int] = {}
    for manifest in _chain(location, manifests):
        removed = [live.pop(path) for path in manifest.replaces if path in live]
        if len(removed) != len(manifest.replaces):
            raise ManifestError(f"manifest {manifest.seq} replaces a file that no entry before it has added")
        live.update((file.path, file) for file in manifest.files)
        entry = _entry(manifest, ends)
        if manifest.seq > ledger.seq:
            lake.publish(ledger, entry, manifest.files, removed, changes=manifest.kind == BATCH)
        done.entries += 1
        on_progress(done.entries, len(manifests))
    done.files, done.records = len(live), sum(file.rows for file in live.values())
    lake.follow()
    location.move(OLD_IDENTITY, f"{OLD_LOG}/{OLD_IDENTITY}")
    return done


def _chain(location: Location, paths: list[str]) -> Iterator[Manifest]:
    previous = ""
    for seq, path in enumerate(paths):
        where = location.at(path)
        manifest = decode(location.read(path), where)
        if manifest.seq != seq or manifest.previous != previous:
            raise ManifestError(
                f"{where} does not continue the entry before it: entries are missing or exchanged"
            )
        previous = manifest.digest
        yield manifest


def _entry(manifest: Manifest, ends: dict[Epoch, int]) -> Entry:
    """Convert a manifest; list the offsets that its job passed over, which format 1 did not."""
    if manifest.kind != BATCH:
        return Entry(OPTIMIZATION, published=manifest.published)
    ranges: list[Range] = []
    for each in manifest.ranges:
        epoch = (each.topic, each.topic_id, each.partition)
        end = ends.get(epoch, 0)
        if end < each.start:
            ranges.append(Range(*epoch, end, each.start, skipped=UNRECORDED))
        ends[epoch] = max(end, each.end)
        ranges.append(each)
    return Entry(BATCH, manifest.job, manifest.batch, manifest.isolation, manifest.published, tuple(ranges))


def _set_old_table_aside(location: Location) -> None:
    """Move the log of the table that ``archive --format delta`` of format 1 kept; its files stay."""
    log = f"{DATA}/{LOG}"
    table = DataTable.open(location) if location.files(log) else None
    if table is None or "kafka-pixy.version" in table.configuration:
        return
    if not location.local:
        raise LakeError(f"{location.at(log)} is the log of the lake's old Delta table: move it away first")
    target = Path(location.at(f"{OLD_LOG}/{LOG}"))
    Path(location.at(log)).rename(target)
