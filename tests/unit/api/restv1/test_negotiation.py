"""Accept and Content-Type, following the reference's table."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pixy.api.restv1 import negotiation
from pixy.api.restv1.call import accepts_gzip
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.negotiation import MOST, media_type, negotiate, parse_accept, speaks_kafka

V1, V2 = "application/vnd.kafka.v1+json", "application/vnd.kafka.v2+json"
BINARY_V1, JSON_V1 = "application/vnd.kafka.binary.v1+json", "application/vnd.kafka.json.v1+json"
BINARY_V2, JSON_V2 = "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.json.v2+json"


@pytest.mark.parametrize(
    ("content_type", "format_", "api"),
    [
        (BINARY_V1, "binary", "v1"),
        (V1, "binary", "v1"),
        ("application/vnd.kafka+json", "binary", "v1"),
        ("application/json", "binary", "v1"),
        ("application/octet-stream", "binary", "v1"),
        (None, "binary", "v1"),
        ("", "binary", "v1"),
        (JSON_V1, "json", "v1"),
        (BINARY_V2, "binary", "v2"),
        (JSON_V2, "json", "v2"),
        (V2, "binary", "v2"),
        ("Application/Vnd.Kafka.JSON.v2+JSON; charset=utf-8", "json", "v2"),
    ],
)
def test_the_format_and_version_of_a_body(content_type: str | None, format_: str, api: str) -> None:
    found = negotiate(None, content_type, has_body=True)
    assert (found.request_format, found.api) == (format_, api)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/xml",
        "application/vnd.kafka.avro.v1+json",
        "application/vnd.kafka.jsonschema.v2+json",
        "application/vnd.kafka.protobuf.v2+json",
        "application/vnd.kafka.binary.v3+json",
        "application/vnd.kafka.foo.v2+json",
        "nonsense",
    ],
)
def test_an_unknown_body_type_is_415_if_there_is_a_body(content_type: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate(None, content_type, has_body=True)
    assert (caught.value.kind.status, caught.value.kind.code) == (415, 415)
    assert content_type.lower() in str(caught.value)
    negotiate(None, content_type, has_body=False)


@pytest.mark.parametrize(
    ("accept", "answers", "wanted"),
    [
        (None, "plain", V1),
        ("*/*", "plain", V1),
        ("", "plain", V1),
        (None, "records", BINARY_V1),
        ("*/*", "records", BINARY_V1),
        ("application/*", "plain", V1),
        (V1, "plain", V1),
        (V2, "plain", V2),
        ("application/json", "plain", "application/json"),
        ("application/vnd.kafka+json", "plain", "application/vnd.kafka+json"),
        (f"{V1}, application/vnd.kafka+json; q=0.9, application/json; q=0.8", "plain", V1),
        (f"application/json, application/vnd.kafka+json, {V1}", "plain", V1),
        (f"{V1}; q=0.1, application/json; q=0.8", "plain", "application/json"),
        (f"{V1}; q=0, application/json", "plain", "application/json"),
        ("text/html, */*;q=0.1", "plain", V1),
        (JSON_V2, "records", JSON_V2),
        (f"text/html, {BINARY_V1}", "records", BINARY_V1),
        (V2, "records", V2),
    ],
)
def test_the_content_type_of_an_answer(accept: str | None, answers: str, wanted: str) -> None:
    found = negotiate(accept, None, answers)  # type: ignore[arg-type]
    assert (found.records_type("binary") if answers == "records" else found.content_type) == wanted


def test_the_content_type_names_the_format_of_a_read_without_one() -> None:
    assert negotiate(None, None, "records").records_type("json") == JSON_V1
    assert negotiate("*/*", JSON_V2, "records").records_type("json") == JSON_V2


def test_without_accept_the_body_sets_the_version() -> None:
    assert negotiate("*/*", BINARY_V2).content_type == V2
    assert negotiate(V1, BINARY_V2).content_type == V1
    assert negotiate("*/*", None, only="v2").content_type == V2


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/xml, image/*",
        "application/vnd.kafka.avro.v2+json",
        "application/vnd.kafka.v3+json",
        f"{V1};q=0",
    ],
)
def test_an_accept_without_a_type_of_this_api_is_406(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate(accept, None)
    assert (caught.value.kind.status, caught.value.kind.code) == (406, 406)


@pytest.mark.parametrize(
    ("accept", "content_type", "ours"),
    [
        (V1, None, True),
        ("*/*", BINARY_V2, True),
        ("text/html", JSON_V2, True),
        ("*/*", "application/json", False),
        (None, None, False),
        ("application/json", None, False),
        ("application/json, application/VND.Kafka+json;q=0.1", "", True),
    ],
)
def test_which_api_a_request_is_for(accept: str | None, content_type: str | None, ours: bool) -> None:
    assert speaks_kafka(accept, content_type) is ours


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_any_headers_are_understood_or_refused(accept: str, content_type: str, body: bool) -> None:
    try:
        negotiate(accept, content_type, has_body=body)
    except ApiError as error:
        assert error.kind.status in (406, 415)


def test_types_are_ordered_by_their_weight() -> None:
    assert [kind.full for kind in parse_accept("a/b;q=0.5, c/d, e/f;q=x, g/h;level=1;q=0.7")] == [
        "c/d",
        "g/h",
        "a/b",
    ]
    assert media_type("v2", "json") == JSON_V2


def test_long_headers_are_neither_read_nor_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """16,000 types, of 40 ms and 2 MB; Accept-Encoding and Content-Type alike."""
    long = ",".join(f"a/{number}" for number in range(16_000)) + "," + V2
    assert negotiate(None, V2 + "; x=" + "x" * 60_000, has_body=True).api == "v2"
    remembered = (negotiation._parse, negotiation._parse_accept, negotiation._negotiate)
    before = [each.cache_info().currsize for each in remembered]
    for _ in range(2):
        with pytest.raises(ApiError, match=f"longer than {MOST} characters") as caught:
            negotiate(long, None)
        assert caught.value.kind.status == 406
    assert parse_accept(long) == ()
    assert [each.cache_info().currsize for each in remembered] == before
    seen: list[str] = []

    def parse(text: str) -> negotiation.MediaType:
        seen.append(text)
        return negotiation.MediaType("")

    monkeypatch.setattr(negotiation, "_parse", parse)
    negotiation.parse("x" * 60_000)
    negotiate(None, "y" * 60_000)
    assert [len(text) for text in seen] == [MOST, MOST]
    assert accepts_gzip("gzip") and not accepts_gzip("x," * MOST + "gzip")
