"""A lake: open it, read its history, publish to it. Needs neither Spark nor Java.

The log of the table of records is the truth. A commit carries an entry, chained to the one before it by digests; the
table of ranges repeats the entries, and outlives the log. :mod:`pixy.pipeline.lake.layout` shows the folders.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from pixy.pipeline.errors import LakeError, ManifestError, PipelineError, Published, UnknownVersion
from pixy.pipeline.lake.data_table import DataFile, DataTable
from pixy.pipeline.lake.entry import VERSION, Entry, decode, digest_of, encode
from pixy.pipeline.lake.layout import DATA, JOBS, OLD_IDENTITY, RANGES
from pixy.pipeline.lake.locations import Location
from pixy.pipeline.lake.locking import exclusive_lock
from pixy.pipeline.lake.ranges_table import RangesTable, entries_of
from pixy.pipeline.lake.state import Ledger, State

FOLLOW_EVERY: Final = 100
"""Entries that the table of ranges may lack before a writer adds them."""
REPLACING: Final = "optimize"
"""Name of the lock of processes that replace files."""
_PUBLISH_TRIES: Final = 20
_PREFIX: Final = "kafka-pixy."

AnyLedger = TypeVar("AnyLedger", bound=Ledger)


@dataclass(frozen=True, slots=True)
class Identity:
    """The lake's identity, kept in the properties of the table of records.

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
    """An existing lake; get one with :meth:`open` or :meth:`open_or_create`.

    Attributes:
        location: the folder.
        table: the table of records.
        ranges: the table of ranges.
    """

    def __init__(self, location: Location, table: DataTable) -> None:
        self.location = location
        self.table = table
        self.ranges = RangesTable(location.at(RANGES), location.options)
        found = table.configuration
        if found.get(f"{_PREFIX}version") != str(VERSION):
            raise UnknownVersion(
                f"{table.uri} is the Delta table of another program"
                if f"{_PREFIX}version" not in found
                else f"{location.root} has format version {found[f'{_PREFIX}version']!r}; this program knows version "
                f"{VERSION}"
            )
        self.identity = Identity(
            found.get(f"{_PREFIX}lake") or table.id,
            found.get(f"{_PREFIX}cluster", ""),
            found.get(f"{_PREFIX}cluster_id", ""),
            table.created,
        )
        self._app = f"kafka-pixy-lake-{self.identity.id}"
        self._followed = -1
        """The version of the table of records up to which the table of ranges is known to be complete."""

    @classmethod
    def open(cls, uri: str, options: dict[str, str] | None = None) -> Lake:
        """Open a lake.

        Args:
            uri: a folder of this machine, or a URI of a store.
            options: of delta-rs for the store.

        Raises:
            LakeError: there is no lake.
            UnknownVersion: the lake has an unknown format version.
        """
        location = Location(uri, options)
        refuse_old(location)
        table = DataTable.open(location)
        if table is None:
            missing = location.local and not Path(location.root).exists()
            why = "there is no such folder" if missing else f"it has no Delta table {DATA}"
            raise LakeError(f"{location.root} is not a lake: {why}")
        return cls(location, table)

    @classmethod
    def open_or_create(
        cls, uri: str, cluster: str, cluster_id: str, options: dict[str, str] | None = None
    ) -> Lake:
        """Open a lake to archive a cluster into it; create it in an empty folder.

        Args:
            uri: a folder of this machine, or a URI of a store.
            cluster: the cluster's name in the configuration.
            cluster_id: Kafka's own id of the cluster.
            options: of delta-rs for the store.

        Raises:
            LakeError: it is the lake of another cluster, or the folder holds something else.
        """
        location = Location(uri, options)
        table = cls._open_or_empty(location) or DataTable.create(
            location,
            f"topics of Kafka cluster {cluster}, archived by kafka-pixy",
            properties(cluster, cluster_id),
        )
        lake = cls(location, table)
        lake._check_cluster(cluster, cluster_id)
        return lake

    @classmethod
    def check(cls, uri: str, cluster: str, cluster_id: str, options: dict[str, str] | None = None) -> None:
        """Raise LakeError where :meth:`open_or_create` would; write nothing."""
        location = Location(uri, options)
        table = cls._open_or_empty(location)
        if table is not None:
            cls(location, table)._check_cluster(cluster, cluster_id)

    @staticmethod
    def _open_or_empty(location: Location) -> DataTable | None:
        """Open the table of records; return None where a lake can be created, and raise LakeError where it cannot."""
        refuse_old(location)
        table = DataTable.open(location)
        if table is not None:
            return table
        location.check_writable()
        others = location.files("")
        if others:
            raise LakeError(
                f"{location.root} is not a lake and not empty (there is {others[0][0]}): give a new folder"
            )
        return None

    def _check_cluster(self, cluster: str, cluster_id: str) -> None:
        if cluster_id and self.identity.cluster_id and cluster_id != self.identity.cluster_id:
            raise LakeError(
                f"{self.location.root} is the lake of Kafka cluster {self.identity.cluster_id} "
                f"({self.identity.cluster}); this is cluster {cluster_id} ({cluster}): one lake "
                "holds one cluster, give another --lake"
            )

    # -- reading ----------------------------------------------------------------------------------

    def state(self, epochs: Mapping[str, str] | None = None) -> State:
        """Read the whole history and the live files, as of one version of the table.

        Args:
            epochs: Kafka's ids of topics whose earlier epoch to show, by topic; the last one otherwise.
        """
        state = self._folded(State(chosen=dict(epochs or {})))
        for file in self.table.files():
            path = f"{DATA}/{file.path}"
            state.all_files[path] = replace(file, path=path)
        return state

    def ledger(self) -> Ledger:
        """Read what a writer must know of the history."""
        return self._folded(Ledger())

    def _folded(self, ledger: AnyLedger) -> AnyLedger:
        self.table.refresh()
        ledger.load(*self.ranges.read(ledger.NEEDED))
        self._read_log(ledger)
        return ledger

    def catch_up(self, ledger: Ledger) -> None:
        """Apply what others have published since."""
        self.table.refresh()
        self._read_log(ledger)

    def _read_log(self, ledger: Ledger) -> None:
        for version, entry in self.entries(ledger.version):
            ledger.apply(version, entry)
        ledger.version = max(ledger.version, self.table.version)
        published = self.table.transaction(self._app)
        if published != ledger.seq:
            raise ManifestError(
                f"the Delta table {self.table.uri} has published entry {published}, its log and the table of ranges "
                f"have entries up to {ledger.seq}: entries are missing"
            )

    def entries(self, after: int = -1) -> Iterator[tuple[int, Entry]]:
        """Yield the entries that Delta's log has after a version of the table, with the versions that they made.

        Raises:
            ManifestError: an entry was altered.
        """
        for version in range(after + 1, self.table.version + 1):
            text = self.table.metadata_of(version)
            entry = decode(text, f"version {version} of {self.table.uri}") if text else None
            if entry is not None:
                yield version, entry

    def history(self) -> Iterator[Entry]:
        """Yield all entries in order, from the table of ranges and then from the log; check each one's digest."""
        self.table.refresh()
        done, rows = self.ranges.read()
        for _, entry in entries_of(rows):
            yield entry
        for _, entry in self.entries(done):
            yield entry

    def path(self, relative: str) -> str:
        """Name a file of the lake for people, and for pyarrow if the lake is on this machine."""
        return self.location.at(relative)

    def size(self, relative: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        return self.location.size(relative)

    # -- writing ----------------------------------------------------------------------------------

    def publish(
        self,
        ledger: Ledger,
        draft: Entry,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        check: Callable[[Ledger], None] = lambda _: None,
        *,
        changes: bool = True,
    ) -> Entry:
        """Commit files and their entry, and apply the entry to ``ledger``. All of it is published, or nothing.

        If another writer of the lake is faster, apply its entries to ``ledger``, call ``check`` again and try again.

        Args:
            ledger: the folded history; kept up to date.
            draft: the entry; its ``seq``, ``previous`` and ``digest`` are filled in here.
            added: new files; their paths are relative to the lake.
            removed: files that are no longer live.
            check: raises if the draft no longer holds for the ledger it is given.
            changes: False if the records stay the same.

        Raises:
            LakeError: other writers were faster each time, or a removed file is no longer live.
        """
        news, olds = [_below_table(file) for file in added], [_below_table(file) for file in removed]
        for _ in range(_PUBLISH_TRIES):
            self.catch_up(ledger)
            check(ledger)
            if olds:
                self._check_live(olds)
            entry = replace(draft, seq=ledger.seq + 1, previous=ledger.digest, digest="")
            entry = replace(entry, digest=digest_of(entry))
            transactions = {self._app: entry.seq}
            if entry.job:
                transactions[f"{self._app}-{entry.job}"] = entry.batch
            version = self.table.version + 1
            try:
                self.table.commit(
                    news, olds, encode(entry), transactions, published=entry.published, changes=changes
                )
            except Published:
                continue
            ledger.apply(version, entry)
            return entry
        raise LakeError(
            f"{self.location.root}: another writer was faster {_PUBLISH_TRIES} times: too many jobs write to this lake"
        )

    def _check_live(self, files: list[DataFile]) -> None:
        live = {file.path for file in self.table.files()}
        gone = [file.path for file in files if file.path not in live]
        if gone:
            raise LakeError(f"{DATA}/{gone[0]} was replaced by another process meanwhile")

    def follow(self, *, at_least: int = 1) -> int:
        """Add to the table of ranges the entries that it lacks; return their number.

        Args:
            at_least: do nothing if fewer are missing, as far as this process knows. With more than 1, entries of Delta's
                log that the table of ranges has, and that are old, are removed as well, so that listing the log
                takes the same time in each year.
        """
        if at_least > 1 and self.table.version - self._followed < at_least:
            return 0
        self.table.refresh()
        self._followed = self.ranges.complete_up_to()
        if self.table.version - self._followed < at_least:
            return 0
        missing = list(self.entries(self._followed))
        self.ranges.append(missing, self.table.version)
        self._followed = self.table.version
        if at_least > 1:
            self.table.clean_log()
        return len(missing)

    def replacing(self) -> contextlib.AbstractContextManager[None]:
        """Let one process of this machine replace or remove files at a time; of processes of two machines the slower one's
        commit is refused.
        """
        if not self.location.local:
            return contextlib.nullcontext()
        busy = (
            f"files of {self.location.root} are being replaced by another process: optimize, expire or erase"
        )
        return exclusive_lock(self.path(f"{JOBS}/{REPLACING}.lock"), PipelineError(busy))

    def vacuum(self, hours: float, *, dry_run: bool, unlisted: bool = True) -> Sequence[str]:
        """Delete files that no version of the last hours lists, and old entries of Delta's log; return the files' paths.

        Args:
            hours: how long removed and unlisted files are kept: longer than any job or query runs.
            dry_run: only list the files.
            unlisted: also those that no commit has ever listed. Without them no running job can lose a file, only readers
                of earlier versions can.
        """
        self.table.refresh()
        if not dry_run:
            self.follow()  # before the log loses entries
            self.table.clean_log()
        self.ranges.vacuum(hours, dry_run=dry_run)
        return [f"{DATA}/{path}" for path in self.table.vacuum(hours, dry_run=dry_run, unlisted=unlisted)]


def properties(cluster: str, cluster_id: str, lake: str = "") -> dict[str, str]:
    """Return the table's properties that make it a lake.

    Args:
        cluster: the cluster's name in the configuration.
        cluster_id: Kafka's own id of the cluster.
        lake: the lake's id; empty for that of the table.
    """
    return {
        f"{_PREFIX}version": str(VERSION),
        f"{_PREFIX}cluster": cluster,
        f"{_PREFIX}cluster_id": cluster_id,
        **({f"{_PREFIX}lake": lake} if lake else {}),
    }


def refuse_old(location: Location) -> None:
    """Raise UnknownVersion for a lake of format 1, which ``migrate`` converts."""
    if location.size(OLD_IDENTITY) is not None:
        raise UnknownVersion(
            f"{location.root} is a lake of format 1: run `kafka-pixy pipeline migrate --lake {location.root}`, "
            "which makes it a Delta table and rewrites no file of records"
        )


def now_ms() -> int:
    """Return the current time in milliseconds of the epoch."""
    return time.time_ns() // 1_000_000


def _below_table(file: DataFile) -> DataFile:
    return replace(file, path=file.path.removeprefix(f"{DATA}/"))


__all__ = ["FOLLOW_EVERY", "Identity", "Lake", "now_ms", "properties", "refuse_old"]
