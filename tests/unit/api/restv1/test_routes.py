"""The tree of routes, the byte budget, and the parsing of bodies."""

from __future__ import annotations

import contextlib
import gzip
import json

import msgspec
import pytest
from hypothesis import given, strategies as st

from pixy.api.edge.budget import Budget
from pixy.api.restv1 import bodies
from pixy.api.restv1.app import make_routes
from pixy.api.restv1.call import to_integer
from pixy.api.restv1.errors import ApiError, NotAllowed
from pixy.api.restv1.routes import Match
from pixy.config.model import Rest
from pixy.errors import OverBudget

ROUTES = make_routes()


@pytest.mark.parametrize(
    ("method", "path", "template", "params"),
    [
        ("GET", "/", "/", {}),
        ("POST", "/", "/", {}),
        ("GET", "", "/", {}),
        ("GET", "/brokers", "/brokers", {}),
        ("GET", "/brokers/", "/brokers", {}),
        ("GET", "/topics/t", "/topics/{topic}", {"topic": "t"}),
        ("POST", "/topics/t/", "/topics/{topic}", {"topic": "t"}),
        ("GET", "/topics/a%2Fb/partitions", "/topics/{topic}/partitions", {"topic": "a/b"}),
        (
            "GET",
            "/topics/t/partitions/0/offsets/",
            "/topics/{topic}/partitions/{partition}/offsets",
            {"topic": "t", "partition": "0"},
        ),
        ("GET", "/topics/%F0%9F%98%80", "/topics/{topic}", {"topic": "😀"}),
        ("GET", "/topics/%FF", "/topics/{topic}", {"topic": "\ufffd"}),
        (
            "GET",
            "/consume/t/partitions/1",
            "/consume/{topic}/partitions/{partition}",
            {"topic": "t", "partition": "1"},
        ),
    ],
)
def test_paths(method: str, path: str, template: str, params: dict[str, str]) -> None:
    found = ROUTES.find(method, path)
    assert isinstance(found, Match) and found.cluster == ""
    assert (found.route.template, found.params) == (template, params)
    below = ROUTES.find(method, f"/clusters/c{path or '/'}")
    assert below == Match(found.route, params, "c")


def test_the_cluster_s_name_is_decoded() -> None:
    for path, cluster in (("/clusters/my%20c/brokers", "my c"), ("/clusters/%C3%A9/brokers", "é")):
        found = ROUTES.find("GET", path)
        assert isinstance(found, Match) and found.cluster == cluster


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/topics//partitions", "/topics/t/nothing", "//topics", "/topics/t/partitions/0/offsets/x"],
)
def test_unknown_paths(path: str) -> None:
    found = ROUTES.find("GET", path)
    assert isinstance(found, ApiError) and found.kind.status == 404


def test_the_405_names_the_path_s_methods() -> None:
    found = ROUTES.find("PUT", "/topics/t")
    assert isinstance(found, NotAllowed)
    assert found.kind.status == 405 and found.allowed == {"GET", "POST"}


@given(st.text(max_size=60))
def test_any_path_is_found_or_not(path: str) -> None:
    assert isinstance(ROUTES.find("GET", "/" + path), Match | ApiError)


def test_a_budget_is_shared_and_given_back() -> None:
    budget = Budget(100)
    with budget.share() as first, budget.share() as second:
        first.take(60)
        with pytest.raises(OverBudget, match=r"rest\.max_buffered_bytes"):
            second.take(41)
        assert (second.held, budget.held, budget.refused) == (0, 60, 1)
        second.take(40)
        first.give_back(10)
        first.hold(200)  # bytes that exist count even above the limit
        assert budget.held == 240
    assert (budget.held, budget.most) == (0, 240)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["take", "give", "hold"]), st.integers(0, 80)),
        max_size=40,
    )
)
def test_a_budget_always_counts_what_is_held(steps: list[tuple[int, str, int]]) -> None:
    budget = Budget(150)
    shares = [budget.share() for _ in range(4)]
    for which, what, size in steps:
        share = shares[which]
        if what == "take":
            try:
                share.take(size)
                assert budget.held <= budget.limit
            except OverBudget:
                pass
        elif what == "give":
            share.give_back(size)
        else:
            share.hold(min(size, share.held))
        assert budget.held == sum(share.held for share in shares) and share.held >= 0
    for share in shares:
        share.give_back()
    assert budget.held == 0


class Doc(msgspec.Struct):
    records: list[int] | None = None


DECODER = msgspec.json.Decoder(Doc)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "the body is not JSON: "),
        (b"", 400, "the body is not JSON: "),
        (b'{"records":[1]} x', 400, "the body is not JSON: "),
        (b"[]", 400, "the body: Expected `object`"),
        (b'{"records":"x"}', 422, "records: Expected `array"),
        (b'{"records":[1,"x"]}', 422, "records[1]: Expected `int`"),
        (b"\xff", 400, "the body is not JSON"),
        (b'{"x":' + b"[" * 100_000, 400, "the body is not JSON"),
    ],
)
def test_the_error_of_a_bad_body_names_the_field(body: bytes, status: int, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        bodies.parse(body, DECODER)
    assert caught.value.kind.status == status and str(caught.value).startswith(text), str(caught.value)


def test_unknown_fields_are_ignored() -> None:
    assert bodies.parse(b'{"records":[1],"other":{"deep":[null]}}', DECODER).records == [1]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_a_clear_error(body: bytes) -> None:
    try:
        bodies.parse(body, DECODER)
    except ApiError as error:
        assert error.kind.status in (400, 422)


@pytest.mark.parametrize(
    ("body", "empty"),
    [
        (b"", True),
        (b"{}", True),
        (b" {}\r\n", True),
        (b'""', True),
        (b"null", True),
        (b"{ }", False),
        (b"[]", False),
    ],
)
def test_bodies_that_count_as_empty(body: bytes, empty: bool) -> None:
    assert bodies.is_empty(body) is empty


async def test_a_gzip_body_cannot_become_larger_than_allowed() -> None:
    budget = Budget(10_000_000)
    share = budget.share()
    body = json.dumps({"records": [1] * 1000}).encode()
    assert await bodies.gunzip(gzip.compress(body), Rest(max_request_bytes=100_000), share) == body
    bomb = gzip.compress(b"x" * 5_000_000)
    with pytest.raises(ApiError) as caught:
        await bodies.gunzip(bomb, Rest(max_request_bytes=1_000_000), share)
    assert caught.value.kind.status == 413 and budget.most < 2_000_000
    for size, refused in ((1_000_000, False), (3_000_000, True)):  # a ratio of some 1000
        with contextlib.ExitStack() as stack:
            if refused:
                caught = stack.enter_context(pytest.raises(ApiError, match=r"rest\.max_gzip_ratio"))
            await bodies.gunzip(gzip.compress(b"x" * size), Rest(), share)
    for bad in (b"nonsense", gzip.compress(body)[:-10], gzip.compress(body)[:20]):
        with pytest.raises(ApiError) as caught:
            await bodies.gunzip(bad, Rest(), share)
        assert caught.value.kind.status == 400


@pytest.mark.parametrize("text", ["", "x", "1.5", "--1", "1e3", " 1", "٣", "9" * 30, "-1"])
def test_bad_numbers_name_their_parameter(text: str) -> None:
    with pytest.raises(ApiError, match=r"^count: ") as caught:
        to_integer(text, "count")
    assert caught.value.kind.status == 422
