"""Long requests and answers are decoded and rendered in steps, between which others have their turn."""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import json
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from pixy.api.edge.budget import Budget
from pixy.api.edge.pace import Pace
from pixy.api.limits import STEP
from pixy.api.restv1 import embedded, long_values, produce, reads
from pixy.api.restv1.divided import PIECE
from pixy.api.restv1.embedded import decode_long, decode_value
from pixy.api.restv1.errors import ApiError
from pixy.config.model import Rest
from pixy.kafka.record_headers import UNREADABLE
from tests.unit.api.restv1.test_embedded import Message


class Call:
    """Counts turns of others; ``work`` is what was done before each."""

    def __init__(self, form: str = "binary") -> None:
        self.negotiated = SimpleNamespace(request_format=form, request_api="v2")
        self.config = Rest()
        self.turns = 0

    async def give_way(self) -> None:
        self.turns += 1

    async def begin_turn(self) -> None:
        await asyncio.sleep(0)
        await self.give_way()


async def nothing() -> None:
    """Others have nothing to do."""


def document(records: int, headers: int, value: str = "eA==") -> bytes:
    header = {"key": "h", "value": "eA=="}
    return json.dumps({"records": [{"value": value, "headers": [header] * headers}] * records}).encode()


@pytest.mark.parametrize("form", ["binary", "json"])
async def test_records_of_a_long_body_are_decoded_in_steps(form: str) -> None:
    call: Any = Call(form)
    found = await produce.decode(document(9_900, 9), call)
    assert len(found) == 9_900 and found[-1].headers == [("h", b"x")] * 9
    assert found[-1].value == (b"x" if form == "binary" else b'"eA=="')
    assert call.turns >= 9_900 * 9 // (STEP + 10)


async def test_long_bodies_that_come_together_are_parsed_in_different_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks, parsed = itertools.count(), list[int]()
    steps, parse = Pace(lambda: next(ticks) * 0.01, 1), produce._parse_valid

    def noted(piece: bytes) -> Any:
        parsed.append(now)
        return parse(piece)

    async def give_way() -> None:
        turn = steps.enter("a")
        if turn is not None:
            await steps.wait(turn, "a")

    monkeypatch.setattr(produce, "_parse_valid", noted)
    call: Any = Call()
    call.give_way = give_way
    body, now = document(3, 0, "QUJD" * 250_000), 0
    tasks = [asyncio.ensure_future(produce.decode(body, call)) for _ in range(6)]
    while not all(task.done() for task in tasks):
        now += 1
        await asyncio.sleep(0)
    assert len(parsed) == 6 * 3 and max(parsed.count(each) for each in parsed) <= 2


@pytest.mark.parametrize(("form", "name"), [("binary", "_parse_valid"), ("json", "_parse_list")])
async def test_a_long_body_is_parsed_in_pieces(form: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, parse = list[int](), getattr(produce, name)

    def noted(piece: bytes) -> Any:
        pieces.append(len(piece))
        return parse(piece)

    monkeypatch.setattr(produce, name, noted)
    call: Any = Call(form)
    found = await produce.decode(document(2000, 0, "QUJD" * 1000), call)
    assert len(found) == 2000 and {each.value for each in found} == {
        b"ABC" * 1000 if form == "binary" else b'"%s"' % (b"QUJD" * 1000)
    }
    assert max(pieces) <= 1.1 * PIECE and len(pieces) >= 7 and call.turns >= len(pieces)


async def test_a_long_body_that_is_wrong_has_the_errors_of_a_short_one() -> None:
    call: Any = Call("json")
    good = document(2000, 0, "x" * 1000)
    for bad, text in (
        (good[:-2] + b',{"value":1,"oops":2}]}', "records[2000]: Object contains unknown field `oops`"),
        (good[:-1], "the body is not JSON"),
        (good[:-2] + b',{"value":"\xff"}]}', "the body is not UTF-8"),
        (document(10_001, 0, "x" * 100), "at most 10000 records are taken"),
    ):
        with pytest.raises(ApiError, match=re.escape(text)):
            await produce.decode(bad, call)


async def test_headers_of_a_short_body_are_converted_in_steps() -> None:
    call: Any = Call()
    body = document(1_000, 20)
    assert len(body) < 1 << 20
    assert len(await produce.decode(body, call)) == 1_000
    assert call.turns >= 1_000 * 20 // (STEP + 20)


async def test_long_values_are_decoded_in_steps() -> None:
    call: Any = Call()
    text = "QUJD\\n" * 800_000
    body = b'{"records":[{"value":"%s"},{"value":"eA=="},{"value":"%s*"}]}' % (text.encode(), text.encode())
    first, second, third = await produce.decode(body, call)
    assert first.value == b"ABC" * 800_000 and second.value == b"x"
    assert isinstance(third, ApiError) and "is not a base64 string" in str(third)
    assert call.turns >= 2 * len(text) // embedded.LONG


@given(
    st.binary(max_size=60),
    st.lists(
        st.tuples(
            st.integers(0, 90), st.sampled_from(["\\n", "\\r\\n", " ", "\\u0041", "\\/", "=", "*", "\\\\"])
        )
    ),
    st.integers(13, 40),
)
async def test_a_value_in_pieces_is_the_value_or_the_error(
    data: bytes, odd: list[tuple[int, str]], piece: int
) -> None:
    text = base64.b64encode(data).decode()
    for at, more in odd[:3]:
        text = text[:at] + more + text[at:]
    raw = f'"{text}"'.encode()
    try:
        json.loads(raw)
    except ValueError:
        return  # an escape was divided: no JSON, which the parser has refused
    kept, embedded.LONG = embedded.LONG, piece  # type: ignore[misc]
    try:
        try:
            wanted: Any = decode_value(raw, "value", "binary", v2=True)
        except ApiError as error:
            wanted = str(error)
        try:
            found: Any = await decode_long(raw, "value", nothing, v2=True)
        except ApiError as error:
            found = str(error)
    finally:
        embedded.LONG = kept  # type: ignore[misc]
    assert found == wanted


async def test_what_is_no_string_is_no_base64() -> None:
    with pytest.raises(ApiError, match="is not a base64 string"):
        await decode_long(b"[" + b"1," * 300_000 + b"1]", "value", nothing, v2=True)
    with pytest.raises(binascii.Error):
        binascii.a2b_base64(b"A", strict_mode=True)


@pytest.mark.parametrize(("records", "size", "headers"), [(5_000, 3, 0), (40, 100_000, 0), (200, 3, 50)])
async def test_answers_are_rendered_in_steps(records: int, size: int, headers: int) -> None:
    call: Any = Call()
    found: Any = [
        Message(b"x" * size, b"k", [("h", b"1")] * headers, fields={"at": at}) for at in range(records)
    ]
    text = await reads.render(call, found, "binary")
    assert text == embedded.encode_records([embedded.record_view(each, "binary") for each in found])
    assert call.turns >= 4
    assert await reads.render(call, [], "binary") == b"[]"


async def test_headers_that_cannot_be_read_are_read_again() -> None:
    call: Any = Call()
    found: Any = [Message(b"x" * 2000, None, None) for _ in range(1000)]
    found[-1].record_headers = UNREADABLE

    async def read_headers(messages: Any) -> None:
        messages[-1].record_headers = [("\ufffd", b"")]

    call.cluster = SimpleNamespace(read_headers=read_headers)
    shown = json.loads(await reads.render(call, found, "binary"))
    assert len(shown) == 1000 and shown[-1]["headers"] == [{"key": "\ufffd", "value": ""}]


async def test_records_and_their_json_text_count_while_an_answer_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, held = Budget(1 << 24), list[int]()
    call: Any = Call()
    found: Any = [Message(b"x" * 10_000) for _ in range(200)]

    async def fetch(_read: Any) -> Any:
        return found

    async def answer(body: bytes, **_named: Any) -> bytes:
        return body

    async def give_way() -> None:
        held.append(budget.held)

    monkeypatch.setattr(reads, "_read", lambda *_args: None)
    call.give_way, call.answer, call.share = give_way, answer, budget.share("a")
    call.cluster = SimpleNamespace(fetch=fetch)
    call.negotiated = SimpleNamespace(response_format="binary", records_type=lambda _format: "")
    body: Any = await reads.fetch_many(call)
    assert held and min(held) >= 200 * 10_000 + len(body)


LISTS = b"[" + b"[]," * 700_000 + b"0]"
TEXTS = b'"%b"' % ("é".encode() * 1_000_000)
SPACED = b"[" + b"0 , " * 500_000 + b"0]"


@pytest.mark.parametrize("form", ["binary", "json"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"value":%b}]}' % LISTS,
        b'{"records":[{"value":1},{"key":%b,"value":%b}]}' % (SPACED, TEXTS),
        b'{"x":%b,"records":[{"value":null}]}' % LISTS,
        b'{"records":[{"value":null}],"x":%b}' % TEXTS,
        b'%b{"records":[%b{"value":null}%b]}' % (b" " * 600_000, b" " * 600_000, b" " * 600_000),
        b'{"records":[{"value":%b]}' % LISTS,
        b'{"records":7,"x":%b}' % LISTS,
    ],
    ids=range(7),
)
async def test_nothing_long_is_parsed_in_one_piece(
    form: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a long record, nor what is beside the records, nor a body with an error."""
    long = list[int]()

    def noting(function: Any) -> Any:
        def noted(text: bytes, **options: Any) -> Any:
            long.append(len(text))
            return function(text, **options)

        return noted

    async def once(body: bytes, call: Any) -> Any:
        try:
            return await produce.decode(body, call)
        except ApiError as error:
            return error.kind

    expected = await once(body, Call(form))
    for module, name in ((produce, "_parse_list"), (produce, "_parse_valid"), (long_values, "_skip")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    monkeypatch.setattr(produce, "_loose", None)
    monkeypatch.setattr(long_values.msgspec.json, "format", noting(long_values.msgspec.json.format))
    call: Any = Call(form)
    assert await once(body, call) == expected
    assert max(long) <= 5 * PIECE and call.turns >= len(body) // (4 * PIECE)


async def test_a_long_json_value_is_stored_without_white_space() -> None:
    body = b'{"records":[{"key":%b,"value":%b}]}' % (SPACED, TEXTS)
    (record,) = await produce.decode(body, cast(Any, Call("json")))
    assert isinstance(record, produce.Record)
    assert record.key == SPACED.replace(b" ", b"") and record.value == TEXTS
