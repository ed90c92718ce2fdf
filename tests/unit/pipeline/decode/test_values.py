"""Values in tasks: decoded, or null with the reason."""

from __future__ import annotations

import decimal
import io
import json
import struct
import uuid
from typing import Any

import fastavro
import pyarrow as pa

from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode.planning import DecodePlan, plan_decoding
from pixy.pipeline.decode.values import (
    DECODED,
    INCOMPATIBLE,
    MALFORMED,
    OUTCOMES_OF,
    UNKNOWN,
    ColumnDecoder,
    batch_decoder,
)

FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "int"},
    {"name": "tags", "type": {"type": "map", "values": "int"}},
]
FIRST: dict[str, Any] = {"type": "record", "name": "R", "fields": FIELDS}
OTHER: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "string"}]}


def framed(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def plan(*schemas: Any) -> DecodePlan:
    listed = [RegisteredSchema(at, at, "AVRO", json.dumps(each)) for at, each in enumerate(schemas, 1)]
    return plan_decoding(["t"], {}, {"t-value": listed}.get)


def test_each_value_has_its_outcome() -> None:
    values = [
        framed(1, FIRST, {"n": 7, "tags": {"a": 1}}),
        None,
        b"",
        b"plain text",
        framed(1, FIRST, {"n": 1, "tags": {}})[:6],
        framed(9, FIRST, {"n": 1, "tags": {}}),
        framed(2, OTHER, {"n": "x"}),
    ]
    column, outcomes = ColumnDecoder(plan(FIRST, OTHER).columns[0]).decode(values)
    assert outcomes == [DECODED, None, MALFORMED, MALFORMED, MALFORMED, UNKNOWN, INCOMPATIBLE]
    assert column[0].as_py() == {"n": 7, "tags": [("a", 1)]}
    assert column.is_null().to_pylist() == [False] + [True] * 6


def test_a_value_that_its_column_cannot_hold_does_not_fail_the_others() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    schema = {"type": "record", "name": "M", "fields": [{"name": "m", "type": money}]}
    wide = {"type": "record", "name": "M", "fields": [{"name": "m", "type": {**money, "precision": 30}}]}
    values = [
        framed(1, schema, {"m": decimal.Decimal("1.5")}),
        framed(1, wide, {"m": decimal.Decimal("12345678.5")}),
    ]
    column, outcomes = ColumnDecoder(plan(schema).columns[0]).decode(values)
    assert outcomes == [DECODED, MALFORMED]
    assert column.to_pylist() == [{"m": decimal.Decimal("1.5")}, None]


def test_uuids_and_values_that_are_no_records() -> None:
    kind = {"type": "string", "logicalType": "uuid"}
    one = uuid.uuid4()
    column, outcomes = ColumnDecoder(plan(kind).columns[0]).decode([framed(1, kind, one)])
    assert (column.to_pylist(), outcomes) == ([{"value": str(one)}], [DECODED])


def test_a_batch_of_several_topics_keeps_its_columns() -> None:
    schemas = {
        "raw-value": [RegisteredSchema(1, 1, "THRIFT", "{}")],
        "t-value": [RegisteredSchema(1, 1, "AVRO", json.dumps(FIRST))],
        "t-key": [RegisteredSchema(2, 1, "AVRO", '"string"')],
    }
    found = plan_decoding(["raw", "t"], {}, lambda subject: schemas.get(subject, []))
    good = framed(1, FIRST, {"n": 7, "tags": {}})
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t", "other", "raw", "t"],
            "key": [framed(2, "string", "k"), None, good, None],
            "value": [good, good, good, b"no"],
        }
    )
    done = next(batch_decoder(found.columns)(iter([batch])))
    assert done.schema.names == ["topic", "key", "value", "key_t", "value_t", *OUTCOMES_OF.values()]
    assert done.column("value") == batch.column("value")
    assert done.column("value_t").is_valid().to_pylist() == [True, False, False, False]
    assert done.column("key_t").to_pylist() == [{"value": "k"}, None, None, None]
    assert done.column(OUTCOMES_OF["value"]).to_pylist() == [DECODED, None, INCOMPATIBLE, MALFORMED]
    assert done.column(OUTCOMES_OF["key"]).to_pylist() == [DECODED, None, None, None]
