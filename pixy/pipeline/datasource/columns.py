"""The columns of both modes: their names, Spark's types and Arrow's."""

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
    # As Spark's Kafka source has them:
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    # Of the record's batch; -1 is the protocol's "none":
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
"""By mode: name to Spark's type."""

LARGEST_MILLIS: Final = (2**63 - 1) // 1000
"""Spark counts microseconds in 64 bits."""


def names(mode: str, *, headers: bool = True) -> tuple[str, ...]:
    """The columns of a mode; without ``headers`` not those of that name."""
    return tuple(name for name in MODES[mode] if headers or name != "headers")


def ddl(mode: str, *, headers: bool = True) -> str:
    """The schema for Spark."""
    return ", ".join(f"{name} {MODES[mode][name]}" for name in names(mode, headers=headers))


def arrow_schema(mode: str, wanted: Sequence[str]) -> pa.Schema:
    """The schema of the Arrow batches with these columns."""
    return pa.schema([(name, _ARROW[MODES[mode][name]]) for name in wanted])


def check(schema: StructType, mode: str) -> tuple[str, ...]:
    """The columns that a schema asks for; raises UsageError for one that is not there or of another type.

    Spark 4.0 tells a Python source nothing of what a query needs, so a schema with fewer columns is how
    to leave columns out.
    """
    known = MODES[mode]
    for field in schema.fields:
        if field.name not in known:
            raise UsageError(
                f"schema: there is no column {field.name!r} in mode {mode} (there are {', '.join(known)})"
            )
        found = field.dataType.simpleString()
        if found != known[field.name]:
            raise UsageError(f"schema: column {field.name} is {known[field.name]}, not {found}")
    if not schema.fields:
        raise UsageError("schema: it has no columns")
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise UsageError(f"schema: column {', '.join(sorted(twice))} is there twice")
    return tuple(schema.names)


__all__ = [
    "BATCHES",
    "LARGEST_MILLIS",
    "MODES",
    "RECORDS",
    "arrow_schema",
    "check",
    "ddl",
    "names",
]
