"""The columns that a JSON Schema makes, as an Arrow struct. Pure.

An object with properties is a struct, one with ``additionalProperties`` alone a map. A type and null, as ``type: [T, null]``,
``oneOf`` or ``anyOf``, is T. Other combinations, and what has no type, have no column. Formats are not looked at: a time is text.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pyarrow as pa

from pixy.kafka.schema_decoders import json_schema
from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode.structs import MAX_DEPTH, SINGLE, NoColumn, Outline, StructBuilder

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}

Within = tuple[int, ...]
"""The levels above a type: ids of what a reference led to, otherwise 0."""


def json_columns(schema: RegisteredSchema) -> tuple[pa.StructType, list[str]]:
    """Convert a JSON Schema.

    Returns:
        The columns, and what was left out: ``field: reason``.

    Raises:
        SchemaFault: it is no JSON.
        NoColumn: no field has a column.
    """
    outline = Outline()
    type_ = _root(schema, outline)
    if pa.types.is_map(type_):
        raise NoColumn("it is a map as a whole")
    return (type_ if pa.types.is_struct(type_) else pa.struct([(SINGLE, type_)])), outline.left_out


def is_record(schema: RegisteredSchema) -> bool:
    """Return whether the data of a schema with columns are objects."""
    return bool(pa.types.is_struct(_root(schema, Outline())))


def _root(schema: RegisteredSchema, outline: Outline) -> pa.DataType:
    found, resolver = json_schema(schema)
    return _column(found, resolver, "", outline, (id(found),))


def _column(schema: Any, resolver: Any, path: str, outline: Outline, within: Within) -> pa.DataType:
    if len(within) > MAX_DEPTH:
        raise NoColumn(f"more than {MAX_DEPTH} levels")
    if not isinstance(schema, dict):
        raise NoColumn("anything")
    if "$ref" in schema:
        return _referred(schema["$ref"], resolver, path, outline, within)
    for name in ("oneOf", "anyOf", "allOf"):
        if name in schema:
            return _column(_only(schema[name]), resolver, path, outline, (*within, 0))
    kind = _kind(schema)
    if kind == "object":
        return _object(schema, resolver, path, outline, within)
    if kind == "array":
        return pa.list_(_column(schema.get("items"), resolver, path, outline, (*within, 0)))
    return _PRIMITIVES[kind]


def _referred(to: Any, resolver: Any, path: str, outline: Outline, within: Within) -> pa.DataType:
    from referencing.exceptions import Unresolvable

    try:
        found = resolver.lookup(to)
    except (Unresolvable, TypeError, ValueError, AttributeError):
        raise NoColumn(f"a reference to {to}, which is not among the schema's own") from None
    if id(found.contents) in within:
        raise NoColumn(f"recursive: {to}")
    return _column(found.contents, found.resolver, path, outline, (*within, id(found.contents)))


def _object(schema: Any, resolver: Any, path: str, outline: Outline, within: Within) -> pa.DataType:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(properties, dict) and properties:
        found = StructBuilder(path, outline)
        for name, each in properties.items():
            found.add(name, partial(_column, each, resolver, f"{path}{name}.", outline, (*within, 0)))
        return found.build()
    if isinstance(others, dict):
        return pa.map_(pa.string(), _column(others, resolver, path, outline, (*within, 0)))
    raise NoColumn("an object of unknown properties")


def _only(choices: Any) -> Any:
    """Return the one choice beside null."""
    if not isinstance(choices, list):
        raise NoColumn("no JSON Schema")
    found = [each for each in choices if not (isinstance(each, dict) and each.get("type") == "null")]
    if len(found) != 1:
        raise NoColumn("a choice of several types")
    return found[0]


def _kind(schema: dict[str, Any]) -> str:
    given = schema.get("type")
    kinds = [each for each in given if each != "null"] if isinstance(given, list) else [given]
    if kinds == [None]:
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else [])
        kinds = ["string"] if allowed and all(isinstance(each, str) for each in allowed) else []
        kinds = kinds or (["object"] if "properties" in schema else [])
    if len(kinds) != 1:
        raise NoColumn("a choice of several types" if kinds else "of no type")
    if kinds[0] not in ("object", "array", *_PRIMITIVES):
        raise NoColumn("always null" if kinds[0] == "null" else f"the unknown type {kinds[0]}")
    return str(kinds[0])


__all__ = ["is_record", "json_columns"]
