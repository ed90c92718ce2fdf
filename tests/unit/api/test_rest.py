"""The pure parts of the REST API: routes, parameters, JSON."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, strategies as st

from pixy.api.rest import go_json, params
from pixy.api.rest.params import Params
from pixy.api.rest.render import to_json, to_json_flat_lists
from pixy.api.rest.router import METHOD_NOT_ALLOWED, NOT_FOUND, Match, Redirect, route
from pixy.errors import InvalidParameter


def _set_offsets_body(document: object) -> tuple[tuple[int, int, str], ...]:
    return tuple({each[0]: each for each in map(params.offset_of, params.offsets_of(document))}.values())


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/topics/t/messages", Match("produce", "", "t")),
        ("GET", "/topics/t/messages", Match("consume", "", "t")),
        ("POST", "/topics/t/acks", Match("ack", "", "t")),
        ("GET", "/topics/t/offsets", Match("get_offsets", "", "t")),
        ("POST", "/topics/t/offsets", Match("set_offsets", "", "t")),
        ("GET", "/topics/t/consumers", Match("consumers", "", "t")),
        ("GET", "/topics/t", Match("topic", "", "t")),
        ("GET", "/topics", Match("topics")),
        ("GET", "/_ping", Match("ping")),
        ("GET", "/clusters/c/topics", Match("topics", "c")),
        ("GET", "/clusters/c/topics/t/messages", Match("consume", "c", "t")),
        ("GET", "/clusters/c/topics/messages", Match("topic", "c", "messages")),
        ("GET", "/topics/%74", Match("topic", "", "t")),
        ("GET", "/topics/a%2Fb", NOT_FOUND),
        ("GET", "/topics/a%2Fmessages", Match("consume", "", "a")),
        ("GET", "/clusters/c/_ping", NOT_FOUND),
        ("GET", "/topics/", NOT_FOUND),
        ("GET", "/topics/t/messages/", NOT_FOUND),
        ("GET", "/", NOT_FOUND),
        ("GET", "/clusters/c", NOT_FOUND),
        ("GET", "/topics/t/nothing", NOT_FOUND),
        ("HEAD", "/topics", METHOD_NOT_ALLOWED),
        ("PUT", "/topics/t/messages", METHOD_NOT_ALLOWED),
        ("POST", "/_ping", METHOD_NOT_ALLOWED),
        ("GET", "/topics/t/acks", METHOD_NOT_ALLOWED),
        ("GET", "//topics", Redirect("/topics")),
        ("POST", "/topics//t/messages", Redirect("/topics/t/messages")),
        ("GET", "/topics/x/../t/", Redirect("/topics/t/")),
        ("GET", "/topics/..", Redirect("/")),
    ],
)
def test_routes(method: str, path: str, expected: Match | Redirect) -> None:
    assert route(method, path) == expected


@given(st.text(max_size=60))
def test_any_path_is_answered(path: str) -> None:
    assert isinstance(route("GET", "/" + path), (Match, Redirect))


def test_the_body_s_value_wins_and_presence_counts() -> None:
    found = Params(b"key=query&sync=false&sync&a=%zz&b=%41+c", b"key=form")
    assert found.first("key") == b"form"
    assert "sync" in found and "noAck" not in found
    assert "a" not in found and found.first("b") == b"A c"
    assert Params(b"key=").first("key") == b"" and Params(b"").first("key") is None
    assert Params(b"key=%ff%00").first("key") == b"\xff\x00"


@given(
    st.binary(max_size=20)
    | st.lists(st.sampled_from([b"%", b"4", b"f", b"\\", b"x", b"+", b"\n"])).map(b"".join)
)
def test_percent_encoding_is_read_as_others_read_it(text: bytes) -> None:
    text = text.replace(b"&", b"").replace(b";", b"")
    found = Params(b"a=" + text).first("a")
    assert found == (
        None if re.search(b"%(?![0-9A-Fa-f]{2})", text) else unquote_to_bytes(text.replace(b"+", b" "))
    )
    quoted = b"".join(b"%%%02x" % byte for byte in text)
    assert Params(b"a=" + quoted).first("a") == text and (not text or quoted.decode() not in Params(quoted))


def test_a_long_form_is_decoded_in_one_call_into_c() -> None:
    """In processor time, compared with urllib, which takes a step in Python for each byte of the message."""
    form = b"%41" * 200_000

    def took(function: Callable[[], object]) -> float:
        began = time.process_time()
        function()
        return time.process_time() - began

    mine = min(took(lambda: Params(b"", b"msg=" + form)) for _ in range(3))
    assert 5 * mine < min(took(lambda: unquote_to_bytes(form)) for _ in range(3))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (b"", "one consumer group is expected, but 0 provided"),
        (b"group=a&group=b", "one consumer group is expected, but 2 provided"),
        (b"group=%ff", "bad group: not UTF-8"),
    ],
)
def test_group_errors(query: bytes, text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Params(query).group()
    assert str(caught.value) == text


def test_groups() -> None:
    assert Params(b"group=").group() == ""
    assert Params(b"").group(optional=True) == ""
    assert Params(b"group=%D0%BC").group() == "м"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (b"ackPartition=1", "ackPartition and ackOffset either both should be provided or neither"),
        (b"ackOffset=1", "ackPartition and ackOffset either both should be provided or neither"),
        (
            b"ackPartition=foo&ackOffset=1",
            'bad ackPartition: [foo]: strconv.ParseInt: parsing "foo": invalid syntax',
        ),
        (
            b"ackPartition=1&ackOffset=a&ackOffset=b",
            'bad ackOffset: [a b]: strconv.ParseInt: parsing "a": invalid syntax',
        ),
        (b"ackPartition=&ackOffset=1", 'bad ackPartition: []: strconv.ParseInt: parsing "": invalid syntax'),
        (
            b"ackPartition=2147483648&ackOffset=1",
            'bad ackPartition: [2147483648]: strconv.ParseInt: parsing "2147483648": value out of range',
        ),
        (
            b"ackPartition=1&ackOffset=9223372036854775808",
            'bad ackOffset: [9223372036854775808]: strconv.ParseInt: parsing "9223372036854775808": '
            "value out of range",
        ),
        (b"ackPartition=1&ackOffset=" + b"9" * 5000, "value out of range"),
        (b"ackPartition=-1&ackOffset=1", "bad ackPartition: [-1]: must not be negative"),
        ("ackPartition=٣&ackOffset=1".encode(), "invalid syntax"),
    ],
)
def test_ack_errors(query: bytes, text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Params(query).ack("ackPartition", "ackOffset")
    assert text in str(caught.value)


def test_acks() -> None:
    assert Params(b"").ack("p", "o") is None
    assert Params(b"p=2147483647&o=%2B9223372036854775807").ack("p", "o") == (2**31 - 1, 2**63 - 1)


@pytest.mark.parametrize(
    ("content_type", "form", "body"),
    [
        ("text/plain", False, True),
        ("text/plain; charset=utf-8", False, True),
        ("application/json", False, True),
        ("application/json;x", False, True),
        ("application/vnd.api+json", False, True),
        ("application/octet-stream", False, True),
        ("application/x-www-form-urlencoded", True, False),
        ("application/x-www-form-urlencoded; charset=UTF-8", True, False),
        ("application/jsonx", False, False),
        ("", False, False),
        ("text/html", False, False),
    ],
)
def test_content_types(content_type: str, form: bool, body: bool) -> None:
    assert (params.is_form(content_type), params.is_message_body(content_type)) == (form, body)


def test_record_headers_are_canonical_and_in_order() -> None:
    encode = lambda value: base64.b64encode(value).decode()  # noqa: E731
    assert params.record_headers(
        [
            ("x-kafka-foo-BAR", encode(b"1")),
            ("Other", "x"),
            ("X-Kafka-A", ""),
            ("X-KAFKA-foo-bar", encode(b"\xff")),
        ]
    ) == [("Foo-Bar", b"1"), ("A", b""), ("Foo-Bar", b"\xff")]


@pytest.mark.parametrize("value", ["x", "YmFy!", "YmF", "Y mFy", "é"])
def test_bad_base64(value: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        params.record_headers([("x-kafka-foo", value)])
    assert str(caught.value) == "Invalid base64 encoding for header: X-Kafka-Foo"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"garbage", "invalid character 'g' looking for beginning of value"),
        (b"", "unexpected end of JSON input"),
        (b" ", "unexpected end of JSON input"),
        (b"[", "unexpected end of JSON input"),
        (b'[{"a":1', "unexpected end of JSON input"),
        (b'["x', "unexpected end of JSON input"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"{1}", "invalid character '1' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b"[] x", "invalid character 'x' after top-level value"),
        (b"[NaN]", "invalid character 'N' looking for beginning of value"),
    ],
)
def test_go_s_json_errors(body: bytes, text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        go_json.parse(body)
    assert str(caught.value) == f"Failed to parse the request: err=({text})"


@given(st.binary(max_size=80))
def test_any_bytes_are_json_or_a_clear_error(body: bytes) -> None:
    try:
        _set_offsets_body(go_json.parse(body))
    except InvalidParameter as error:
        assert str(error).startswith("Failed to parse the request: err=(")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["partition", "offset", "metadata", "x"]), inner)
        ),
    )
)
def test_any_document_is_offsets_or_a_clear_error(document: object) -> None:
    try:
        offsets = _set_offsets_body(document)
    except InvalidParameter as error:
        assert "json: cannot unmarshal" in str(error)
        return
    assert all(isinstance(p, int) and isinstance(o, int) for p, o, _ in offsets)


def test_set_offsets_body() -> None:
    assert _set_offsets_body(
        [
            {"partition": 0, "offset": 1100, "metadata": "A100", "lag": "ignored"},
            {"Partition": 1},
            {},
            {"partition": 0, "offset": -2},
        ]
    ) == ((0, -2, ""), (1, 0, ""))
    assert _set_offsets_body(None) == ()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "cannot unmarshal object into Go value of type []httpsrv.partitionInfo"),
        ([1], "cannot unmarshal number into Go value of type httpsrv.partitionInfo"),
        (
            [{"partition": "0"}],
            "cannot unmarshal string into Go struct field partitionInfo.partition of type int32",
        ),
        (
            [{"offset": 1.5}],
            "cannot unmarshal number 1.5 into Go struct field partitionInfo.offset of type int64",
        ),
        ([{"partition": 2**31}], "of type int32"),
        ([{"offset": True}], "cannot unmarshal bool"),
        (
            [{"metadata": []}],
            "cannot unmarshal array into Go struct field partitionInfo.metadata of type string",
        ),
    ],
)
def test_set_offsets_type_errors(document: object, text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        _set_offsets_body(document)
    assert text in str(caught.value)


def test_json_is_go_s() -> None:
    document = {"a": '<b>&é\u2028\b\f\n\t"\\b', "list": [], "map": {}}
    assert to_json(document).decode() == (
        '{\n  "a": "\\u003cb\\u003e\\u0026é\\u2028\\u0008\\u000c\\n\\t\\"\\\\b",\n'
        '  "list": [],\n  "map": {}\n}'
    )
    assert json.loads(to_json(document)) == document
    assert to_json("\udcff") == b'"\xef\xbf\xbd"'


def test_consumer_lists_stand_on_one_line() -> None:
    assert to_json_flat_lists({"g": {"c": [0, 1, 2], "d": []}, "h": {}, "<": {"\udcff": [-1]}}).decode() == (
        '{\n  "g": {\n    "c": [0,1,2],\n    "d": []\n  },\n  "h": {},\n'
        '  "\\u003c": {\n    "\ufffd": [-1]\n  }\n}'
    )
    assert to_json_flat_lists({}) == to_json({})


@pytest.mark.parametrize("name", ["g[ 1, 2 ]x", "g[" + " " * 500 + "x", '"[\n1,\n2\n]'])
def test_a_name_that_looks_like_a_list_stays_as_it_is(name: str) -> None:
    found = {name: {name: [0, 1]}}
    assert to_json_flat_lists(found) == to_json({name: {name: "LIST"}}).replace(b'"LIST"', b"[0,1]")


def test_the_time_for_consumers_grows_with_their_names_alone() -> None:
    """Compared with names of the same size and without a bracket, in processor time."""

    def took(name: str) -> float:
        began = time.process_time()
        to_json_flat_lists({name: {"c": [0]}})
        return time.process_time() - began

    # Cubes: 1500 blanks would take 4 seconds.
    assert took("g[" + " " * 1500 + "x") < 100 * max(0.001, took("g-" + " " * 1500 + "x"))
