"""Encode and decode keys and values embedded in JSON."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from pixy.api.restv1.embedded import UnreadableHeaders, decode_value, encode_records, record_view
from pixy.api.restv1.errors import ApiError
from pixy.kafka.record_headers import UNREADABLE


@dataclass
class Message:
    """A message with the methods of confluent-kafka's."""

    bytes_value: bytes | None
    bytes_key: bytes | None = None
    record_headers: Any = None
    at: tuple[int, int] = (1, 1234)
    fields: dict[str, Any] = field(default_factory=dict)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 7

    def key(self) -> bytes | None:
        return self.bytes_key

    def value(self) -> bytes | None:
        return self.bytes_value

    def headers(self) -> Any:
        if isinstance(self.record_headers, Exception):
            raise self.record_headers
        return self.record_headers

    def set_headers(self, headers: Any) -> None:
        self.record_headers = headers

    def timestamp(self) -> tuple[int, int]:
        return self.at

    def __len__(self) -> int:
        return len(self.bytes_value or b"")


def shown(message: Message, embedded: str) -> dict[str, Any]:
    [found] = json.loads(encode_records([record_view(message, embedded)]))  # type: ignore[arg-type]
    assert isinstance(found, dict)
    return found


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("null", None),
        ("0", b"0"),
        ("false", b"false"),
        ('""', b'""'),
        ("{}", b"{}"),
        ("[]", b"[]"),
        ("1.10", b"1.10"),
        ("12345678901234567890123", b"12345678901234567890123"),
        ('{ "a" : [ 1 , 2 ] }', b'{"a":[1,2]}'),
        ('"a b"', b'"a b"'),
        ('"\\u00e9"', b'"\\u00e9"'),
    ],
)
def test_peers_defect_falsy_json_values_keep_their_values(text: str, stored: bytes | None) -> None:
    """Others write 0, false, "" and {} as empty bytes, or refuse numbers and booleans."""
    assert decode_value(text.encode(), "value", "json") == stored
    found = shown(Message(stored), "json")
    assert found["value"] == json.loads(text) and "error" not in found


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("null", None),
        ('""', b""),
        ('"YQ=="', b"a"),
        ('"AP8="', b"\x00\xff"),
        ('"YW\\nJj"', b"abc"),
        ('" YW\\t\\r\\n\\f\\u000bJj\\u001c\\u001f"', b"abc"),
        ('"\\/\\/8="', b"\xff\xff"),
    ],
)
def test_binary_distinguishes_null_from_empty(text: str, stored: bytes | None) -> None:
    assert decode_value(text.encode(), "value", "binary") == stored
    found = shown(Message(stored, stored), "binary")
    assert found["value"] == found["key"] == (None if stored is None else base64.b64encode(stored).decode())


@pytest.mark.slow
@given(JSON_VALUES)
def test_any_json_value_round_trips(value: object) -> None:
    stored = decode_value(json.dumps(value).encode(), "value", "json")
    assert (stored is None) is (value is None)
    assert shown(Message(stored), "json")["value"] == value


@given(st.none() | st.binary(), st.none() | st.binary())
def test_any_bytes_round_trip(key: bytes | None, value: bytes | None) -> None:
    found = shown(Message(value, key), "binary")
    assert decode_value(json.dumps(found["key"]).encode(), "key", "binary") == key
    assert decode_value(json.dumps(found["value"]).encode(), "value", "binary") == value


@pytest.mark.parametrize("text", ['"!"', '"YQ"', '"YQ==="', "1", "{}", "true", '["YQ=="]', '"é"'])
def test_bad_base64_is_reported_in_the_words_of_each_version(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_value(text.encode(), "value", "binary")
    assert (caught.value.kind.status, str(caught.value)) == (
        422,
        "Record value contains invalid base64 encoding",
    )
    with pytest.raises(ApiError) as caught:
        decode_value(text.encode(), "key", "binary", v2=True)
    assert (caught.value.kind.status, str(caught.value)) == (400, f"data={text} is not a base64 string.")


def test_what_is_no_string_is_refused_without_decoding_it() -> None:
    """In processor time, compared with only finding its end; to make a list of each element takes fifty times as long."""
    text = b"[" + b"[]," * 1_000_000 + b"[]]"

    def took(function: Callable[[], object]) -> float:
        began = time.process_time()
        function()
        return time.process_time() - began

    def decode() -> None:
        with pytest.raises(ApiError, match=r"data=\[\[\],.*\.\.\. is not a base64 string"):
            decode_value(text, "value", "binary", v2=True)

    looked = min(took(lambda: msgspec.json.decode(text, type=msgspec.Raw)) for _ in range(3))
    assert min(took(decode) for _ in range(3)) < 10 * max(0.002, looked)


@given(st.none() | st.binary(), st.binary())
def test_peers_defect_an_undecodable_record_is_an_entry_and_loses_nothing(
    key: bytes | None, value: bytes
) -> None:
    """Others answer 422 for the batch after the position has moved."""
    found = shown(Message(value, key), "json")
    if "error" not in found:
        assert json.loads(value) == found["value"]
        return
    assert found["error_code"] == 40801 and "is not JSON" in found["error"]
    assert found["value"] is None and found["key"] is None
    assert base64.b64decode(found["raw_value"]) == value
    assert found["raw_key"] == (None if key is None else base64.b64encode(key).decode())
    assert (found["topic"], found["partition"], found["offset"]) == ("t", 1, 7)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff",
        b'"\xff"',
        b"nul",
        b"1 2",
        b"[" * 100_000,
        b'{"a":}',
        b"01",
        b"\xef\xbb\xbf1",
    ],
)
def test_values_that_are_not_json(value: bytes) -> None:
    found = shown(Message(value), "json")
    assert found["value"] is None and found["error_code"] == 40801


def test_headers_and_timestamp_are_additive_keys() -> None:
    found = shown(Message(b"v", record_headers=[("a", b"\xff"), ("a", None), ("b", b"")]), "binary")
    assert found["headers"] == [
        {"key": "a", "value": "/w=="},
        {"key": "a", "value": None},
        {"key": "b", "value": ""},
    ]
    assert found["timestamp"] == 1234
    assert list(shown(Message(b"v", at=(0, -1)), "binary")) == [
        "topic",
        "key",
        "value",
        "partition",
        "offset",
    ]


@pytest.mark.parametrize("refusal", [SystemError("NULL"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")])
def test_headers_that_cannot_be_decoded_are_asked_for_once_and_then_left_out(refusal: Exception) -> None:
    broken = Message(b"v", record_headers=refusal)
    with pytest.raises(UnreadableHeaders):
        record_view(broken, "binary")
    assert broken.record_headers is UNREADABLE, "the list with a null pointer is gone from the message"
    [found] = json.loads(encode_records([record_view(broken, "binary", lenient=True)]))
    assert found["value"] == "dg==" and found["error_code"] == 40801 and "headers" not in found
