"""The columns that an Avro schema makes, as an Arrow struct. Pure.

Integers are 64 bits wide and floating-point numbers too, so the promotions that Avro allows change no column.
Times of day, local timestamps, unions of several types, recursive records and records without fields have no column
that every reader of Delta tables knows: such a field is left out, and named.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

SINGLE: Final = "value"
"""Name of the one field of a schema that is no record."""

_MAX_DEPTH: Final = 32
_MAX_DIGITS: Final = 38
_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
}
_NO_COLUMN: Final = {"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros"}


class NoColumn(ValueError):
    """A schema or a field has no column; the text says why."""


def columns_of(text: str) -> tuple[pa.StructType, list[str]]:
    """Convert an Avro schema.

    Args:
        text: the schema, JSON.

    Returns:
        The columns, and what was left out: ``field: reason``.

    Raises:
        NoColumn: it is no Avro schema, or no field has a column.
    """
    from fastavro.schema import SchemaParseException, UnknownType, expand_schema

    try:
        schema = expand_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType) as error:
        raise NoColumn(f"it cannot be parsed: {type(error).__name__} {error}") from None
    left_out: list[str] = []
    if isinstance(schema, dict) and schema.get("type") in ("record", "error"):
        return _struct(schema, "", left_out, 0), left_out
    if isinstance(schema, list) or (isinstance(schema, dict) and schema.get("type") == "map"):
        raise NoColumn("it is a union or a map as a whole")
    return pa.struct([(SINGLE, _column(schema, "", left_out, 0))]), left_out


def _struct(schema: dict[str, Any], path: str, left_out: list[str], depth: int) -> pa.StructType:
    fields: dict[str, pa.Field] = {}
    for each in schema["fields"]:
        name = each["name"]
        where = f"{path}{name}"
        if name.lower() in fields:
            left_out.append(f"{where}: Spark does not tell its name from that of another field")
            continue
        try:
            fields[name.lower()] = pa.field(name, _column(each["type"], f"{where}.", left_out, depth + 1))
        except NoColumn as error:
            left_out.append(f"{where}: {error}")
    if not fields:
        raise NoColumn("a record without fields that have columns")
    return pa.struct(list(fields.values()))


def _column(schema: Any, path: str, left_out: list[str], depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise NoColumn(f"more than {_MAX_DEPTH} levels")
    if isinstance(schema, list):
        types = [each for each in schema if each != "null"]
        if len(types) != 1:
            raise NoColumn("a union of several types" if types else "always null")
        return _column(types[0], path, left_out, depth)
    described: dict[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
    kind, logical = described["type"], described.get("logicalType")
    if isinstance(kind, (dict, list)):
        return _column(kind, path, left_out, depth)
    if kind == "record":
        if logical == "variant":
            raise NoColumn("a variant")
        return _struct(described, path, left_out, depth)
    if kind == "array":
        return pa.list_(_column(described["items"], path, left_out, depth + 1))
    if kind == "map":
        return pa.map_(pa.string(), _column(described["values"], path, left_out, depth + 1))
    if kind not in _PRIMITIVES:
        raise NoColumn("always null" if kind == "null" else f"the recursive record {kind}")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(described)
    if logical in _NO_COLUMN and kind in ("int", "long"):
        raise NoColumn(f"a {logical}")
    return _LOGICAL.get((kind, logical or ""), _PRIMITIVES[kind])


def _decimal(schema: dict[str, Any]) -> pa.DataType:
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 <= scale <= precision <= _MAX_DIGITS or precision < 1:
        raise NoColumn(f"a decimal of {precision} digits, {scale} of them after the point")
    return pa.decimal128(precision, scale)


__all__ = ["SINGLE", "NoColumn", "columns_of"]
