"""A long document of records, whatever else is in it, is read as the parser reads it as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from pixy.api.restv1 import long_documents as module, long_values
from pixy.api.restv1.long_documents import TooMany, read
from pixy.api.restv1.produce import _loose, _LooseRecord, _parse_list
from tests.unit.api.restv1.test_long_values import VALUES, Turns


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(long_values, "PIECE", 40)
    monkeypatch.setattr(long_values, "_LAST", 20)
    monkeypatch.setattr(long_values, "_FIRST", 10)
    monkeypatch.setattr(module, "PIECE", 40)
    monkeypatch.setattr(module, "MOST", 400)
    monkeypatch.setattr(module, "_LEAST", 50)
    yield


def shown(records: list[_LooseRecord] | None) -> list[Any] | None:
    return (
        None
        if records is None
        else [(bytes(each.key), bytes(each.value), each.partition, each.headers) for each in records]
    )


async def found(body: bytes, most: int = 100_000) -> list[Any] | None:
    return shown(await read(body, _parse_list, most, Turns()))


def whole(body: bytes) -> list[Any] | None:
    return shown(_loose.decode(body).records)


HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=3)}), max_size=20)
RECORDS = st.fixed_dictionaries(
    {}, optional={"key": VALUES, "value": VALUES, "partition": st.integers(0, 9), "headers": HEADERS}
)
ODD = [
    b"",
    b",",
    b"}",
    b"]",
    b"{",
    b"[",
    b'"',
    b":",
    b"1",
    b'"x":1,',
    b",{},",
    b']},{"records":[',
    b'],"records":[',
    b"\\",
]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(RECORDS, max_size=12),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.integers(0, 3000),
    st.sampled_from(ODD),
)
async def test_the_records_are_those_of_the_whole_document(
    records: list[Any], others: dict[str, Any], behind: bool, indent: int | None, at: int, odd: bytes
) -> None:
    document = {"records": records, **others} if behind else {**others, "records": records}
    text = json.dumps(document, indent=indent).encode()
    assert await found(text) == whole(text)
    wrong = text[:at] + odd + text[at:]
    try:
        expected = whole(wrong)
    except msgspec.DecodeError:
        with pytest.raises(msgspec.DecodeError):
            await found(wrong)
    else:
        assert await found(wrong) == expected


LONG = b'{"value":[%b0]}' % (b"[]," * 100)
MANY = b'{"value":1},' * 99


@pytest.mark.parametrize(
    "body",
    [
        b" [] ",
        b"null",
        b"%b" % (b" " * 100),
        b'{"records":"%b"}' % (b"x" * 100),
        b'{"records":7}',
        b'{"records":[%b7,%b]}' % (MANY, LONG),
        b'{"records":[%b%b,{"value":1,"oops":%b}]}' % (MANY, LONG, LONG),
        b'{"records":[%b,{"value":%b,"partition":%b}]}' % (LONG, LONG, LONG),
        b'{"records":[%b{"partition":-1},%b]}' % (MANY, LONG),
        b'{"records":[%b,{"headers":[{"key":1}],"value":%b}]}' % (LONG, LONG),
        b'{"records":[%b,%b],"x":%b} x' % (LONG, LONG, LONG),
        b'{"records":[%b,]}' % LONG,
        b'{"records":[%b],}' % LONG,
        b'{"records":[%b]' % LONG,
        b'{"records":[%b}' % LONG,
        b'{"records" [%b]}' % LONG,
        b"{records:[%b]}" % LONG,
    ],
    ids=range(17),
)
async def test_errors_are_those_of_the_whole_document(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as expected:
        whole(body)
    with pytest.raises(msgspec.DecodeError) as raised:
        await found(body)
    assert str(raised.value) == str(expected.value)
    assert type(raised.value) is type(expected.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":%b,"records":null}' % LONG,
        b'{"x":%b}' % LONG,
        b'{"records":[%b],"records":[{"value":2}]}' % LONG,
        b'{"records":[%b],"records":[]}' % LONG,
        b'{"\\u0072ecords":[%b]}' % LONG,
        b'{"records":[{"\\u0076alue":%b,"value":3}]}' % LONG,
        b'{"records":[{"value":3,"value":%b,"key":"%b"}]}' % (LONG, b"\\n" * 100),
        b'{"records":[%b{"value":%b}]}' % (MANY, b" " * 400 + b"1" + b" " * 400),
    ],
    ids=range(8),
)
async def test_what_is_odd_and_right_is_read(body: bytes) -> None:
    assert await found(body) == whole(body)


async def test_members_and_records_are_bounded() -> None:
    for body in (
        b'{%b"x":1}' % (b'"x":1,' * 50),
        b'{"records":[%b{}]}' % MANY,
        b'{"records":[{%b"value":1}]}' % (b'"key":1,' * 50),
    ):
        await found(body)
        with pytest.raises(TooMany):
            await found(body, 20)


async def test_headers_of_a_long_record_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_HEADERS", 500)
    headers = b'{"records":[{},{"headers":[%b{"key":"h"}],"value":%b}]}'
    await found(headers % (b'{"key":"h"},' * 30, LONG))
    with pytest.raises(msgspec.ValidationError, match=r"at most 500 bytes - at `\$.records\[1\].headers`"):
        await found(headers % (b'{"key":"h"},' * 100, LONG))


async def test_no_piece_is_parsed_again_for_each_small_record_before_a_long_one() -> None:
    parsed = list[int]()

    def parse(piece: bytes) -> list[Any]:
        parsed.append(len(piece))
        return _parse_list(piece)

    inside = b'{"value":[%b{}]}' % (b'{"value":0},{"value":0},' * 400)
    body = b'{"records":[%b%b]}' % (MANY * 5, inside)
    await read(body, parse, 100_000, Turns())
    assert sum(parsed) < 5 * len(body)
