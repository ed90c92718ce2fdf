"""Long requests of the original's REST API are read in pieces, between which others have their turn."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from multidict import CIMultiDict

from pixy.api.rest import admin_endpoints, go_json, params
from pixy.api.rest.admin_endpoints import AdminEndpoints
from pixy.api.rest.endpoints import Endpoints
from pixy.api.rest.params import Params
from pixy.engine.message_spans import MessageSpans
from pixy.errors import InvalidParameter


class Request:
    """Counts turns of others."""

    def __init__(self, content_type: str = "") -> None:
        self.headers = {"Content-Type": content_type}
        self.raw_path = "/topics/t/x?group=g&key=%41"
        self.protocol = self
        self.turns = 0

    async def take_turn(self) -> None:
        self.turns += 1


class Cluster:
    """Notes what it is asked for."""

    proxy = SimpleNamespace(producer=SimpleNamespace(max_message_bytes=1_000_000))

    def __init__(self) -> None:
        self.got: Any = None

    async def set_offsets(self, _topic: str, _group: str, offsets: Any) -> None:
        self.got = offsets

    async def produce_async(self, _topic: str, value: bytes, key: bytes | None, _headers: Any) -> None:
        self.got = (value, key)


async def ask(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, body: bytes, content_type: str
) -> tuple[Any, int]:
    """Have a request answered; return what the cluster was asked for, and the turns of others."""

    async def read(*_about: Any) -> bytes:
        return body

    monkeypatch.setattr(Endpoints, "_read_body", read)
    request, cluster = Request(content_type), Cluster()
    match: Any = SimpleNamespace(cluster="", topic="t")
    endpoints = Endpoints.__new__(Endpoints)
    endpoints._propagates, endpoints._spans = False, MessageSpans()
    await getattr(endpoints, endpoint)(request, match, cluster)
    return cluster.got, request.turns


@pytest.mark.parametrize(
    ("raw", "value"), [(b"%41\\", b"A\\"), (b"+", b" "), (b"a%zz", None)], ids=["escapes", "blanks", "wrong"]
)
async def test_a_long_form_is_decoded_in_pieces(
    monkeypatch: pytest.MonkeyPatch, raw: bytes, value: bytes | None
) -> None:
    form = (b"msg=" + raw * 200_000, "application/x-www-form-urlencoded")
    if value is None:
        with pytest.raises(InvalidParameter, match="empty message"):
            await ask(monkeypatch, "_produce", *form)
        return
    found, turns = await ask(monkeypatch, "_produce", *form)
    assert found == (value * 200_000, b"A")
    assert turns >= len(form[0]) // params.LONG - 1


@given(
    st.lists(
        st.sampled_from([b"%41", b"%", b"%4", b"%zz", b"\\", b"+", b"a", b"=", b"&", b";", b"msg"]),
        max_size=40,
    )
)
async def test_a_long_form_has_the_parameters_of_a_short_one(parts: list[bytes]) -> None:
    form, request = b"".join(parts), Request()
    long = params.LONG
    try:
        params.LONG = 5
        found = await Params.read(b"a=1&a=2", form, request.take_turn)
    finally:
        params.LONG = long
    assert found._values == Params(b"a=1&a=2", form)._values


def test_what_no_parameter_is_called_is_not_decoded() -> None:
    found = Params(b"%b=1&b=2" % (b"a" * 257))
    assert found._values == {"b": [b"2"]}


@pytest.mark.parametrize(
    "metadata", ["\ud800" * 300_000, "é" * 300_000, "x" * 300_000], ids=["surrogates", "text", "ascii"]
)
async def test_offsets_with_much_metadata_are_converted_in_pieces(
    monkeypatch: pytest.MonkeyPatch, metadata: str
) -> None:
    """A body of 4 MiB took 300 ms."""
    document = [{"partition": 1, "offset": 2, "metadata": metadata}]
    document += [{"partition": each, "metadata": "\udfff" * 1000} for each in range(2, 300)]
    found, turns = await ask(monkeypatch, "_set_offsets", json.dumps(document).encode(), "application/json")
    assert found[0] == (1, 2, metadata.replace("\ud800", "\ufffd"))
    assert len(found) == 299 and found[-1] == (299, 0, "\ufffd" * 1000)
    assert turns >= 8 + len(metadata) // params.LONG


async def test_a_long_document_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request()
    monkeypatch.setattr(go_json, "_PIECE", 3)
    for body in ("é€\U0001f600x".encode() * 3, b"\xff\xf0\x9f\x98" * 3, b"ab", b""):
        assert await go_json.text_of(body, request.take_turn) == body.decode("utf-8", "replace")
    assert request.turns >= 10


async def test_a_document_about_a_topic_that_is_nested_too_deep_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read(*_about: Any) -> bytes:
        return b'{"x":' + b"[" * 100_000

    monkeypatch.setattr(admin_endpoints, "read_body", read)
    endpoints: Any = AdminEndpoints.__new__(AdminEndpoints)
    with pytest.raises(InvalidParameter, match="exceeded max depth"):
        await endpoints._body(SimpleNamespace(headers=CIMultiDict()), _Kind)


class _Kind(msgspec.Struct):
    name: str = ""
