"""The columns that the first message of a Protobuf schema makes, and its messages as rows of them. Pure.

Integers are 64 bits wide, unsigned ones of 64 bits decimals; enums are their names. A field that knows whether it is set
is null if it is not; others have their default. Recursive messages, such as google.protobuf.Struct, have no column.
"""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from pixy.kafka.schema_decoders import protobuf_message
from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode.structs import MAX_DEPTH, TIMESTAMP, NoColumn, Outline, StructBuilder

_UNSIGNED: Final = pa.decimal128(20, 0)
_TIME: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
}


def _scalars() -> dict[int, pa.DataType]:
    from google.protobuf.descriptor import FieldDescriptor as F

    wide = (F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64)
    narrow = (F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32, F.TYPE_UINT32, F.TYPE_FIXED32)
    return {
        **dict.fromkeys((*wide, *narrow), pa.int64()),
        **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), _UNSIGNED),
        **dict.fromkeys((F.TYPE_FLOAT, F.TYPE_DOUBLE), pa.float64()),
        **dict.fromkeys((F.TYPE_STRING, F.TYPE_ENUM), pa.string()),
        F.TYPE_BOOL: pa.bool_(),
        F.TYPE_BYTES: pa.binary(),
    }


_SCALARS: Final = _scalars()


def protobuf_columns(schema: RegisteredSchema) -> tuple[pa.StructType, list[str]]:
    """Convert the first message of a schema.

    Returns:
        The columns, and what was left out: ``field: reason``.

    Raises:
        SchemaFault: the schema cannot be used.
        NoColumn: no field has a column.
    """
    outline = Outline()
    return _message(protobuf_message(schema), "", outline, ()), outline.left_out


def _message(message: Any, path: str, outline: Outline, within: tuple[str, ...]) -> pa.StructType:
    if message.full_name in within:
        raise NoColumn(f"the recursive message {message.full_name}")
    if len(within) >= MAX_DEPTH:
        raise NoColumn(f"more than {MAX_DEPTH} levels")
    found = StructBuilder(path, outline)
    for field in message.fields:
        inner = (*within, message.full_name)
        found.add(field.name, partial(_column, field, f"{path}{field.name}.", outline, inner))
    return found.build()


def _column(field: Any, path: str, outline: Outline, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        return pa.map_(pa.string(), _one(value, path, outline, within))
    found = _one(field, path, outline, within)
    return pa.list_(found) if field.is_repeated else found


def _one(field: Any, path: str, outline: Outline, within: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[field.type]
    if message.full_name == _TIME:
        return TIMESTAMP
    if message.full_name in _WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type]
    return _message(message, path, outline, within)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def protobuf_row(message: Any, type_: pa.StructType) -> dict[str, Any]:
    """Return the fields of a message that have columns.

    Raises:
        Exception: a value has no place in its column, such as a time after the year 9999.
    """
    row: dict[str, Any] = {}
    fields = message.DESCRIPTOR.fields_by_name
    for column in type_:
        field = fields.get(column.name)
        if field is None or (field.has_presence and not message.HasField(field.name)):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            row[column.name] = {
                _text(key): _value(inner, each, column.type.item_type) for key, each in value.items()
            }
        elif field.is_repeated:
            row[column.name] = [_value(field, each, column.type.value_type) for each in value]
        else:
            row[column.name] = _value(field, value, column.type)
    return row


def _text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(field: Any, value: Any, type_: pa.DataType) -> Any:
    message = field.message_type
    if message is not None:
        if message.full_name == _TIME:
            return value.ToDatetime(UTC)
        if message.full_name in _WRAPPERS:
            return _value(message.fields_by_name["value"], value.value, type_)
        return protobuf_row(value, type_)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if type_ == _UNSIGNED else value


__all__ = ["protobuf_columns", "protobuf_row"]
