"""A lake and its log: open it, read its manifests, append one. Needs neither Spark nor Java.

The log is the truth. Its entries are never changed; each carries its own digest and that of the entry
before it. :mod:`pixy.pipeline.lake.layout` shows the folders.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from pixy.pipeline.errors import LakeError, ManifestError, Published
from pixy.pipeline.lake.layout import IDENTITY, MANIFESTS, manifest_path
from pixy.pipeline.lake.manifest import FORMAT, VERSION, Manifest, decode, encode, parse_object
from pixy.pipeline.lake.state import State
from pixy.pipeline.lake.store import LocalStore, Store, is_local, local_path

_PUBLISH_TRIES = 20


@dataclass(frozen=True, slots=True)
class Identity:
    """Content of ``_lake.json``.

    Attributes:
        id: random, made with the lake.
        cluster: the cluster's name in the configuration.
        cluster_id: Kafka's own id of the cluster.
        created: milliseconds of the epoch.
    """

    id: str
    cluster: str
    cluster_id: str
    created: int


class Lake:
    """An existing lake; get one with :meth:`open` or :meth:`open_or_create`."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self.store = store
        self.identity = identity

    @classmethod
    def open(cls, uri: str, store: Store | None = None) -> Lake:
        """Open a lake for reading.

        Args:
            uri: a folder of this machine; with ``store``, any name of the lake.
            store: reads the lake's files; default: the local folder.

        Raises:
            LakeError: there is no lake.
            UnknownVersion: the lake has an unknown format version.
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
        """Open a lake to archive a cluster into it; create it in an empty folder.

        Args:
            uri: a folder of this machine; with ``store``, any name of the lake.
            cluster: the cluster's name in the configuration.
            cluster_id: Kafka's own id of the cluster.
            store: reads and writes the lake's files; default: the local folder.

        Raises:
            LakeError: it is the lake of another cluster, or the folder holds something else.
        """
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
        """Sorted numbers of the entries; raises ManifestError if one is missing."""
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
        """Read all entries in order; check each against its digest and the entry before it.

        Raises:
            ManifestError: an entry is missing, altered or breaks the chain.
            UnknownVersion: an entry has another format version.
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
        """Read one entry; check its digest and its number, not the chain."""
        where = f"{self.store.root}/{manifest_path(seq)}"
        try:
            manifest = decode(self.store.read(manifest_path(seq)), where)
        except FileNotFoundError:
            raise ManifestError(f"{where} is missing") from None
        if manifest.seq != seq:
            raise ManifestError(f"{where} is entry {manifest.seq}, not {seq}: it was moved")
        return manifest

    def state(self) -> State:
        """Read and fold the whole log."""
        state = State()
        for manifest in self.manifests():
            state.apply(manifest)
        return state

    def path(self, relative: str) -> str:
        """Turn a path relative to the lake into one that Spark and pyarrow open."""
        return f"{self.store.root}/{relative}"

    # -- writing ----------------------------------------------------------------------------------

    def publish(
        self, state: State, draft: Manifest, check: Callable[[State], None] | None = None
    ) -> Manifest:
        """Append an entry to the log and apply it to ``state``.

        If another writer of the lake takes the number first, apply its entries to ``state``, call
        ``check`` again and try the next number.

        Args:
            state: the folded log; kept up to date.
            draft: the entry; its ``seq``, ``previous`` and ``digest`` are filled in here.
            check: raises if the draft no longer holds in the state it is given.

        Returns:
            The published entry.

        Raises:
            LakeError: other writers were faster each time.
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
            f"{self.store.root}: another writer was faster {_PUBLISH_TRIES} times: too many jobs write to this lake"
        )

    def catch_up(self, state: State) -> None:
        """Apply the entries that other writers have published since."""
        for seq in self.sequence()[state.seq + 1 :]:
            manifest = self.manifest(seq)
            if manifest.previous != state.digest:
                raise ManifestError(
                    f"{self.store.root}/{manifest_path(seq)} does not continue the entry before it"
                )
            state.apply(manifest)


def local_store(uri: str) -> LocalStore:
    """Store of a lake on this machine; raises LakeError for a lake elsewhere."""
    if not is_local(uri):
        raise LakeError(f"{uri} is not on this machine: only a job with Spark can open it")
    return LocalStore(local_path(uri))


def now_ms() -> int:
    """Current time in milliseconds of the epoch."""
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
    with contextlib.suppress(Published):  # a job that started at the same time has created it
        store.publish(IDENTITY, (json.dumps(document, indent=1) + "\n").encode())
