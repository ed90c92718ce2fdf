"""Protobuf and JSON Schema become columns as Avro does, and schemas may refer to others."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F

from pixy.kafka.schema_decoders import protobuf_message
from pixy.kafka.schema_registry import RegisteredSchema
from pixy.pipeline.decode.planning import plan_decoding
from pixy.pipeline.decode.schema_columns import columns_of
from pixy.pipeline.decode.structs import MAX_FIELDS, TIMESTAMP, NoColumn
from pixy.pipeline.decode.values import DECODED, INCOMPATIBLE, MALFORMED, ColumnDecoder


def file_of(*messages: dict[str, Any], dependency: tuple[str, ...] = ()) -> str:
    """Compile a file of the package ``shop``; fields are (name, type, name of the message or enum, more)."""
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3", package="shop", dependency=dependency)
    file.enum_type.add(name=f"State{len(messages)}").value.add(name=f"NEW{len(messages)}", number=0)
    for each in messages:
        message = file.message_type.add(name=each["name"])
        for number, (name, kind, of, more) in enumerate(each["fields"], 1):
            field = message.field.add(
                name=name, number=number, type=kind, label=F.LABEL_OPTIONAL, type_name=of or None
            )
            field.MergeFrom(F(**more))
            if more.get("proto3_optional"):
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}")
        if each.get("map"):
            entry = message.nested_type.add(name="CountsEntry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=F.TYPE_BOOL, label=F.LABEL_OPTIONAL)
            entry.field.add(name="value", number=2, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    return base64.b64encode(file.SerializeToString()).decode()


REPEATED = {"label": F.LABEL_REPEATED}
MONEY = file_of({"name": "Money", "fields": [("units", F.TYPE_INT64, "", {})]})
ORDER = file_of(
    {
        "name": "Order",
        "map": True,
        "fields": [
            ("number", F.TYPE_UINT32, "", {}),
            ("big", F.TYPE_UINT64, "", {}),
            ("state", F.TYPE_ENUM, ".shop.State2", {}),
            ("tags", F.TYPE_STRING, "", REPEATED),
            ("counts", F.TYPE_MESSAGE, ".shop.Order.CountsEntry", REPEATED),
            ("at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp", {}),
            ("note", F.TYPE_MESSAGE, ".google.protobuf.StringValue", {}),
            ("maybe", F.TYPE_DOUBLE, "", {"proto3_optional": True}),
            ("parent", F.TYPE_MESSAGE, ".shop.Order", {}),
            ("price", F.TYPE_MESSAGE, ".shop.Money", {}),
        ],
    },
    {"name": "Other", "fields": [("x", F.TYPE_BYTES, "", {})]},
    dependency=("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "common/money.proto"),
)
COMMON = RegisteredSchema(6, 1, "PROTOBUF", MONEY, "money")
PROTOBUF = RegisteredSchema(7, 1, "PROTOBUF", ORDER, "t-value", (("common/money.proto", COMMON),))


def framed(schema: RegisteredSchema, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema.id) + data


def decode(schema: RegisteredSchema, *data: bytes) -> tuple[list[Any], list[str | None]]:
    plan = plan_decoding(["t"], {}, lambda subject: [schema] if subject == "t-value" else [])
    column, outcomes = ColumnDecoder(plan.columns[0]).decode(data)
    return column.to_pylist(), outcomes


def test_a_protobuf_message_has_columns() -> None:
    found, left_out = columns_of(PROTOBUF)
    assert found == pa.struct(
        [
            ("number", pa.int64()),
            ("big", pa.decimal128(20, 0)),
            ("state", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("at", TIMESTAMP),
            ("note", pa.string()),
            ("maybe", pa.float64()),
            ("price", pa.struct([("units", pa.int64())])),
        ]
    )
    assert left_out == ["parent: the recursive message shop.Order"]


def test_protobuf_values() -> None:
    from google.protobuf.message_factory import GetMessageClass

    order: Any = GetMessageClass(protobuf_message(PROTOBUF))
    full = order(
        number=7,
        big=(1 << 64) - 1,
        state=5,
        tags=["a"],
        counts={True: 2},
        at=datetime.datetime.fromtimestamp(1, datetime.UTC),
        note={"value": ""},
        maybe=0.0,
        parent={},
        price={"units": 3},
    )
    late = order()
    late.at.seconds = 1 << 40
    rows, outcomes = decode(
        PROTOBUF,
        framed(PROTOBUF, b"\0" + full.SerializeToString()),
        framed(PROTOBUF, b"\0"),
        framed(PROTOBUF, b"\2\2"),  # the second message
        framed(PROTOBUF, b"\0\xff"),
        framed(PROTOBUF, b"\0" + late.SerializeToString()),
    )
    assert outcomes == [DECODED, DECODED, INCOMPATIBLE, MALFORMED, MALFORMED]
    assert rows[0] == {
        "number": 7,
        "big": decimal.Decimal((1 << 64) - 1),
        "state": "5",
        "tags": ["a"],
        "counts": [("true", 2)],
        "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        "note": "",
        "maybe": 0.0,
        "price": {"units": 3},
    }
    # What knows whether it is set is null; the rest has its default.
    assert rows[1] == {
        **dict.fromkeys(rows[0]),
        "number": 0,
        "big": 0,
        "state": "NEW2",
        "tags": [],
        "counts": [],
    }
    assert rows[2:] == [None, None, None]


def json_of(**schema: Any) -> RegisteredSchema:
    return RegisteredSchema(1, 1, "JSON", json.dumps(schema), "t-value")


def test_a_json_schema_has_columns() -> None:
    text = {"type": ["string", "null"]}
    address = RegisteredSchema(3, 1, "JSON", json.dumps({"definitions": {"A": text}}), "address")
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "when": {"type": "string", "format": "date-time"},
            "kind": {"enum": ["a", "b"]},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "city": {"$ref": "address.json#/definitions/A"},
            "self": {"$ref": "#"},
            "two": {"type": ["string", "integer"]},
            "outside": {"$ref": "http://localhost:1/x.json"},
            "any": {},
            "a b": text,
        },
        "$defs": {"Inner": {"properties": {"x": text}}},
    }
    found, left_out = columns_of(
        RegisteredSchema(1, 1, "JSON", json.dumps(schema), "t-value", (("address.json", address),))
    )
    assert found == pa.struct(
        [
            ("n", pa.int64()),
            ("when", pa.string()),
            ("kind", pa.string()),
            ("maybe", pa.float64()),
            ("list", pa.list_(pa.struct([("x", pa.string())]))),
            ("map", pa.map_(pa.string(), pa.bool_())),
            ("city", pa.string()),
        ]
    )
    assert [each.partition(":")[0] for each in left_out] == ["self", "two", "outside", "any", "a b"]


def test_json_values() -> None:
    schema = json_of(type="object", properties={"n": {"type": "integer"}})
    texts = (b'{"n": 1, "more": 2}', b"{}", b'{"n": "1"}', b"[1]", b"{", b'{"n": 1e30}')
    rows, outcomes = decode(schema, *(framed(schema, text) for text in texts))
    assert outcomes == [DECODED, DECODED, *[MALFORMED] * 4]
    assert rows == [{"n": 1}, {"n": None}, None, None, None, None]
    number = json_of(type="number")
    assert decode(number, framed(number, b"1.5")) == ([{"value": 1.5}], [DECODED])


def test_avro_that_refers_to_another_subject() -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "a", "fields": [{"name": "x", "type": "long"}]}
    outer = {
        "type": "record",
        "name": "Outer",
        "namespace": "a",
        "fields": [{"name": "i", "type": "a.Inner"}],
    }
    one = RegisteredSchema(1, 1, "AVRO", json.dumps(inner), "inner")
    schema = RegisteredSchema(2, 1, "AVRO", json.dumps(outer), "t-value", (("a.Inner", one),))
    assert columns_of(schema)[0] == pa.struct([("i", pa.struct([("x", pa.int64())]))])
    assert decode(schema, framed(schema, b"\6")) == ([{"i": {"x": 3}}], [DECODED])


def test_what_is_no_schema_says_why() -> None:
    wrong = (
        RegisteredSchema(1, 1, "PROTOBUF", 'syntax = "proto3";'),
        RegisteredSchema(1, 1, "PROTOBUF", file_of()),
        RegisteredSchema(1, 1, "PROTOBUF", ORDER),  # what it refers to is missing
        RegisteredSchema(1, 1, "JSON", "{"),
        RegisteredSchema(1, 1, "JSON", "true"),
        RegisteredSchema(1, 1, "AVRO", '"int"', fault="it refers to nothing"),
    )
    for each in wrong:
        with pytest.raises(NoColumn) as caught:
            columns_of(each)
        assert "\n" not in str(caught.value)


def test_a_schema_that_grows_without_end_is_cut() -> None:
    """Each definition uses the next one twice."""
    names = {f"D{n}": f"#/definitions/D{n + 1}" for n in range(14)}
    definitions: dict[str, Any] = {
        name: {"properties": {"a": {"$ref": ref}, "b": {"$ref": ref}}} for name, ref in names.items()
    }
    definitions["D14"] = {"type": "string"}
    found, left_out = columns_of(
        json_of(properties={"d": {"$ref": "#/definitions/D0"}}, definitions=definitions)
    )
    assert found.names == ["d"]
    assert f"more than {MAX_FIELDS} fields" in left_out[0]
