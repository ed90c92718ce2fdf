"""The table of ranges: the entries of the lake's history as rows of a small Delta table.

Each commit of the table of records carries its ranges in its own metadata, so the log alone is enough to know them, and this
table can be made from it again. It exists because logs are shortened: it keeps the entries, and their chain of digests,
after the log has lost them, and a query reads them as columns. It follows the log lazily: entries that it lacks are
read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from pixy.pipeline.errors import LakeError, ManifestError
from pixy.pipeline.lake.entry import Entry, check_digest, range_document, range_of

APP: Final = "kafka-pixy-ranges"
MAX_FILES: Final = 50
"""The table's files are merged when there are more."""
_ENTRY: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("previous", pa.string()),
        ("digest", pa.string()),
        ("version", pa.int64()),
        ("kind", pa.string()),
        ("published", pa.int64()),
        ("job", pa.string()),
        ("batch", pa.int64()),
        ("isolation", pa.string()),
        ("events", pa.list_(pa.string())),
        ("row", pa.int32()),
    ]
)
_RANGE: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("count", pa.int64()),
        ("bytes", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("min_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("checksum", pa.string()),
        ("content_checksum", pa.string()),
        ("skipped", pa.string()),
    ]
)
SCHEMA: Final = pa.schema([*_ENTRY, *_RANGE])
"""A row is a range of an entry; an entry without ranges has one row, whose columns of the range are null."""
_ERRORS: Final = (DeltaError, OSError, ValueError)


class RangesTable:
    """The table of ranges of a lake.

    Args:
        uri: as delta-rs opens it.
        options: of delta-rs for the store.
    """

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self._uri = uri
        self._options = dict(options or {})

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        except _ERRORS as error:
            raise self._failed("read", error) from error

    def read(self, columns: Sequence[str] = SCHEMA.names) -> tuple[int, pa.Table]:
        """Read all rows, in any order.

        Args:
            columns: which columns.

        Returns:
            The version of the table of records up to which this table is complete, -1 if there is none; and the rows.
        """
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        table = self._open()
        if table is None:
            return -1, schema.empty_table()
        try:
            rows = table.to_pyarrow_table(columns=list(columns)).select(list(columns)).cast(schema)
            done = table.transaction_version(APP)
        except _ERRORS as error:
            raise self._failed("read", error) from error
        return -1 if done is None else done, rows

    def complete_up_to(self) -> int:
        """Return the version of the table of records up to which this table is complete; -1 if there is none."""
        table = self._open()
        done = None if table is None else table.transaction_version(APP)
        return -1 if done is None else done

    def append(self, entries: Iterable[tuple[int, Entry]], version: int) -> None:
        """Add entries; do nothing if another process has added them.

        Args:
            entries: entries and the versions of the table of records that they made.
            version: the version of the table of records up to which this table is complete afterwards.
        """
        table = self._open()
        known = self.complete_up_to()
        rows = [row for at, entry in entries if at > known for row in _rows(at, entry)]
        if version <= known:
            return
        try:
            if table is None:
                table = DeltaTable.create(
                    self._uri, Schema.from_arrow(SCHEMA), mode="ignore", storage_options=self._options
                )
            write_deltalake(
                table,
                pa.Table.from_pylist(rows, schema=SCHEMA),
                mode="append",
                commit_properties=CommitProperties(
                    max_commit_retries=0, app_transactions=[Transaction(APP, version)]
                ),
            )
            self._merge_files()
        except CommitFailedError:
            pass  # another process of the lake was faster; what is missing is read from the log
        except _ERRORS as error:
            raise self._failed("write", error) from error

    def _merge_files(self) -> None:
        table = self._open()
        if table is not None and len(table.file_uris()) > MAX_FILES:
            table.optimize.compact()

    def vacuum(self, hours: float, *, dry_run: bool) -> None:
        """Delete files that no version of the last hours lists.

        Args:
            hours: how long removed files are kept.
            dry_run: delete nothing.
        """
        table = self._open()
        if table is None or dry_run:
            return
        try:
            table.vacuum(int(hours), dry_run=False, enforce_retention_duration=False, full=True)
            table.create_checkpoint()
            table.cleanup_metadata()
        except _ERRORS as error:
            raise self._failed("vacuum", error) from error

    def _failed(self, what: str, error: Exception) -> LakeError:
        return LakeError(f"cannot {what} the table of ranges {self._uri}: {' '.join(str(error).split())}")


def _rows(version: int, entry: Entry) -> Iterator[dict[str, Any]]:
    head = {
        "seq": entry.seq,
        "previous": entry.previous,
        "digest": entry.digest,
        "version": version,
        "kind": entry.kind,
        "published": entry.published,
        "job": entry.job,
        "batch": entry.batch,
        "isolation": entry.isolation,
        "events": list(entry.events),
    }
    for row, each in enumerate(entry.ranges or (None,)):
        yield {**head, "row": row, **(range_document(each) if each is not None else {})}


def entries_of(rows: pa.Table) -> Iterator[tuple[int, Entry]]:
    """Convert rows back to entries and the versions that they made; check each entry's digest.

    Args:
        rows: all columns.

    Raises:
        ManifestError: a row was altered, or is missing.
    """
    for batch in _whole_entries(rows.sort_by([("seq", "ascending"), ("row", "ascending")])):
        for seq, group in groupby(batch, itemgetter("seq")):
            found = list(group)
            head = found[0]
            where = f"entry {seq} of the table of ranges"
            try:
                entry = Entry(
                    kind=head["kind"],
                    job=head["job"],
                    batch=head["batch"],
                    isolation=head["isolation"],
                    published=head["published"],
                    ranges=tuple(range_of(each) for each in found if each["topic"] is not None),
                    events=tuple(head["events"] or ()),
                    seq=seq,
                    previous=head["previous"],
                    digest=head["digest"],
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ManifestError(f"{where} lacks or misstates {error}") from error
            check_digest(entry, where)
            yield head["version"], entry


def _whole_entries(rows: pa.Table, size: int = 50_000) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows as Python objects, some at a time, without cutting an entry in two."""
    at, seqs = 0, rows.column("seq").to_numpy()
    while at < len(rows):
        end = min(at + size, len(rows))
        while end < len(rows) and seqs[end] == seqs[end - 1]:
            end += 1
        yield rows.slice(at, end - at).to_pylist()
        at = end
