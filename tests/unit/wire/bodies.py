"""Message bodies derived from the table: strategies for any body, and fixed ones that use every field."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import strategies as st

from pixy.wire import messages, schema
from pixy.wire.schema import INTEGERS, Field

ALL = [(name, version) for name in messages.names() for version in messages.versions(name)]
LIMITS = {
    "b": (-128, 127),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}
TEXT = st.text(max_size=6) | st.integers(100, 300).map(lambda size: "é" * size)
BLOB = st.binary(max_size=6) | st.integers(120, 300).map(lambda size: b"x" * size)


def body(name: str, version: int, *, unknown_tags: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Any body of a message, with every field of the version."""
    message = schema.message(name)
    tags = unknown_tags and version in message.flexible
    return _struct(message.fields, version, tags)


def _struct(fields: tuple[Field, ...], version: int, tags: bool) -> st.SearchStrategy[dict[str, Any]]:
    made = {each.name: _field(each, version, tags) for each in fields if version in each.versions}
    if not tags:
        return st.fixed_dictionaries(made)
    # Higher than any known tag.
    unknown = st.dictionaries(st.integers(1000, 2**31), st.binary(max_size=5), min_size=1, max_size=2)
    return st.fixed_dictionaries(made, optional={"_tags": unknown})


def _field(field: Field, version: int, tags: bool) -> st.SearchStrategy[Any]:
    value = _value(field, version, tags)
    if field.array:
        value = st.lists(value, max_size=2)
    return st.none() | value if version in field.nullable else value


def _value(field: Field, version: int, tags: bool) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        return _struct(field.fields, version, tags)
    if field.kind in INTEGERS:
        least, most = LIMITS[INTEGERS[field.kind]]
        return st.integers(least, most) | st.sampled_from([least, most])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": TEXT,
        "bytes": BLOB,
        "records": BLOB,
        "uuid": st.uuids() | st.just(uuid.UUID(int=0)),
    }[field.kind]


def typical(name: str, version: int) -> dict[str, Any]:
    """A body with two elements in each array and no default anywhere."""
    return _typical(schema.message(name).fields, version)


def _typical(fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    return {
        each.name: [_one(each, version), _one(each, version)] if each.array else _one(each, version)
        for each in fields
        if version in each.versions
    }


def _one(field: Field, version: int) -> Any:
    if field.kind == "struct":
        return _typical(field.fields, version)
    if field.kind in INTEGERS:
        return 7
    return {
        "bool": True,
        "float64": 1.5,
        "string": "text",
        "bytes": b"data",
        "records": b"records",
        "uuid": uuid.UUID(int=0x0123456789ABCDEF),
    }[field.kind]
