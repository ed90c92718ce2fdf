"""A long document of records in pieces is the document as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from pixy.api.restv1 import divided as module
from pixy.api.restv1.divided import Undivided, divided
from tests.effort import examples


class Record(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"null")


class Document(msgspec.Struct):
    records: list[Record] | None = None


decode = msgspec.json.Decoder(list[Record]).decode


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "PIECE", 100)
    monkeypatch.setattr(module, "_LONGEST", 1000)
    yield


def found(body: bytes) -> tuple[list[bytes] | None, int]:
    """The values in a document, and how many parts of it had some; None: it cannot be divided."""
    try:
        parts = [each for each in divided(body, decode) if each]
    except Undivided:
        return None, 0
    return [bytes(record.value) for part in parts for record in part], len(parts)


def whole(body: bytes) -> list[bytes] | None:
    try:
        records = msgspec.json.decode(body, type=Document).records
    except msgspec.DecodeError:
        return None
    return [bytes(record.value) for record in records or ()]


TEXTS = st.sampled_from(["},{", "} , {", '"},{"', "]}", "{", "\\", "x" * 40, '{"value":1},{"value":2}'])
VALUES = st.recursive(
    st.one_of(st.integers(), TEXTS, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXTS, inner, max_size=3),
        st.lists(st.just({}), max_size=20),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(VALUES, max_size=12),
    st.sampled_from([None, 1]),
    st.integers(0, 1000),
    st.sampled_from(["", ",", "}", "]", "{", '"', ",{},", ']},{"records":[', '],"records":[', "\\"]),
)
def test_the_records_are_those_of_the_whole_document(
    values: list[Any], indent: int | None, at: int, odd: str
) -> None:
    text = json.dumps({"records": [{"value": value} for value in values]}, indent=indent)
    body = (text[:at] + odd + text[at:]).encode()
    records, _ = found(body)
    if records is not None:
        assert records == whole(body)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_long_document_is_divided(indent: int | None) -> None:
    text = json.dumps({"records": [{"value": "},{" * (at % 9)} for at in range(100)]}, indent=indent)
    records, parts = found(text.encode())
    assert records == whole(text.encode()) and parts > 10


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"",
        b'{"x":1,"records":[{},{}]}',
        b'{"records":[' + b'{"value":1},' * 50 + b'{}],"x":1}',
        b'{"records":[' + b'{"value":1},' * 50 + b"]}",
        b'{"records":[' + b'{"value":1},' * 50 + b'{"value":}]}',
        b'{"records":[{"value":"' + b"},{" * 500 + b'"}]}',
        b'{"records":[{"value":[' + b"{}," * 500 + b"{}]}]}",
    ],
    ids=range(8),
)
def test_what_is_odd_is_parsed_as_a_whole(body: bytes) -> None:
    assert found(body) == (None, 0)
