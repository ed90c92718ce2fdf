"""Keep a Delta table over a lake's own files: one commit for each entry of the lake's log, exactly once.

No data is written twice. The table is in ``LAKE/data``, partitioned by topic and date, and its commits add
and remove the files that the manifests list. The manifests stay the truth: an entry is published first, and
the table follows. A commit carries the lake as Delta's transaction id (``txnAppId``) and the entry's number
as its version (``txnVersion``). So the next run makes the commit that a kill has prevented, and no commit is
made twice, even if several processes follow at the same time.

Delta itself makes the commits (its protocol's checks, conflicts, checkpoints), through the JVM: its
DataFrame writer cannot add files that exist already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, StructField, StructType

from pixy.pipeline.errors import LakeError, PipelineError, SetupError, UsageError
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import DATA
from pixy.pipeline.lake.manifest import BATCH, DataFile, Manifest
from pixy.pipeline.lake.state import State
from pixy.pipeline.lake.store import Store
from pixy.pipeline.spark import columns

LOG = f"{DATA}/_delta_log"
PARTITIONS = ("topic", "date")
SCHEMA = StructType([*columns.SCHEMA.fields, StructField("date", DateType())])

_TRIES = 20
_YEAR_10000 = 253_402_300_800_000


def has_table(store: Store) -> bool:
    """Tell whether a lake has a Delta table, which must then follow every published entry."""
    return bool(store.names(LOG))


def refuse_without(store: Store, what: str) -> None:
    """Raise UsageError if the lake has a Delta table.

    Args:
        store: the lake's files.
        what: names, in the error, the operation that would leave the table behind.
    """
    if has_table(store):
        raise UsageError(
            f"{store.root} has a Delta table ({LOG}), which {what} would leave behind: give --delta-jars, "
            f"or remove {store.root}/{LOG} if the table is no longer wanted"
        )


class DeltaTable:
    """The Delta table of a lake; the first :meth:`follow` creates it.

    Args:
        spark: a session with Delta's jars.
        lake: the lake.

    Raises:
        SetupError: the session lacks Delta's jars.
        LakeError: the table cannot be opened.
    """

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._lake = lake
        self._app = f"kafka-pixy-lake-{lake.identity.id}"
        self.path = lake.path(DATA)
        try:
            self._log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self.path)
        except TypeError:
            raise SetupError(
                "this Spark session was started without Delta's jars: give --delta-jars"
            ) from None
        except Py4JJavaError as error:
            raise LakeError(f"the Delta table {self.path} cannot be opened: {_text(error)}") from error

    def check(self, state: State) -> None:
        """Raise LakeError if another program has changed the table's list of files.

        Args:
            state: the folded log of the lake.
        """
        transaction = self._begin()
        done = int(transaction.txnVersion(self._app))
        if done < 0 and transaction.readVersion() >= 0:
            raise LakeError(f"{self.path} is the Delta table of another program; this lake cannot use it")
        if done > state.seq:
            raise LakeError(
                f"the Delta table {self.path} has entry {done} of the lake's log, which ends at {state.seq}: "
                "entries are missing"
            )
        wanted = _files_at(self._lake, done) if done < state.seq else set(state.files)
        live = DataFrame(transaction.snapshot().allFiles().toDF(), self._spark).select("path")
        found = {f"{DATA}/{unquote(row['path'])}" for row in live.collect()}
        odd = sorted(wanted ^ found)
        if odd:
            what = "lacks" if odd[0] in wanted else "has"
            raise LakeError(
                f"another program has changed the Delta table {self.path} (OPTIMIZE, DELETE, an append?): it "
                f"{what} {odd[0]}, and {len(odd) - 1} more differ. The manifests are the truth: remove "
                f"{self._lake.path(LOG)}, and the next archive with --format delta makes a new one"
            )

    def follow(self) -> int:
        """Commit the entries of the log that the table lacks; return their number.

        Raises:
            PipelineError: Delta refuses; the published entries stay, and the next run tries again.
        """
        made = 0
        tries = 0
        while True:
            transaction = self._begin()
            missing = self._lake.sequence()[int(transaction.txnVersion(self._app)) + 1 :]
            if not missing:
                return made
            try:
                self._commit(transaction, self._lake.manifest(missing[0]))
                made += 1
            except Py4JJavaError as error:
                tries += 1
                # Another job of this lake was faster: look at its commits and try again.
                conflict = error.java_exception.getClass().getName().startswith("io.delta.exceptions.")
                if not conflict or tries >= _TRIES:
                    raise PipelineError(
                        f"entry {missing[0]} of the log is published, but the Delta table {self.path} did "
                        f"not accept it: {_text(error)}; the next run tries again"
                    ) from error

    def _begin(self) -> Any:
        try:
            return self._log.startTransaction()
        except Py4JError as error:
            raise LakeError(f"the Delta table {self.path} cannot be read: {_text(error)}") from error

    def _commit(self, transaction: Any, manifest: Manifest) -> None:
        if transaction.readVersion() < 0:
            transaction.updateMetadataForNewTable(self._action(_metadata(self._lake)))
        actions = [self._action(each) for each in actions_of(manifest, self._app)]
        operation = getattr(
            getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$"
        )
        transaction.commit(self._jvm.PythonUtils.toSeq(actions), operation)

    def _action(self, document: dict[str, Any]) -> Any:
        actions = getattr(getattr(self._jvm.org.apache.spark.sql.delta.actions, "Action$"), "MODULE$")
        return actions.fromJson(json.dumps(document))


def actions_of(manifest: Manifest, app: str) -> Iterable[dict[str, Any]]:
    """Yield the actions of Delta's protocol for an entry of the log, in JSON form.

    Args:
        manifest: the entry.
        app: the lake's transaction id.
    """
    yield {"txn": {"appId": app, "version": manifest.seq, "lastUpdated": manifest.published}}
    # A compaction changes no record: streams that read the table must not get the records again.
    changes = manifest.kind == BATCH
    for path in manifest.replaces:
        yield {
            "remove": {
                "path": _relative(path),
                "deletionTimestamp": manifest.published,
                "dataChange": changes,
                "extendedFileMetadata": True,
                "partitionValues": _partition_of(path),
            }
        }
    for file in manifest.files:
        yield {
            "add": {
                "path": _relative(file.path),
                "partitionValues": {"topic": file.topic, "date": file.date},
                "size": file.size,
                "modificationTime": manifest.published,
                "dataChange": changes,
                "stats": json.dumps(_statistics(file)),
            }
        }


def _relative(path: str) -> str:
    return quote(path.removeprefix(f"{DATA}/"), safe="/=")


def _partition_of(path: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in path.split("/") if "=" in part)
    return {name: value for name, _, value in pairs if name in PARTITIONS}


def _statistics(file: DataFile) -> dict[str, Any]:
    """Statistics that let a reader skip files, from the manifest."""
    parts = file.partitions.values()
    low: dict[str, Any] = {"partition": min(file.partitions), "offset": min(each.first for each in parts)}
    high: dict[str, Any] = {"partition": max(file.partitions), "offset": max(each.last for each in parts)}
    times = [time for each in parts for time in (each.min_timestamp, each.max_timestamp)]
    if min(times) >= 0 and max(times) < _YEAR_10000:
        low["timestamp"], high["timestamp"] = _iso(min(times)), _iso(max(times))
    return {
        "numRecords": file.rows,
        "minValues": low,
        "maxValues": high,
        "nullCount": dict.fromkeys(low, 0),
    }


def _iso(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def _metadata(lake: Lake) -> dict[str, Any]:
    return {
        "metaData": {
            "id": lake.identity.id,
            "name": None,
            "description": f"topics of Kafka cluster {lake.identity.cluster}, archived by kafka-pixy",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA.json(),
            "partitionColumns": list(PARTITIONS),
            "configuration": {},
            "createdTime": lake.identity.created,
        }
    }


def _files_at(lake: Lake, seq: int) -> set[str]:
    """Find the live files after an entry of the log."""
    state = State()
    for manifest in lake.manifests():
        if manifest.seq > seq:
            break
        state.apply(manifest)
    return set(state.files)


def _text(error: Py4JError) -> str:
    cause = getattr(error, "java_exception", None)
    return str(cause.toString() if cause is not None else error).splitlines()[0]
