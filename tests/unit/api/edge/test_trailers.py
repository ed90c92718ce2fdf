"""Chunked bodies are followed to their ends, wherever their bytes are divided."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpServer
from pixy.api.edge.trailers import ChunkedBody, Trailers
from pixy.config.model import Connections

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def followed(data: bytes, cuts: list[int]) -> tuple[ChunkedBody, int]:
    """Feed a body in pieces; the second value is where it ends in all of ``data``, or -1."""
    body, begin = ChunkedBody(), 0
    for end in [*sorted(cuts), len(data)]:
        at = body.feed(data[begin:end], 0)
        if at >= 0:
            return body, begin + at
        begin = end
    return body, -1


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_the_end_is_found_and_whether_there_are_trailers(
    chunks: list[bytes], cuts: list[int], trailers: bool
) -> None:
    data = b"".join(b"%X;e=1\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\n"
    end = len(data) + (6 if trailers else 2)
    data += b"X: y\r\n\r\n" if trailers else b"\r\n"
    body, at = followed(data + b"GET / HTTP/1.1\r\n", [cut for cut in cuts if cut < len(data)])
    assert (at, body.trailers, body.size) == (end, trailers, sum(map(len, chunks)))


@pytest.mark.parametrize(
    "line", [b"x\r\n", b"-1\r\n", b"0x1\r\n", b"1_0\r\n", b"\r\n", b"1\n", b"1;" + b"x" * 2000]
)
def test_what_is_no_chunk_is_not_followed(line: bytes) -> None:
    body, at = followed(line, [])
    assert at >= 0 and body.trailers


def request(chunked: bool, size: int = 0, *, ended: bool = True, method: str = "POST") -> tuple[Any, Any]:
    body = SimpleNamespace(total_bytes=size, is_eof=lambda: ended)
    return SimpleNamespace(method=method, chunked=chunked), body


def test_requests_of_one_piece_are_told_apart() -> None:
    plain = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n\r\n\r\n0\r\n\r\n"
    get = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    clean, trailed = HEAD + b"1\r\nx\r\n0\r\n\r\n", HEAD + b"1\r\nx\r\n0\r\nX: y\r\n\r\n"
    fresh = [request(False, 9), request(True, 1), request(False, method="GET"), request(True, 1)]
    assert Trailers().follow(plain + clean + get + clean, b"", 0, fresh) is None
    assert Trailers().follow(plain + clean + get + trailed, b"", 0, fresh) is fresh[1], "the first may be it"
    assert Trailers().follow(b"rest" + clean, b"", 4, fresh[1:2]) is None
    assert Trailers().follow(plain, b"", 0, fresh[:1]) is None, "nothing is chunked"


def test_a_body_goes_on_in_the_next_piece() -> None:
    trailers, open_, ended = Trailers(), request(True, ended=False), [False]
    open_[1].is_eof = lambda: ended[0]
    assert trailers.follow(HEAD[40:] + b"5\r\nab", HEAD[37:40], 0, [open_]) is None
    open_[1].total_bytes, ended[0] = 5, True
    assert trailers.follow(b"cde\r\n0\r\n\r\n", b"\nab", 3, []) is None
    assert trailers.follow(HEAD + b"0\r\n\r\n", b"\r\n\r\n"[-3:], 0, [request(True)]) is None


@pytest.mark.parametrize(
    ("data", "fresh"),
    [
        (HEAD + b"1\r\nx\r\n0\r\n\r\n", [request(True, 2)]),  # the parser has seen another body
        (HEAD + b"1\r\nx\r\n0\r\n", [request(True, 1)]),  # and its end
        (HEAD + b"1\r\nx\r\n0\r\n\r\n", [request(True, 1, method="PUT")]),  # behind another begin
        (HEAD + b"1\r\nx\r\n0\r\n\r\n", [request(True, 1), request(True, 1)]),  # and more requests
        (b"", [request(True, 1)]),
    ],
)
def test_where_the_parser_does_not_agree_the_connection_ends(
    data: bytes, fresh: list[tuple[Any, Any]]
) -> None:
    if fresh[0][0].method == "PUT":
        data = b"x" + data
    assert Trailers().follow(data, b"", 0 if data[:1] != b"x" else 1, fresh) is fresh[0]


REQUESTS = {
    "get": b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
    "plain": b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n"
    + b"POST / HTTP/1.1\r\n\r\n0\r\nX: y\r\n\r\n0\r\n\r\n".ljust(40),
    "chunked": HEAD + b"5\r\n0\r\n\r\n\r\nA;x=y\r\n\r\n0\r\n\r\nabc\r\n0\r\n\r\n",
    "trailers": HEAD + b"5\r\n0\r\n\r\n\r\n0\r\nX-Evil: 1\r\n\r\n",
}


class Transport:
    """Takes everything."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: None


@given(st.lists(st.sampled_from(sorted(REQUESTS)), max_size=12), st.lists(st.integers(1, 900), max_size=12))
async def test_no_request_gets_a_trailer_of_another(kinds: list[str], cuts: list[int]) -> None:
    """Through aiohttp's own parser, in whatever pieces; without trailers every request is served."""

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    server = HttpServer(handler, Connections(), Heads(1 << 25), Budget(1 << 28), Deadline(60.0))
    connection: Any = server.connection(Slot("a", lambda _caller: None))
    connection.transport = Transport()
    data, served = b"".join(REQUESTS[kind] for kind in kinds), list[Any]()
    places = sorted({cut for cut in cuts if cut < len(data)})
    for begin, end in pairwise([0, *places, len(data)]):
        connection.data_received(data[begin:end])
        while connection._messages and not (
            served and connection.final and served[-1] is connection.final[0]
        ):
            message, _ = connection._messages.popleft()
            connection._parser.message_consumed()
            served.append(message)
        if connection._close:
            break
    assert not any("X-Evil" in message.headers for message in served)
    first = kinds.index("trailers") if "trailers" in kinds else len(kinds)
    if first == len(kinds):
        assert connection.final is None and len(served) == len(kinds)
    else:
        assert len(served) <= first + 1 and connection.final is not None
