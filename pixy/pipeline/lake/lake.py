"""The lake's layout and its log. Reading needs neither Spark nor Java.

A lake holds the topics of one Kafka cluster::

    LAKE/_lake.json                                   what it is: format, version, id, cluster
    LAKE/_manifests/000000000000.json ...             the log: what was published, in order
    LAKE/_checkpoints/<job>/                          where a job's next start goes on
    LAKE/_staging/                                    not published; ignored by every reader
    LAKE/data/topic=<topic>/date=<day>/<...>.parquet  records; only those a manifest lists count

The log is the truth. Its entries are never changed; each carries its own digest and the one before.
The live files are those that entries added, less those that compactions replaced.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from pixy.pipeline.errors import LakeError, ManifestError, Published
from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.manifest import (
    BATCH,
    COMPACTION,
    FORMAT,
    VERSION,
    DataFile,
    Manifest,
    Range,
    decode,
    encode,
    parse_object,
)
from pixy.pipeline.lake.store import LocalStore, Store, is_local, local_path

IDENTITY = "_lake.json"
MANIFESTS = "_manifests"
CHECKPOINTS = "_checkpoints"
STAGING = "_staging"
DATA = "data"

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
    "size",
    "hash",
)
"""Of the Parquet files; see docs/pipeline.md. ``hash`` is the content hash, signed 64 bit."""

_PUBLISH_TRIES = 20


@dataclass(frozen=True, slots=True)
class Identity:
    """``_lake.json``; ``cluster_id`` is Kafka's own id of the cluster."""

    id: str
    cluster: str
    cluster_id: str
    created: int


@dataclass(frozen=True, slots=True)
class Archived:
    """A range of a partition and the entry that published it."""

    range: Range
    published: int
    job: str
    batch: int
    seq: int


@dataclass(slots=True)
class State:
    """The log, folded.

    Attributes:
        seq: the last entry; -1 for an empty lake.
        digest: the last entry's.
        files: live files by path, in the order of publishing.
        ranges: by (topic, partition), in the order of publishing.
        jobs: the last batch of each job.
        replaced: files that a compaction replaced, and when (milliseconds).
    """

    seq: int = -1
    digest: str = ""
    files: dict[str, DataFile] = field(default_factory=dict)
    ranges: dict[tuple[str, int], list[Archived]] = field(default_factory=dict)
    jobs: dict[str, Manifest] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)

    def apply(self, manifest: Manifest) -> None:
        """Add the next entry."""
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
        """Names of the topics that were archived, sorted."""
        return sorted({topic for topic, _ in self.ranges})

    def select(self, topic: str | None = None) -> list[DataFile]:
        """Live files, of one topic or of all."""
        return [file for file in self.files.values() if topic in (None, file.topic)]

    def partition_stats(self, topic: str) -> dict[int, Stats]:
        """What the lake holds of each partition of a topic, by the files' entries."""
        found: dict[int, list[Stats]] = {}
        for file in self.select(topic):
            for number, stats in file.partitions.items():
                found.setdefault(number, []).append(stats)
        return {number: total(stats) for number, stats in sorted(found.items())}


class Lake:
    """A lake that exists; see :meth:`open` and :meth:`open_or_create`."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self.store = store
        self.identity = identity

    @classmethod
    def open(cls, uri: str, store: Store | None = None) -> Lake:
        """Open a lake for reading.

        Args:
            uri: a folder, or with ``store`` anything that the store can read.

        Raises:
            LakeError: there is none, or one of an unknown version.
        """
        store = store or local_store(uri)
        where = f"{store.root}/{IDENTITY}"
        try:
            document = parse_object(store.read(IDENTITY), where)
        except FileNotFoundError:
            raise LakeError(f"{store.root} is not a lake: it has no {IDENTITY}") from None
        try:
            identity = Identity(
                str(document["id"]),
                str(document["cluster"]),
                str(document["cluster_id"]),
                int(document["created"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LakeError(f"{where} lacks or misstates {error}") from error
        return cls(store, identity)

    @classmethod
    def open_or_create(cls, uri: str, cluster: str, cluster_id: str, store: Store | None = None) -> Lake:
        """Open a lake for archiving ``cluster`` into it; raises LakeError if it is another's."""
        store = store or local_store(uri)
        if store.size(IDENTITY) is None:
            _create(store, cluster, cluster_id)
        lake = cls.open(uri, store)
        if cluster_id and lake.identity.cluster_id and cluster_id != lake.identity.cluster_id:
            raise LakeError(
                f"{store.root} is the lake of Kafka cluster {lake.identity.cluster_id} "
                f"({lake.identity.cluster}); this is cluster {cluster_id} ({cluster}): one lake "
                "holds one cluster, give another --lake"
            )
        return lake

    # -- reading ----------------------------------------------------------------------------------

    def sequence(self) -> list[int]:
        """The numbers of the entries, sorted; raises ManifestError if one is missing."""
        numbers = sorted(
            int(name.removesuffix(".json"))
            for name in self.store.names(MANIFESTS)
            if name.endswith(".json") and name.removesuffix(".json").isdecimal()
        )
        for wanted, found in enumerate(numbers):
            if wanted != found:
                raise ManifestError(
                    f"{self.store.root}/{manifest_path(wanted)} is missing, while "
                    f"{PurePosixPath(manifest_path(found)).name} is there"
                )
        return numbers

    def manifests(self) -> Iterator[Manifest]:
        """All entries in order, each checked against its digest and the one before.

        Raises:
            ManifestError: one is missing, altered or out of the chain.
            UnknownVersion: one is of another version.
        """
        previous = ""
        for seq in self.sequence():
            manifest = self.manifest(seq)
            if manifest.previous != previous:
                raise ManifestError(
                    f"{self.store.root}/{manifest_path(seq)} does not continue the entry before "
                    "it: one of the two was exchanged"
                )
            previous = manifest.digest
            yield manifest

    def manifest(self, seq: int) -> Manifest:
        """One entry, checked by itself."""
        where = f"{self.store.root}/{manifest_path(seq)}"
        try:
            manifest = decode(self.store.read(manifest_path(seq)), where)
        except FileNotFoundError:
            raise ManifestError(f"{where} is missing") from None
        if manifest.seq != seq:
            raise ManifestError(f"{where} is entry {manifest.seq}, not {seq}: it was moved")
        return manifest

    def state(self) -> State:
        """The log, folded."""
        state = State()
        for manifest in self.manifests():
            state.apply(manifest)
        return state

    def path(self, relative: str) -> str:
        """Where a file of the lake is, for Spark and pyarrow."""
        return f"{self.store.root}/{relative}"

    # -- writing ----------------------------------------------------------------------------------

    def publish(
        self, state: State, draft: Manifest, check: Callable[[State], None] | None = None
    ) -> Manifest:
        """Append an entry and apply it to ``state``.

        Another writer of the same lake may be faster: its entries are applied to ``state``, ``check``
        is asked whether the draft still holds (it raises if not), and the next number is tried.
        """
        for _ in range(_PUBLISH_TRIES):
            self.catch_up(state)
            if check is not None:
                check(state)
            data, digest = encode(replace(draft, seq=state.seq + 1, previous=state.digest))
            try:
                self.store.publish(manifest_path(state.seq + 1), data)
            except Published:
                continue
            made = replace(draft, seq=state.seq + 1, previous=state.digest, digest=digest)
            state.apply(made)
            return made
        raise LakeError(
            f"{self.store.root}: {_PUBLISH_TRIES} times another writer was faster: too many write here"
        )

    def catch_up(self, state: State) -> None:
        """Apply the entries that others have published since."""
        for seq in self.sequence()[state.seq + 1 :]:
            manifest = self.manifest(seq)
            if manifest.previous != state.digest:
                raise ManifestError(
                    f"{self.store.root}/{manifest_path(seq)} does not continue the entry before it"
                )
            state.apply(manifest)


def manifest_path(seq: int) -> str:
    """Where an entry of the log is, relative to the lake."""
    return f"{MANIFESTS}/{seq:012d}.json"


def data_folder(topic: str, date: str) -> str:
    """Where a topic's records of a day are, relative to the lake."""
    return f"{DATA}/topic={topic}/date={date}"


def local_store(uri: str) -> LocalStore:
    """The store of a lake on this machine; raises LakeError for another place."""
    if not is_local(uri):
        raise LakeError(f"{uri} is not on this machine: only a job with Spark can open it")
    return LocalStore(local_path(uri))


def now_ms() -> int:
    """The time of the epoch in milliseconds."""
    return time.time_ns() // 1_000_000


def _create(store: Store, cluster: str, cluster_id: str) -> None:
    others = [name for name in store.names("") if not name.startswith(".")]
    if others:
        raise LakeError(f"{store.root} is not a lake and not empty (there is {others[0]}): give a new folder")
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "id": uuid.uuid4().hex,
        "cluster": cluster,
        "cluster_id": cluster_id,
        "created": now_ms(),
    }
    try:
        store.publish(IDENTITY, (json.dumps(document, indent=1) + "\n").encode())
    except Published:
        pass  # made by a job that started at the same time


def sum_by_partition(files: Iterable[DataFile]) -> dict[tuple[str, int], Stats]:
    """The sum of the files' entries by (topic, partition)."""
    found: dict[tuple[str, int], Stats] = {}
    for file in files:
        for number, stats in file.partitions.items():
            key = (file.topic, number)
            found[key] = found.get(key, Stats()) + stats
    return found


__all__ = [
    "BATCH",
    "CHECKPOINTS",
    "COLUMNS",
    "COMPACTION",
    "DATA",
    "IDENTITY",
    "MANIFESTS",
    "STAGING",
    "Archived",
    "DataFile",
    "Identity",
    "Lake",
    "Manifest",
    "Range",
    "State",
    "Stats",
    "data_folder",
    "local_store",
    "manifest_path",
    "now_ms",
    "sum_by_partition",
]
