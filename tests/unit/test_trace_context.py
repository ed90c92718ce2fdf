"""W3C trace context: what is valid, whose wins, and what a consumer gets."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from pixy.api.propagation import add_context, of_metadata, of_request, with_context
from pixy.config import Kafka, Proxy
from pixy.config.kinds import KafkaVersion
from pixy.trace_context import context_of, of_record

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LATER = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes"
CONTEXT = (("traceparent", PARENT.encode()), ("tracestate", b"a=1,b=2"))


@pytest.mark.parametrize("parent", [PARENT, PARENT[:-2] + "00", LATER, LATER[:55]])
def test_a_valid_context_is_passed_on_as_it_is(parent: str) -> None:
    assert context_of(parent) == (("traceparent", parent.encode()),)
    assert of_record(context_of(parent)) == (("traceparent", parent),)


@pytest.mark.parametrize(
    "parent",
    [
        "", "x", PARENT.upper(), PARENT + "-more", PARENT[:-1], "ff" + PARENT[2:], PARENT + "\n", "0" + PARENT,
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), PARENT.replace("b7ad6b7169203331", "0" * 16),
        LATER + "x" * 600, LATER + "\u00fc", "\u0660" + PARENT[1:],
    ],
)  # fmt: skip
def test_another_text_is_no_context(parent: str) -> None:
    assert context_of(parent, ["a=1"]) == ()
    assert of_record([("traceparent", parent.encode())]) == ()


def test_a_state_that_is_too_long_or_odd_is_left_out_and_lines_are_joined() -> None:
    assert context_of(PARENT, ["a=1", "b=2"]) == CONTEXT
    for odd in ("a=" + "1" * 600, "a=\n", "ü"):
        assert [name for name, _ in context_of(PARENT, [odd])] == ["traceparent"]


def test_requests_of_both_transports_have_one() -> None:
    headers = CIMultiDict({"TraceParent": PARENT})
    headers.extend([("tracestate", "a=1"), ("TraceState", "b=2")])
    assert of_request(headers) == CONTEXT
    metadata = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2"), ("x-bin", b"\xff")]
    assert of_metadata(metadata) == CONTEXT
    assert of_request(CIMultiDict({"tracestate": "a=1"})) == () == of_metadata(None)


class Record:
    """A record of a request."""

    key, value = b"k", b"v"

    def __init__(self, headers: list[tuple[str, bytes | None]] | None) -> None:
        self.headers = headers


def test_a_record_that_has_its_own_keeps_it() -> None:
    own: list[tuple[str, bytes | None]] = [("Traceparent", b"mine")]
    records = [Record(None), Record([("a", b"1"), ("tracestate", b"left=over")]), Record(own)]
    add_context(Proxy(), records, CONTEXT)
    assert records[0].headers == [*CONTEXT]
    assert records[1].headers == [("a", b"1"), *CONTEXT]
    assert records[2].headers == [("Traceparent", b"mine")]


def test_a_context_makes_no_message_too_large_and_none_for_an_old_kafka() -> None:
    proxy = Proxy()
    proxy.producer.max_message_bytes = 10_000
    assert with_context(proxy, b"k", b"v" * 5000, (), CONTEXT) == [*CONTEXT]
    assert with_context(proxy, b"k", b"v" * 9000, (), CONTEXT) == ()
    old = Proxy(kafka=Kafka(version=KafkaVersion("0.10.2.0")))
    assert with_context(old, None, b"v", (), CONTEXT) == ()


def test_a_consumer_gets_the_context_of_the_record_whatever_the_case_of_its_name() -> None:
    stored = [("TraceParent", PARENT.encode()), ("tracestate", b"a=1"), ("other", None)]
    assert of_record(stored) == (("traceparent", PARENT), ("tracestate", "a=1"))
    assert of_record([("tracestate", b"a=1"), ("traceparent", None)]) == ()
