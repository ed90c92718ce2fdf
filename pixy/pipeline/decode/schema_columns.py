"""The columns of a registered schema of any kind, and decoded data as rows of them."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pixy.kafka.schema_decoders import SchemaFault
from pixy.kafka.schema_registry import AVRO, JSON, PROTOBUF, RegisteredSchema
from pixy.pipeline.decode.avro_columns import avro_columns
from pixy.pipeline.decode.json_columns import is_record, json_columns
from pixy.pipeline.decode.protobuf_columns import protobuf_columns, protobuf_row
from pixy.pipeline.decode.structs import SINGLE, NoColumn

_KINDS: Final = {AVRO: avro_columns, PROTOBUF: protobuf_columns, JSON: json_columns}


def columns_of(schema: RegisteredSchema) -> tuple[pa.StructType, list[str]]:
    """Convert a schema.

    Returns:
        The columns, and what was left out: ``field: reason``.

    Raises:
        NoColumn: the schema cannot be used, or no field has a column.
    """
    if schema.fault:
        raise NoColumn(schema.fault)
    if schema.kind not in _KINDS:
        raise NoColumn(f"it is of type {schema.kind}, which is not decoded")
    try:
        return _KINDS[schema.kind](schema)
    except SchemaFault as error:
        raise NoColumn(str(error)) from None


class Rows:
    """Makes rows of decoded data.

    Args:
        type_: the column.
    """

    def __init__(self, type_: pa.StructType) -> None:
        self._type = type_
        self._records: dict[int, bool] = {}

    def row(self, schema: RegisteredSchema, found: Any) -> dict[str, Any]:
        """Return the fields of data by name.

        Args:
            schema: of the data; it has columns.
            found: what :class:`pixy.kafka.schema_decoders.Decoder` returned.

        Raises:
            Exception: the data is not of the schema, or has no place in its column.
        """
        if schema.kind == PROTOBUF:
            return protobuf_row(found, self._type)
        record = self._records.get(schema.id)
        if record is None:
            record = is_record(schema) if schema.kind == JSON else isinstance(found, dict)
            self._records[schema.id] = record
        if not record:
            return {SINGLE: found}
        if not isinstance(found, dict):
            raise TypeError("the data is no object")
        return found


__all__ = ["Rows", "columns_of"]
