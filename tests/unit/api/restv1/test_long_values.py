"""A long JSON value in fragments is the value as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from pixy.api.restv1 import long_values as module
from pixy.api.restv1.long_values import Work, check_utf8, compact, end_of

decode = msgspec.json.Decoder(msgspec.Raw).decode


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "PIECE", 40)
    monkeypatch.setattr(module, "_LAST", 20)
    monkeypatch.setattr(module, "_FIRST", 10)
    yield


class Turns:
    """Counts turns of others."""

    def __init__(self) -> None:
        self.given = 0

    async def __call__(self) -> None:
        self.given += 1


def problem(text: bytes) -> str:
    """What the parser says of a value; empty if it is right."""
    try:
        decode(text)
    except msgspec.DecodeError as error:
        return str(error)
    return ""


async def found_problem(text: bytes) -> str:
    try:
        end = await end_of(text, 0, Work(Turns()))
    except msgspec.DecodeError as error:
        return str(error)
    return "" if end == len(text) else "trailing"


STRINGS = st.one_of(
    st.text(max_size=4),
    st.sampled_from(['"}{][,:', "\\", '\\"', "x" * 90, "\n\t" * 30, "\U0001f600" * 30, "é€" * 30, "]},{["]),
)
VALUES = st.recursive(
    st.one_of(st.sampled_from([0, -2.5e10, True, None, 10**60]), STRINGS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(STRINGS, inner, max_size=4),
        st.lists(st.sampled_from([[], {}, "", 1]), max_size=40),
    ),
    max_leaves=12,
)
ODD = [
    b"",
    b'"',
    b"\\",
    b",",
    b":",
    b"[",
    b"]",
    b"{",
    b"}",
    b" ",
    b"1",
    b".5",
    b"tru",
    b"\\u12",
    b"\\ud800",
    b"\0",
]


@settings(max_examples=200, deadline=None)
@given(
    VALUES,
    st.sampled_from([None, 1]),
    st.booleans(),
    st.integers(0, 1000),
    st.integers(0, 3),
    st.sampled_from(ODD),
)
async def test_a_value_is_as_right_and_as_compact_as_the_parser_says(
    value: Any, indent: int | None, ascii_only: bool, at: int, cut: int, odd: bytes
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    wrong = (text[:at] + odd + text[at + cut :]).strip()
    for each in (text, wrong):
        expected = problem(each)
        assert bool(await found_problem(each)) == bool(expected), each
        if not expected:
            assert await compact(each, Turns()) == msgspec.json.format(each, indent=-1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[%b1 2]" % (b"0," * 100), "expected ',' or ']' (byte 203)"),
        (b"[%b}" % (b"[],[[]]," * 50), "(byte 401)"),
        (b'["%b\\x"]' % (b"\\\\" * 100), "invalid escaped character (byte 203)"),
        (b"[%b.5]" % (b" " * 100 + b"1" + b" " * 100), "expected ',' or ']' (byte 202)"),
        (b"[" * 100, "truncated"),
        (b'{"a":[%b' % (b"1," * 100), "truncated"),
    ],
    ids=range(6),
)
async def test_errors_name_the_place_in_the_whole_text(text: bytes, expected: str) -> None:
    assert expected in await found_problem(text)


async def test_others_have_their_turn_after_each_fragment() -> None:
    for text in (b"[%b0]" % (b"[]," * 1000), b'"%b"' % (b"\\n" * 1000), b"[%b]" % (b" " * 2000)):
        turns = Turns()
        await end_of(text, 0, Work(turns))
        assert turns.given >= len(text) // 40 - 3
        turns = Turns()
        await compact(text, turns)
        assert turns.given >= len(text) // 40 - 1


async def test_no_fragment_is_much_longer_than_a_piece() -> None:
    text = b'{"a":[[%b"%b",{"b":%b}]]}' % (b"[0]," * 500, b"\\\\" * 500, b" " * 500 + b"1")
    ends = [fragment.end for fragment in module.fragments(text, 0)]
    assert ends[-1] == len(text)
    assert max(end - begin for begin, end in zip([0, *ends], ends, strict=False)) <= 41


async def test_a_number_is_divided_nowhere_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_DIGITS", 1000)
    assert await found_problem(b"[0,%b]" % (b"1" * 900)) == ""
    assert await found_problem(b"1" * 900) == ""
    for text in (b"[0,%b]", b"%b", b'{"a":%b,"b":0}'):
        assert "more than 1000 digits" in await found_problem(text % (b"1" * 3000))


async def test_what_is_nested_too_deep_is_refused() -> None:
    for text in (b"[" * 100_000, b'{"":' * 100_000, b"[" * 50_000 + b"]" * 50_000):
        with pytest.raises(RecursionError):
            await end_of(text, 0, Work(Turns()))


@pytest.mark.parametrize(
    "text",
    [
        "é€\U0001f600x".encode() * 30,
        b"a" * 39 + b"\xff",
        b"a" * 38 + "€".encode()[:2],
        b"\x80" * 100,
        b"\xc3" * 100,
        b"",
    ],
    ids=range(6),
)
async def test_utf8_is_checked_as_a_whole(text: bytes) -> None:
    expected = found = ""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        expected = str(error)
    try:
        await check_utf8(text, Turns())
    except UnicodeDecodeError as error:
        found = str(error)
    assert found == expected
