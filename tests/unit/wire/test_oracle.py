"""Compare with kafka-python's codecs, an independent implementation of the same schemas.

In every message and version that it knows: what is encoded here it decodes to the same values and
encodes to the same bytes, and what it encodes is decoded here.
"""

from __future__ import annotations

import types
import uuid
from importlib import resources
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from kafka.protocol import schemas
from kafka.protocol.api_data import ApiData
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage

from pixy.wire import messages
from tests.effort import QUICK
from tests.unit.wire import bodies


def _classes() -> dict[str, Any]:
    """kafka-python's codec of each schema it ships, without the changes its classes make for its own clients."""
    registered = dict(ResponseClassRegistry._response_class_registry)
    found: dict[str, Any] = {}
    for file in resources.files(f"{schemas.__name__}.resources").iterdir():
        name = file.name.removesuffix(".json")
        if name.startswith("ConsumerProtocol"):
            found[name] = type(ApiData)(name, (ApiData,), {})
        elif name.endswith(("Request", "Response")):
            found[name] = type(ApiMessage)(name, (ApiMessage,), {})
    ResponseClassRegistry._response_class_registry.clear()
    ResponseClassRegistry._response_class_registry.update(registered)
    return found


THEIRS = _classes()
SHARED = [
    (name, version) for name, version in bodies.ALL if name in THEIRS and version <= THEIRS[name].max_version
]


def to_theirs(container: Any, body: dict[str, Any], version: int) -> Any:
    """Convert a structure of ours to an object whose attributes kafka-python's encoders read."""
    return types.SimpleNamespace(**_values(container, body, version), unknown_tags=None, tags=None)


def _values(struct: Any, body: dict[str, Any], version: int) -> dict[str, Any]:
    found = {}
    for field in struct._fields:
        if field._name not in body:
            continue
        value = body[field._name]
        if field.is_struct_array() and value is not None:
            value = [to_theirs(field, each, version) for each in value]
        elif field.tag is not None and value in (uuid.UUID(int=0), _defaults(field, version)):
            # kafka-python writes such a tagged field even with its default; Kafka's own code does not.
            value = field.default
        elif field.is_struct() and value is not None:
            value = to_theirs(field, value, version)
        found[field.name] = value
    return found


def _defaults(struct: Any, version: int) -> dict[str, Any]:
    return {each._name: each.default for each in struct._fields or () if each.for_version_q(version)}


def from_theirs(item: Any, struct: Any, version: int) -> dict[str, Any]:
    """Convert an object of kafka-python to a body of ours."""
    found: dict[str, Any] = {}
    for field in struct._fields:
        if not field.for_version_q(version):
            continue
        value = getattr(item, field.name)
        if field.is_struct_array() and value is not None:
            value = [from_theirs(each, field, version) for each in value]
        elif field.is_struct() and value is not None:
            value = from_theirs(value, field, version)
        elif field.is_struct() and field.tag is not None:  # an absent tagged field
            value = _defaults(field, version)
        elif field._type_str == "uuid":
            value = (
                uuid.UUID(int=0)
                if value is None
                else value
                if isinstance(value, uuid.UUID)
                else uuid.UUID(value)
            )
        elif isinstance(value, memoryview):
            value = bytes(value)
        found[field._name] = value
    return found


def test_enough_messages_can_be_compared() -> None:
    assert len(SHARED) > 380, len(SHARED)
    wanted = {
        "JoinGroupRequest",
        "SyncGroupResponse",
        "FetchResponse",
        "ProduceRequest",
        "ApiVersionsResponse",
    }
    assert wanted <= {name for name, _ in SHARED}


@pytest.mark.parametrize(("name", "version"), SHARED)
def test_each_decodes_the_others_bytes(name: str, version: int) -> None:
    theirs = THEIRS[name]

    @settings(
        max_examples=2 if QUICK else 4, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(bodies.body(name, version, unknown_tags=False))
    @example(bodies.typical(name, version))
    @example(messages.defaults(name, version))
    def check(body: dict[str, Any]) -> None:
        data = messages.encode(name, version, body)
        options = {} if issubclass(theirs, ApiMessage) else {"header": False}
        item = theirs.decode(data, version=version, **options)
        assert from_theirs(item, theirs._struct, version) == body
        made = theirs(version=version, **_values(theirs._struct, body, version))
        assert bytes(made.encode(**options)) == data
        assert messages.decode(name, version, bytes(item.encode(**options))) == body

    check()
