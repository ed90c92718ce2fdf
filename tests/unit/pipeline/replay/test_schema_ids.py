"""Replayed records get the schema ids of another registry, which gets the schemas; both are servers on real sockets."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import pytest

from pixy.kafka.schema_registry import Registry, RegistrySettings
from pixy.pipeline.errors import PipelineError
from pixy.pipeline.replay.schema_ids import SchemaIds
from tests.schema_registry import TestRegistry, serving

INNER = json.dumps({"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long"}]})
OUTER = json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]})


@pytest.fixture
def servers() -> Iterator[tuple[TestRegistry, TestRegistry]]:
    with serving(TestRegistry()) as source, serving(TestRegistry()) as target:
        yield source, target


def ids_of(servers: tuple[TestRegistry, TestRegistry]) -> SchemaIds:
    return SchemaIds(*(Registry(RegistrySettings(each.url)) for each in servers), "t", "copy")


def framed(number: int) -> bytes:
    return struct.pack(">bI", 0, number) + b"\6"


def test_ids_are_those_of_the_other_registry(servers: tuple[TestRegistry, TestRegistry]) -> None:
    source, target = servers
    target.register("inner", '"string"')  # so ids and versions differ
    source.register("inner", INNER)
    reference = {"name": "Inner", "subject": "inner", "version": 1}
    number = source.register("t-value", OUTER, references=[reference])
    ids = ids_of(servers)
    values = [framed(number), b"\0\0", b"plain text", None, framed(number)]
    records = [(at, 1000 + at, framed(7), value, [("h", b"x")]) for at, value in enumerate(values)]
    done = ids.change(0, records)
    new = target.register("copy-value", OUTER, references=[{**reference, "version": 2}])
    assert new == 3, "the other registry had it already, with what it refers to"
    assert [value for _, _, _, value, _ in done] == [framed(new), b"\0\0", b"plain text", None, framed(new)]
    # There is no subject of keys.
    assert [record[:3] + record[4:] for record in done] == [record[:3] + record[4:] for record in records]
    asked = len(target.asked)
    assert ids.change(0, records) == done
    assert len(target.asked) == asked
    with pytest.raises(PipelineError, match="the value of offset 0 of partition 5 has schema id 99"):
        ids.change(5, [(0, 0, None, framed(99), None)])


def test_a_topic_without_schemas_is_refused(servers: tuple[TestRegistry, TestRegistry]) -> None:
    with pytest.raises(PipelineError, match="neither subject t-key nor t-value"):
        ids_of(servers)
