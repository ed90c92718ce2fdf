"""Columns of Avro schemas, and how they grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode import schema_columns
from pixy.pipeline.decode.evolution import Incompatible, merge
from pixy.pipeline.decode.planning import plan_decoding
from pixy.pipeline.decode.structs import NoColumn
from tests.unit.pipeline.support import make_lake


def columns_of(text: str) -> tuple[pa.StructType, list[str]]:
    return schema_columns.columns_of(RegisteredSchema(1, 1, "AVRO", text))


def record(**fields: Any) -> str:
    listed = [{"name": name, "type": each} for name, each in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": listed})


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ("int", pa.int64()),
        (["null", "float"], pa.float64()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, pa.decimal128(5, 2)),
        ({"type": "array", "items": "string"}, pa.list_(pa.string())),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64())),
        (
            {"type": "record", "name": "In", "fields": [{"name": "x", "type": "bytes"}]},
            pa.struct([("x", pa.binary())]),
        ),
    ],
)
def test_types(avro: Any, arrow: pa.DataType) -> None:
    assert columns_of(record(f=avro)) == (pa.struct([("f", arrow)]), [])


@pytest.mark.parametrize(
    ("avro", "why"),
    [
        (["int", "string"], "union of several"),
        ("null", "always null"),
        (["null", "R"], "recursive record R"),
        (
            {
                "type": "record",
                "name": "V",
                "logicalType": "variant",
                "fields": [{"name": "value", "type": "bytes"}],
            },
            "a variant",
        ),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}, "39 digits"),
        ({"type": "record", "name": "Empty", "fields": []}, "without fields"),
    ],
)
def test_a_field_without_a_column_is_left_out_and_named(avro: Any, why: str) -> None:
    found, left_out = columns_of(record(f=avro, kept="long"))
    assert found == pa.struct([("kept", pa.int64())])
    assert len(left_out) == 1
    assert left_out[0].startswith("f: ")
    assert why in left_out[0]


def test_what_is_no_record_and_what_is_no_schema() -> None:
    assert columns_of('"string"') == (pa.struct([("value", pa.string())]), [])
    for text in ("{", '["null", "int"]', '{"type": "map", "values": "int"}', '"Unknown"', "[]", "7"):
        with pytest.raises(NoColumn):
            columns_of(text)
    found, left_out = columns_of(record(a="int", A="int"))
    assert found.names == ["a"]
    assert "A: " in left_out[0]


def test_fields_are_added_at_the_end_and_none_goes() -> None:
    old = pa.struct([("a", pa.int64()), ("in", pa.struct([("x", pa.int64())]))])
    new = pa.struct([("in", pa.struct([("y", pa.string()), ("x", pa.int64())])), ("b", pa.bool_())])
    inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
    assert merge(old, new) == pa.struct([("a", pa.int64()), ("in", inner), ("b", pa.bool_())])


def test_another_type_or_spelling_is_named_with_its_path() -> None:
    old = pa.struct([("in", pa.list_(pa.struct([("x", pa.int64())])))])
    with pytest.raises(Incompatible, match=r"in\.x is string, its column is int64"):
        merge(old, pa.struct([("in", pa.list_(pa.struct([("x", pa.string())])))]))
    with pytest.raises(Incompatible, match="spelled otherwise"):
        merge(pa.struct([("a", pa.int64())]), pa.struct([("A", pa.int64())]))


def test_the_plan_of_a_batch() -> None:
    schemas = {
        "t-value": [
            RegisteredSchema(1, 1, "AVRO", record(a="int")),
            RegisteredSchema(2, 2, "AVRO", record(a="string")),
            RegisteredSchema(3, 3, "AVRO", record(a="long", b="string")),
            RegisteredSchema(4, 4, "THRIFT", "{}"),
        ]
    }
    present = {"value_T2": pa.struct([("x", pa.int64())])}
    plan = plan_decoding(["t", "t2", "none"], present, lambda subject: schemas.get(subject, []))
    (one,) = plan.columns
    assert one.column == "value_t"
    assert one.type == pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert [each.id for each in one.schemas] == [1, 3]
    assert one.refused == {
        2: "a is string, its column is int64",
        4: "it is of type THRIFT, which is not decoded",
    }
    assert plan.added({"value_t": pa.struct([("a", pa.int64())])}) == {"value_t": one.type}
    assert plan.added({"value_t": one.type}) == {}
    assert "in case only" in plan.remarks["t2"][0]
    assert "no subject none-value" in plan.remarks["none"][0]


def test_a_table_gets_columns_and_fields_that_its_readers_see(tmp_path: Path) -> None:
    table = make_lake(tmp_path / "lake").table
    assert table.typed_columns() == {}
    narrow = pa.struct([("a", pa.int64())])
    wide = pa.struct([("a", pa.int64()), ("m", pa.map_(pa.string(), pa.int64())), ("l", pa.list_(narrow))])
    wider = merge(
        wide, pa.struct([("l", pa.list_(pa.struct([("b", pa.string())]))), ("s", pa.struct([("x", narrow)]))])
    )
    for each in (narrow, wide, wider):
        table.add_columns({"value_a.b-c": each})
        table.refresh()
        assert merge(table.typed_columns()["value_a.b-c"], each) == table.typed_columns()["value_a.b-c"]
        plan = plan_decoding([], {}, lambda _: [])
        assert plan.added(table.typed_columns()) == {}
    assert table.typed_columns() == {"value_a.b-c": wider}
