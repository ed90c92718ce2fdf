"""Values of a topic with a schema registry become typed columns; their bytes stay as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.type.money_pb2 import Money

from pixy.kafka import settings
from pixy.kafka.bulk import read_range
from pixy.kafka.schema_registry import Registry, RegistryError, RegistrySettings
from pixy.pipeline.archive.optimize import Optimizer
from pixy.pipeline.lake.selection import Selection
from pixy.pipeline.replay.job import ReplayJob
from pixy.pipeline.replay.request import ReplayRequest
from pixy.pipeline.replay.schema_ids import SchemaIds
from pixy.pipeline.replay.state import ReplayState
from pixy.pipeline.spark.predicate import find
from tests.integration.pipeline.delta import delta_rows
from tests.integration.pipeline.support import World, assert_sound
from tests.schema_registry import TestRegistry, serving

pytestmark = pytest.mark.timeout(1200)

MIDNIGHT = 1_700_006_400_000
"""2023-11-15."""


def record(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


FIRST = record(("number", "int"), ("note", ["null", "string"]))
SECOND = record(
    ("number", "long"), ("note", ["null", "string"]), ("tags", {"type": "array", "items": "string"})
)
THIRD = record(("number", "string"))


def produce(world: World, server: TestRegistry, topic: str, values: list[tuple[str, Any]], at: int) -> None:
    """Write values as a producer of Confluent's does; bytes and None go as they are."""
    client = SchemaRegistryClient({"url": server.url})
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0]})
    context = SerializationContext(topic, MessageField.VALUE)
    for number, (schema, value) in enumerate(values):
        data = (
            AvroSerializer(client, schema, conf={"subject.name.strategy.type": "TOPIC"})(value, context)
            if schema
            else value
        )
        producer.produce(topic, data, b"k", 0, timestamp=at + number)
    assert producer.flush(30) == 0


def produce_others(world: World, server: TestRegistry, topic: str) -> None:
    """Write a Protobuf value with a key of JSON."""
    world.kafka.create_topic(topic, 1, **{"retention.ms": "-1"})
    client = SchemaRegistryClient({"url": server.url})
    schema = json.dumps({"title": "Key", "type": "object", "properties": {"id": {"type": "integer"}}})
    conf = {"subject.name.strategy.type": "TOPIC"}
    key = JSONSerializer(schema, client, conf=conf)({"id": 5}, SerializationContext(topic, MessageField.KEY))
    value = ProtobufSerializer(Money, client, conf=conf)(
        Money(currency_code="EUR", units=9), SerializationContext(topic, MessageField.VALUE)
    )
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0]})
    producer.produce(topic, value, key, timestamp=MIDNIGHT)
    assert producer.flush(30) == 0


def test_typed_columns_grow_and_what_does_not_fit_stays_raw(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1, **{"retention.ms": "-1"})
    column = f"value_{name}"
    with serving(TestRegistry()) as server:
        registry = Registry(RegistrySettings(server.url, timeout=5.0))
        produce(
            world, server, name, [(FIRST, {"number": 1, "note": None}), ("", b"plain"), ("", None)], MIDNIGHT
        )
        produce_others(world, server, f"{name}-p")
        first = world.archive(name, f"{name}-p", decode=registry)
        assert first.decoded["value", name] == {
            "decoded": 1,
            "incompatible": 0,
            "unknown schema": 0,
            "malformed": 1,
        }
        for part in ("key", "value"):
            assert first.decoded[part, f"{name}-p"]["decoded"] == 1
        # The second batch has a schema with one more field, one that does not fit, and records of two days.
        more = [
            (FIRST, {"number": 2, "note": "b"}),
            (SECOND, {"number": 1 << 40, "note": None, "tags": ["x"]}),
        ]
        produce(world, server, name, [*more, (THIRD, {"number": "x"})], MIDNIGHT - 2)
        second = world.archive(name, decode=registry)
        assert second.decoded["value", name] == {
            "decoded": 2,
            "incompatible": 1,
            "unknown schema": 0,
            "malformed": 0,
        }
        with serving(TestRegistry()) as other:
            other.register("filler", '"string"')
            assert replayed(world, registry, other, name) == [
                {"number": 1, "note": None},
                {"number": 2, "note": "b"},
                {"number": 1 << 40, "note": None, "tags": ["x"]},
                {"number": "x"},
            ]

    lake = world.lake()
    assert_sound(lake)
    assert lake.state().partition_stats(name) == world.truth(name)
    events = [each for entry in lake.history() for each in entry.events]
    assert f"topic {name}: 1 values decoded, kept raw: 1 malformed" in events
    assert f"topic {name}: 2 values decoded, kept raw: 1 incompatible" in events
    assert [each for each in events if "number is string, its column is int64" in each]

    wanted = [
        {"number": 1, "note": None, "tags": None},
        None,
        None,
        {"number": 2, "note": "b", "tags": None},
        {"number": 1 << 40, "note": None, "tags": ["x"]},
        None,
    ]
    assert seen(world, column) == wanted
    rows = delta_rows(world).orderBy("offset").collect()
    assert [row[column] and row[column].asDict() for row in rows if row["topic"] == name] == wanted
    (other,) = [row for row in rows if row["topic"] != name]
    assert other[f"value_{name}-p"].asDict() == {"currency_code": "EUR", "units": 9, "nanos": 0}
    assert other[f"key_{name}-p"].asDict() == {"id": 5}
    files = [lake.location.for_spark(file.path) for file in lake.state().select(name)]
    found = find(world.spark, files, f"`{column}`.number = 2", world.lake().table.typed_columns())
    assert [(partition, list(offsets)) for partition, offsets in found] == [(0, [3])]

    # Other jobs that write files keep the columns: optimize, and an archive that does not decode.
    assert Optimizer(world.spark, lake).run("2030-01-01", name).files_before == 2
    assert len(world.lake().state().select(name)) == 2
    assert seen(world, column) == wanted
    assert_sound(world.lake())
    # The registry is gone: nothing is published without its answer.
    world.produce(name, 1)
    with pytest.raises(RegistryError, match="does not answer"):
        world.archive(name, decode=registry)
    world.archive(name)
    assert seen(world, column) == [*wanted, None]


def replayed(world: World, registry: Registry, other: TestRegistry, topic: str) -> list[Any]:
    """Replay a topic with ids of another registry; return the Avro values that a consumer of that one sees."""
    to = f"{topic}-copy"
    ids = SchemaIds(registry, Registry(RegistrySettings(other.url)), topic, to)
    request = ReplayRequest(topic, to, Selection(), create=True, registries=("one", other.url))
    state = ReplayState(str(world.folder / "replay"))
    ReplayJob(world.lake(), request, world.proxy, world.view, state, change=ids.change).run()
    client = SchemaRegistryClient({"url": other.url})
    decode = AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"})
    values = [each.value for each in read_range(settings.common(world.proxy), to, 0, 0, 6)]
    assert [values[1], values[2]] == [b"plain", None]
    return [decode(value) for value in values if value and value != b"plain"]


def seen(world: World, column: str) -> list[Any]:
    """Read a column with delta-rs and pyarrow, by offset."""
    table = DeltaTable(str(world.folder / "lake" / "data")).to_pyarrow_table(
        columns=["offset", column], filters=[("topic", "=", column.removeprefix("value_"))]
    )
    return [row[column] for row in table.sort_by("offset").to_pylist()]
