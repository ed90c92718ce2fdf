"""The table of a lake's records: a Delta table, read and committed through delta-rs, without Java.

Spark writes the Parquet files; the commit that makes them part of the table is delta-rs' ``create_write_transaction``. So
the counts and checksums of the files are known, and compared, before they are published, and they stand in the commit
itself. Delta's own writer for Spark commits as it writes: there the metadata would have to be known beforehand.

A commit is a compare-and-set: it becomes version n + 1 of the table that was read at version n, or fails. delta-rs uses
for it what is atomic on each store: a link on local disks, conditional puts on S3, Azure and Google, a rename on HDFS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction

from pixy.pipeline.errors import LakeError, ManifestError, Published
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_files import SCHEMA
from pixy.pipeline.lake.layout import DATA, LOG
from pixy.pipeline.lake.locations import Location

PARTITIONS: Final = ("topic", "date")
CHECKPOINT_INTERVAL: Final = 100
"""Commits between two checkpoints of Delta's log."""
LOG_DAYS: Final = 7
"""Days that entries of Delta's log are kept. Each commit lists the log, which takes a second for a month of one every 30 s."""
KEY: Final = "key"
VALUE: Final = "value"
TYPED: Final = (KEY, VALUE)
"""A topic's decoded keys and values are in the columns ``key_<topic>`` and ``value_<topic>``, if it was archived with a schema registry."""
_YEAR_10000: Final = 253_402_300_800_000
_TABLE_SCHEMA: Final = pa.schema(
    [
        *(
            SCHEMA.remove(3).insert(3, pa.field("timestamp", pa.timestamp("us", tz="UTC")))
        ),  # Delta has no other unit
        ("topic_id", pa.string()),
        ("date", pa.date32()),
    ]
)
_ERRORS: Final = (DeltaError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file: records of one topic and one (UTC) day, sorted by partition, offset.

    The bounds come from the table's statistics; those of a file that lacks them exclude nothing.
    """

    path: str
    """Relative to the table."""
    topic: str
    date: str
    """ISO 8601; empty for records of years other than 1 to 9999."""
    rows: int
    size: int
    """Bytes on disk."""
    topic_id: str = ""
    """Kafka's id of the topic; empty in files of lakes that were migrated."""
    first_partition: int = 0
    last_partition: int = 1 << 31
    first: int = 0
    last: int = 1 << 62
    min_timestamp: int = -(1 << 62)
    max_timestamp: int = 1 << 62

    def may_hold(self, partition: int) -> bool:
        """Tell whether the file may have records of a partition."""
        return self.first_partition <= partition <= self.last_partition


def describe_file(
    path: str, topic: str, day: str, size: int, partitions: Mapping[int, Stats], topic_id: str = ""
) -> DataFile:
    """Describe a new file.

    Args:
        path: relative to the table.
        topic: the topic of all records.
        day: the day of all records, or empty.
        size: bytes on disk.
        partitions: stats of its partitions.
        topic_id: Kafka's id of the topic.
    """
    parts = partitions.values()
    return DataFile(
        path,
        topic,
        day,
        sum(each.count for each in parts),
        size,
        topic_id,
        min(partitions),
        max(partitions),
        min(each.first for each in parts),
        max(each.last for each in parts),
        min(each.min_timestamp for each in parts),
        max(each.max_timestamp for each in parts),
    )


class DataTable:
    """An existing table; get one with :meth:`open` or :meth:`create`.

    Attributes:
        uri: as delta-rs opens it.
    """

    def __init__(self, table: DeltaTable, location: Location) -> None:
        self._table = table
        self._location = location
        self.uri = location.at(DATA)

    @classmethod
    def open(cls, location: Location) -> DataTable | None:
        """Open the table of a lake; return None if there is none.

        Raises:
            LakeError: the store cannot be reached, or the log cannot be read.
        """
        try:
            return cls(DeltaTable(location.at(DATA), storage_options=location.options), location)
        except TableNotFoundError:
            return None
        except _ERRORS as error:
            raise _failed(f"cannot open the Delta table {location.at(DATA)}", error) from error

    @classmethod
    def create(cls, location: Location, description: str, configuration: Mapping[str, str]) -> DataTable:
        """Create the table of a new lake, or open the one that another process has just created.

        Args:
            location: the lake.
            description: for readers of the table.
            configuration: properties of the table, the lake's identity among them.
        """
        uri = location.at(DATA)
        try:
            DeltaTable.create(
                uri,
                Schema.from_arrow(_TABLE_SCHEMA),
                mode="ignore",
                partition_by=list(PARTITIONS),
                description=description,
                configuration={
                    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
                    # Entries of the log go to the table of ranges before housekeeping removes them.
                    "delta.enableExpiredLogCleanup": "false",
                    "delta.logRetentionDuration": f"interval {LOG_DAYS} days",
                    **configuration,
                },
                storage_options=location.options,
                raise_if_key_not_exists=False,
            )
        except CommitFailedError:
            pass  # another process was faster
        except _ERRORS as error:
            raise _failed(f"cannot create the Delta table {uri}", error) from error
        table = cls.open(location)
        if table is None:
            raise LakeError(f"the Delta table {uri} was created and is gone")
        return table

    @property
    def version(self) -> int:
        """The version that was read last."""
        return self._table.version()

    @property
    def id(self) -> str:
        """Delta's id of the table, made with it."""
        return str(self._table.metadata().id)

    @property
    def created(self) -> int:
        """Milliseconds of the epoch."""
        return self._table.metadata().created_time

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return self._table.metadata().configuration

    def typed_columns(self) -> dict[str, pa.DataType]:
        """Return the columns of decoded keys and values, by name."""
        schema = pa.schema(self._table.schema())
        prefixes = tuple(f"{part}_" for part in TYPED)
        return {field.name: field.type for field in schema if field.name.startswith(prefixes)}

    def add_columns(self, types: Mapping[str, pa.DataType]) -> None:
        """Add columns that may be null, or fields to columns that are structs, in a commit without files.

        Raises:
            Published: another process has changed the table meanwhile.
            LakeError: the store refuses.
        """
        fields = list(Schema.from_arrow(pa.schema(list(types.items()))).fields)
        try:
            self._table.alter.add_columns(fields)
        except CommitFailedError as error:
            raise Published(f"another process has written to {self.uri}: {error}") from error
        except _ERRORS as error:
            raise _failed(f"cannot add columns to the Delta table {self.uri}", error) from error

    def refresh(self) -> None:
        """Read the commits that were made since."""
        try:
            self._table.update_incremental()
        except _ERRORS as error:
            raise _failed(f"cannot read the Delta table {self.uri}", error) from error

    def transaction(self, app: str) -> int:
        """Return the last version that an application committed; -1 if there is none."""
        found = self._table.transaction_version(app)
        return -1 if found is None else found

    def files(self) -> Iterator[DataFile]:
        """Yield the files of the version that was read last."""
        table: Any = pa.table(self._table.get_add_actions())
        for row in table.to_pylist():
            low, high = row.get("min") or {}, row.get("max") or {}
            day = row["partition"]["date"]
            found = DataFile(
                unquote(row["path"]),
                row["partition"]["topic"],
                day.isoformat() if isinstance(day, date) else str(day or ""),
                row["num_records"] or 0,
                row["size_bytes"],
                low.get("topic_id") or "",
            )
            known = {
                "first_partition": low.get("partition"),
                "last_partition": high.get("partition"),
                "first": low.get("offset"),
                "last": high.get("offset"),
                "min_timestamp": _millis(low.get("timestamp")),
                "max_timestamp": _millis(high.get("timestamp")),
            }
            for name, value in known.items():
                if value is not None:
                    object.__setattr__(found, name, value)
            yield found

    def metadata_of(self, version: int) -> str:
        """Return the ``userMetadata`` of a commit; empty if it has none.

        It is read from the commit's own file (PROTOCOL.md of Delta, "Delta Log Entries" and "Commit Provenance
        Information"): delta-rs' ``history`` numbers the newest commits of the log by the version that was read, which are
        not the same while others write.

        Raises:
            ManifestError: the log no longer has the commit, or its file is damaged.
        """
        path = f"{DATA}/{LOG}/{version:020d}.json"
        try:
            lines = self._location.read(path).splitlines()
            for line in lines:
                if line.startswith(b'{"commitInfo"'):
                    return str(json.loads(line)["commitInfo"].get("userMetadata") or "")
        except FileNotFoundError:
            raise ManifestError(f"{self._location.at(path)} is missing") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise ManifestError(f"{self._location.at(path)} cannot be read: {error}") from error
        return ""

    def oldest_commit(self) -> int:
        """Return the lowest version whose commit the log still has."""
        names = (path.rpartition("/")[2] for path, _ in self._location.files(f"{DATA}/{LOG}"))
        found = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return min((int(name) for name in found if name.isdecimal()), default=self.version)

    def commit(
        self,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        metadata: str,
        transactions: Mapping[str, int],
        *,
        published: int,
        changes: bool,
    ) -> None:
        """Make the next version of the table; then :meth:`refresh` shows it.

        Args:
            added: new files, which exist already.
            removed: files that are no longer part of the table.
            metadata: the commit's ``userMetadata``.
            transactions: versions by application; they make the commit idempotent.
            published: milliseconds of the epoch.
            changes: False if the records stay the same, so that streams that read the table pass over the commit.

        Raises:
            Published: another process has committed since the table was read.
            LakeError: the store refuses.
        """
        actions: list[AddAction | RemoveAction] = [
            *(
                AddAction(
                    each.path, each.size, _values(each), published, changes, json.dumps(_statistics(each))
                )
                for each in added
            ),
            *(
                RemoveAction(each.path, changes, published, each.size, dict(_values(each)))
                for each in removed
            ),
        ]
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                list(PARTITIONS),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": metadata},
                    max_commit_retries=0,  # a compare-and-set: delta-rs would retry on a version that was not checked
                    app_transactions=[Transaction(app, version) for app, version in transactions.items()],
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except CommitFailedError as error:
            raise Published(f"another process has written to {self.uri}: {error}") from error
        except _ERRORS as error:
            raise _failed(f"cannot commit to the Delta table {self.uri}", error) from error

    def vacuum(self, hours: float, *, dry_run: bool, unlisted: bool = True) -> Sequence[str]:
        """Delete files that no version of the last hours lists; return their paths.

        Args:
            hours: how long removed and unlisted files are kept.
            dry_run: only list them.
            unlisted: also those that no commit has ever listed.
        """
        try:
            return self._table.vacuum(
                retention_hours=int(hours), dry_run=dry_run, enforce_retention_duration=False, full=unlisted
            )
        except _ERRORS as error:
            raise _failed(f"cannot vacuum the Delta table {self.uri}", error) from error

    def clean_log(self) -> None:
        """Write a checkpoint of Delta's log, and delete entries older than ``delta.logRetentionDuration``."""
        try:
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
        except _ERRORS as error:
            raise _failed(f"cannot clean the log of the Delta table {self.uri}", error) from error


def _values(file: DataFile) -> Mapping[str, str | None]:
    return {"topic": file.topic, "date": file.date or None}


def _statistics(file: DataFile) -> dict[str, Any]:
    """Return statistics by which readers skip files."""
    low: dict[str, Any] = {"partition": file.first_partition, "offset": file.first}
    high: dict[str, Any] = {"partition": file.last_partition, "offset": file.last}
    nulls = {"partition": 0, "offset": 0}
    if file.topic_id:
        low["topic_id"] = high["topic_id"] = file.topic_id
        nulls["topic_id"] = 0
    if file.min_timestamp >= 0 and file.max_timestamp < _YEAR_10000:
        low["timestamp"], high["timestamp"] = _iso(file.min_timestamp), _iso(file.max_timestamp)
        nulls["timestamp"] = 0
    return {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _failed(what: str, error: Exception) -> LakeError:
    return LakeError(f"{what}: {' '.join(str(error).split())}")
