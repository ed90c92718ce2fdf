"""The columns that an Avro schema makes, as an Arrow struct. Pure.

Integers are 64 bits wide and floating-point numbers too, so the promotions that Avro allows change no column.
Times of day, local timestamps, unions of several types, recursive records and records without fields have no column
that every reader of Delta tables knows: such a field is left out, and named.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pyarrow as pa

from pixy.kafka.schema_decoders import avro_schema
from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode.structs import MAX_DEPTH, SINGLE, TIMESTAMP, NoColumn, Outline, StructBuilder

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
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
}
_NO_COLUMN: Final = {"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros"}


def avro_columns(schema: RegisteredSchema) -> tuple[pa.StructType, list[str]]:
    """Convert an Avro schema.

    Returns:
        The columns, and what was left out: ``field: reason``.

    Raises:
        SchemaFault: it is no Avro schema.
        NoColumn: no field has a column.
    """
    parsed = avro_schema(schema)
    outline = Outline()
    if isinstance(parsed, dict) and parsed.get("type") in ("record", "error"):
        return _record(parsed, "", outline, 0), outline.left_out
    if isinstance(parsed, list) or (isinstance(parsed, dict) and parsed.get("type") == "map"):
        raise NoColumn("it is a union or a map as a whole")
    return pa.struct([(SINGLE, _column(parsed, "", outline, 0))]), outline.left_out


def _record(schema: dict[str, Any], path: str, outline: Outline, depth: int) -> pa.StructType:
    if schema.get("logicalType") == "variant":
        raise NoColumn("a variant")
    found = StructBuilder(path, outline)
    for each in schema["fields"]:
        found.add(each["name"], partial(_column, each["type"], f"{path}{each['name']}.", outline, depth + 1))
    return found.build()


def _column(schema: Any, path: str, outline: Outline, depth: int) -> pa.DataType:
    if depth > MAX_DEPTH:
        raise NoColumn(f"more than {MAX_DEPTH} levels")
    if isinstance(schema, list):
        types = [each for each in schema if each != "null"]
        if len(types) != 1:
            raise NoColumn("a union of several types" if types else "always null")
        return _column(types[0], path, outline, depth)
    described: dict[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
    kind, logical = described["type"], described.get("logicalType")
    if isinstance(kind, (dict, list)):
        return _column(kind, path, outline, depth)
    if kind == "record":
        return _record(described, path, outline, depth)
    if kind == "array":
        return pa.list_(_column(described["items"], path, outline, depth + 1))
    if kind == "map":
        return pa.map_(pa.string(), _column(described["values"], path, outline, depth + 1))
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


__all__ = ["avro_columns"]
