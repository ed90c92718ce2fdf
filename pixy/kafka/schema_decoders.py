"""Decode data by schemas of a registry, without a connection to it: the data begins with the id of its schema.

Confluent's own code reads the id; fastavro, protobuf and json read the rest. References to other schemas are resolved among
those that came along. Nothing is fetched: a schema is made by whoever may register one.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from pixy.kafka.schema_registry import AVRO, JSON, PROTOBUF, RegisteredSchema

FIRST_MESSAGE: Final = [0]
"""The index of a schema's first message, which is the one that is decoded."""


class UnknownSchema(Exception):
    """Data has the id of a schema that the decoder was not given."""


class OtherMessage(Exception):
    """Data is a message of its Protobuf schema that is not the first."""


class SchemaFault(ValueError):
    """A schema cannot be parsed, or refers to something that did not come along; the text says what."""


class Decoder:
    """Decode data of several schemas.

    Args:
        schemas: what the decoder knows; other ids raise UnknownSchema.
    """

    def __init__(self, schemas: Sequence[RegisteredSchema]) -> None:
        self._schemas = {each.id: each for each in schemas}
        self._readers: dict[int, Callable[[bytes], Any]] = {}
        self._read_avro = _avro_reader(schemas)

    def decode(self, data: bytes) -> tuple[RegisteredSchema, Any]:
        """Decode data by the schema that it was written with; return the schema, and the data.

        Avro and JSON become plain values, Protobuf a message.

        Raises:
            UnknownSchema: the decoder does not know the schema's id.
            OtherMessage: it is not the first message of its schema.
            Exception: there is no id, or the bytes are not of the schema.
        """
        from confluent_kafka.schema_registry.serde import SchemaId

        frame = SchemaId(AVRO)  # the kind matters for what follows the id only
        frame.from_bytes(io.BytesIO(data))
        schema = self._schemas.get(frame.id) if frame.id is not None else None
        if schema is None:
            raise UnknownSchema(frame.id)
        reader = self._readers.get(schema.id)
        if reader is None:
            reader = self._readers[schema.id] = self._reader(schema)
        return schema, reader(data)

    def _reader(self, schema: RegisteredSchema) -> Callable[[bytes], Any]:
        if schema.kind == JSON:
            return lambda data: json.loads(data[5:])
        if schema.kind == PROTOBUF:
            return _protobuf_reader(schema)
        return self._read_avro


# -- Avro -----------------------------------------------------------------------------------------


def avro_schema(schema: RegisteredSchema) -> Any:
    """Return an Avro schema as fastavro has it, with the types of other subjects written out.

    Raises:
        SchemaFault: it cannot be parsed.
    """
    from fastavro.repository import AbstractSchemaRepository
    from fastavro.schema import expand_schema, load_schema

    class Known(AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            return named[name]

    named: dict[str, Any] = {}
    root = "$root"  # no name of Avro
    try:
        _name_all(schema, named)
        named[root] = json.loads(schema.text)
        return expand_schema(load_schema(root, repo=Known()) if schema.references else named[root])
    except Exception as error:  # fastavro raises what it meets in a schema
        raise SchemaFault(f"it cannot be parsed: {type(error).__name__} {error}") from None


def _name_all(schema: RegisteredSchema, named: dict[str, Any]) -> None:
    for name, each in schema.references:
        if name in named:
            continue
        _name_all(each, named)
        found = json.loads(each.text)
        named[name] = found
        if isinstance(found, dict) and "name" in found:
            space = found.get("namespace")
            full = f"{space}.{found['name']}" if space and "." not in found["name"] else found["name"]
            named[full] = found


def _avro_reader(schemas: Sequence[RegisteredSchema]) -> Callable[[bytes], Any]:
    import fastavro.read
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    # A UUID stays the text that it is in Avro: Arrow and Spark have no such type.
    fastavro.read.LOGICAL_READERS["string-uuid"] = lambda data, *_: data
    known: Any = _Known(schemas)
    read: Callable[[bytes], Any] = AvroDeserializer(known, conf={"subject.name.strategy.type": "TOPIC"})
    return read


class _Known:
    """Stands for the registry's client in a task."""

    def __init__(self, schemas: Sequence[RegisteredSchema]) -> None:
        self._by_id = {each.id: _plain(each) for each in schemas}
        self._by_version: dict[tuple[str, int], Any] = {}
        for each in schemas:
            self._add_references(each)

    def _add_references(self, schema: RegisteredSchema) -> None:
        for _, each in schema.references:
            if (each.subject, each.version) not in self._by_version:
                self._by_version[each.subject, each.version] = _Registered(_plain(each))
                self._add_references(each)

    def config(self) -> dict[str, Any]:
        return {}

    def get_schema(self, schema_id: int, *_: Any) -> Any:
        return self._by_id[schema_id]

    def get_version(self, subject: str, version: int, *_: Any) -> Any:
        return self._by_version[subject, version]


class _Registered:
    def __init__(self, schema: Any) -> None:
        self.schema = schema


def _plain(schema: RegisteredSchema) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    references = [SchemaReference(name, each.subject, each.version) for name, each in schema.references]
    return Schema(schema.text, schema.kind, references)


# -- Protobuf -------------------------------------------------------------------------------------


def protobuf_message(schema: RegisteredSchema) -> Any:
    """Return the descriptor of the first message of a Protobuf schema.

    Raises:
        SchemaFault: the registry gave no compiled form of it, or it has no message.
    """
    import confluent_kafka.schema_registry.protobuf  # noqa: F401  it knows Google's types and Confluent's own
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, added = DescriptorPool(), set[str]()
    try:
        _add_file(pool, added, "", schema)
        messages = pool.FindFileByName("").message_types_by_name
    except Exception as error:  # of the library's C++, for what is wrong in a schema
        reason = " ".join(str(error).split())
        raise SchemaFault(f"its compiled form cannot be used: {type(error).__name__} {reason}") from None
    if not messages:
        raise SchemaFault("it has no message")
    return next(iter(messages.values()))


def _add_file(pool: Any, added: set[str], name: str, schema: RegisteredSchema) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in added:
        return
    added.add(name)
    references = dict(schema.references)
    for each, other in references.items():
        _add_file(pool, added, each, other)
    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    file.name = name
    for each in file.dependency:
        if each not in added:
            _add_known_file(pool, added, each)
    pool.Add(file)


def _add_known_file(pool: Any, added: set[str], name: str) -> None:
    """Add a file of Google's or Confluent's own types, which no registry has."""
    from google.protobuf import descriptor_pool

    if name not in added:
        added.add(name)
        file = descriptor_pool.Default().FindFileByName(name)
        for each in file.dependencies:
            _add_known_file(pool, added, each.name)
        pool.AddSerializedFile(file.serialized_pb)


def _protobuf_reader(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    from confluent_kafka.schema_registry.serde import SchemaId
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(protobuf_message(schema))

    def read(data: bytes) -> Any:
        frame = SchemaId(PROTOBUF)
        rest = frame.from_bytes(io.BytesIO(data))
        if frame.message_indexes != FIRST_MESSAGE:
            raise OtherMessage(frame.message_indexes)
        return message.FromString(rest.read())

    return read


# -- JSON -----------------------------------------------------------------------------------------


def json_schema(schema: RegisteredSchema) -> tuple[Any, Any]:
    """Return a JSON Schema, and what looks up its references (:mod:`referencing`), which fetches nothing.

    Raises:
        SchemaFault: it is not JSON.
    """
    from referencing import Registry
    from referencing.jsonschema import DRAFT7

    resources: dict[str, Any] = {}
    try:
        found = json.loads(schema.text)
        _add_resources(schema, resources)
        resources[""] = found
        made: Any = Registry().with_resources(
            (name, _resource(contents, DRAFT7)) for name, contents in resources.items()
        )
        return found, made.resolver_with_root(_resource(found, DRAFT7))
    except Exception as error:  # of the library, for what is wrong in a schema
        raise SchemaFault(f"it cannot be parsed: {type(error).__name__} {error}") from None


def _add_resources(schema: RegisteredSchema, resources: dict[str, Any]) -> None:
    for name, each in schema.references:
        if name not in resources:
            resources[name] = json.loads(each.text)
            _add_resources(each, resources)


def _resource(contents: Any, default: Any) -> Any:
    from referencing import Resource

    return Resource.from_contents(contents, default_specification=default)


__all__ = [
    "Decoder",
    "OtherMessage",
    "SchemaFault",
    "UnknownSchema",
    "avro_schema",
    "json_schema",
    "protobuf_message",
]
