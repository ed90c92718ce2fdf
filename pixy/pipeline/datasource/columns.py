"""The columns of both modes: names, Spark types and Arrow types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from pixy.pipeline.errors import UsageError

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")

_ARROW: Final = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": _TIMESTAMP,
    "array<struct<key:string,value:binary>>": _HEADERS,
}

_RECORDS: Final = {
    # The columns of Spark's Kafka source:
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    # Fields of the record's batch; -1 is Kafka's "none":
    "producerId": "bigint",
    "producerEpoch": "int",
    "sequence": "int",
    "codec": "string",
    "leaderEpoch": "int",
    "crc": "bigint",
    "isTransactional": "boolean",
    "isControl": "boolean",
    "baseOffset": "bigint",
}
_BATCHES: Final = {
    "topic": "string",
    "partition": "int",
    "baseOffset": "bigint",
    "lastOffset": "bigint",
    "count": "int",
    "bytes": "int",
    "codec": "string",
    "timestampType": "int",
    "baseTimestamp": "timestamp",
    "maxTimestamp": "timestamp",
    "producerId": "bigint",
    "producerEpoch": "int",
    "baseSequence": "int",
    "isTransactional": "boolean",
    "isControl": "boolean",
    "leaderEpoch": "int",
    "crc": "bigint",
    "crcValid": "boolean",
}

RECORDS, BATCHES = "records", "batches"
MODES: Final = {RECORDS: _RECORDS, BATCHES: _BATCHES}
"""By mode, the Spark type of each column."""

LARGEST_MILLIS: Final = (2**63 - 1) // 1000
"""The largest timestamp: Spark counts microseconds in 64 bits."""


def names(mode: str, *, headers: bool = True) -> tuple[str, ...]:
    """Return the columns of a mode.

    Args:
        mode: RECORDS or BATCHES.
        headers: whether to include the column ``headers``.
    """
    return tuple(name for name in MODES[mode] if headers or name != "headers")


def ddl(mode: str, *, headers: bool = True) -> str:
    """Return the schema of a mode as Spark DDL; for the arguments see :func:`names`."""
    return ", ".join(f"{name} {MODES[mode][name]}" for name in names(mode, headers=headers))


def arrow_schema(mode: str, wanted: Sequence[str]) -> pa.Schema:
    """Return the schema of Arrow batches.

    Args:
        mode: RECORDS or BATCHES.
        wanted: the columns.
    """
    return pa.schema([(name, _ARROW[MODES[mode][name]]) for name in wanted])


def check_schema(schema: StructType, mode: str) -> tuple[str, ...]:
    """Return the columns that a schema asks for.

    Spark 4.0 does not tell a Python source which columns a query needs; a schema with fewer columns leaves
    the others out.

    Args:
        schema: the query's schema.
        mode: RECORDS or BATCHES.

    Raises:
        UsageError: a column does not exist, has another type, or occurs twice.
    """
    known = MODES[mode]
    for field in schema.fields:
        if field.name not in known:
            raise UsageError(f"schema: mode {mode} has no column {field.name!r} (it has {', '.join(known)})")
        found = field.dataType.simpleString()
        if found != known[field.name]:
            raise UsageError(f"schema: column {field.name} has type {known[field.name]}, not {found}")
    if not schema.fields:
        raise UsageError("schema: no columns are given")
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise UsageError(f"schema: column {', '.join(sorted(twice))} occurs twice")
    return tuple(schema.names)


__all__ = [
    "BATCHES",
    "LARGEST_MILLIS",
    "MODES",
    "RECORDS",
    "arrow_schema",
    "check_schema",
    "ddl",
    "names",
]
