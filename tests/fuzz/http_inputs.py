"""Make up what a client may send to an HTTP or gRPC listener: requests of every route, and what becomes of them by chance."""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass

_GROUP, _TOPIC = "fuzz-group", "fuzz"
_V2 = "application/vnd.kafka.v2+json"
_BINARY = "application/vnd.kafka.binary.v2+json"
_RECORDS = b'{"records":[{"key":"a2V5","value":"dmFsdWU=","partition":0},{"value":null}]}'

ROUTES: list[tuple[str, str, str, bytes]] = [
    ("GET", "/_ping", "", b""),
    ("GET", "/topics", "", b""),
    ("GET", "/topics?withPartitions&withConfig", "", b""),
    ("GET", f"/topics/{_TOPIC}", "", b""),
    ("POST", f"/topics/{_TOPIC}/messages?sync&key=k", "text/plain", b"news"),
    ("POST", f"/topics/{_TOPIC}/messages", "application/x-www-form-urlencoded", b"msg=a%20b&key=k&sync"),
    ("GET", f"/topics/{_TOPIC}/offsets?group={_GROUP}", "", b""),
    ("POST", f"/topics/{_TOPIC}/acks?group={_GROUP}&partition=0&offset=1", "", b""),
    ("POST", f"/topics/{_TOPIC}/offsets?group={_GROUP}", "", b'[{"partition":0,"offset":0,"metadata":"m"}]'),
    ("GET", "/brokers", "", b""),
    ("POST", f"/topics/{_TOPIC}", _BINARY, _RECORDS),
    ("GET", f"/topics/{_TOPIC}/partitions", _V2, b""),
    ("GET", f"/topics/{_TOPIC}/partitions/0/records?offset=0&max_bytes=10", _BINARY, b""),
    ("POST", f"/consumers/{_GROUP}", _V2, b'{"name":"i","format":"binary","auto.offset.reset":"earliest"}'),
    ("POST", f"/consumers/{_GROUP}/instances/i/subscription", _V2, b'{"topics":["fuzz"]}'),
    (
        "POST",
        f"/consumers/{_GROUP}/instances/i/assignments",
        _V2,
        b'{"partitions":[{"topic":"fuzz","partition":0}]}',
    ),
    ("GET", f"/consumers/{_GROUP}/instances/i/records?timeout=10", _BINARY, b""),
    ("DELETE", f"/consumers/{_GROUP}/instances/i", _V2, b""),
    ("GET", "/openapi.json", "", b""),
    ("OPTIONS", "/topics", "", b""),
]
_MANY: tuple[tuple[bytes, bytes, bytes], ...] = tuple(
    (begin, part, end)
    for part in (b"[],", b"{},", b"1,", b'"",', b"[", b"\\n", b" ")
    for begin, end in (
        (b"[", b"0]"),
        (b'{"records":[', b"{}]}"),
        (b'{"records":[{"value":[', b"0]}]}"),
        (b'{"records":[{"value":"', b'"}]}'),
        (b'{"topics":["fuzz"],"x":[', b"0]}"),
    )
)
"""Documents of very many parts: what stands before, one of them, and what stands behind."""
_HEADERS = (
    "Expect: 100-continue",
    "Connection: close",
    "Connection: upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity, chunked",
    "Content-Length: 0",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Content-Encoding: gzip",
    "Content-Encoding: br",
    "Accept: application/vnd.kafka.avro.v2+json",
    "Accept: */*;q=nan",
    "Origin: null",
    "Sec-Fetch-Site: cross-site",
    'Forwarded: for=;host="',
    "X-Forwarded-For: ,,",
    "X-Kafka-Pixy-Forwarded-By: a",
    "X-Kafka-A: %%%",
    "traceparent: 00-0-0-0",
    "Host: evil",
    "Range: bytes=0-",
    "Authorization: Bearer eyJhbGciOiJub25lIn0.e30.",
    "Authorization: Basic a2V5Og==",
    "X-API-Key: kp_0",
    "X-Kafka-Pixy-Hop: e30=.x",
)
_PIECES = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"%00",
    b"%ff",
    b"/../",
    b"//",
    b"?",
    b"&",
    b"\x80",
    b"{",
    b"[",
    b'"',
    b"9" * 40,
    b"-1",
    b"null",
)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Input:
    """What one connection sends.

    Attributes:
        listener: ``rest`` or ``grpc``.
        segments: sent one after the other.
        aborts: whether the client resets the connection then, without reading.
    """

    listener: str
    segments: tuple[bytes, ...]
    aborts: bool


def make(rng: random.Random) -> Input:
    """Make up one input; the same ``rng`` makes the same."""
    if rng.random() < 0.2:
        data = _http2(rng)
        listener = "grpc" if rng.random() < 0.8 else "rest"
    else:
        data = b"".join(_request(rng) for _ in range(rng.choice((1, 1, 1, 2, 5, 40))))
        listener = "rest" if rng.random() < 0.95 else "grpc"
    for _ in range(rng.choice((0, 0, 1, 1, 2, 8))):
        data = _mutated(rng, data)
    return Input(listener, tuple(_cut(rng, data)), rng.random() < 0.2)


def _request(rng: random.Random) -> bytes:
    method, path, kind, body = rng.choice(ROUTES)
    if rng.random() < 0.1:
        method = rng.choice(("PUT", "HEAD", "TRACE", "CONNECT", "PATCH", "x", ""))
    if rng.random() < 0.1:
        path = rng.choice(
            ("*", "http://a/b", "/" * 3000, "/rest" + path, "/clusters/x" + path, "/clusters/default" + path)
        )
    lines = [
        f"{method} {path} HTTP/{rng.choice(('1.1', '1.1', '1.1', '1.0', '0.9', '2.0'))}",
        "Host: localhost",
    ]
    if kind:
        lines += [f"Content-Type: {kind}", f"Accept: {kind}"]
    if body and rng.random() < 0.03:
        begin, part, end = rng.choice(_MANY)
        body = begin + part * rng.choice((10_000, 300_000)) + end
    if rng.random() < 0.1:
        body = gzip.compress(body * rng.choice((1, 1000)))
        lines.append("Content-Encoding: gzip")
    lines += rng.sample(_HEADERS, rng.choice((0, 0, 0, 1, 2, 4)))
    if rng.random() < 0.2:
        lines.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    elif body or method == "POST":
        lines.append(f"Content-Length: {len(body) + rng.choice((0, 0, 0, 0, 0, 1, -1))}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _http2(rng: random.Random) -> bytes:
    """Frames of HTTP/2: SETTINGS, PING, RST_STREAM, HEADERS and any others, more or less in order."""
    frames = [_PREFACE, _frame(4, 0, 0, b"")]
    for _ in range(rng.choice((1, 5, 50, 500))):
        kind = rng.choice((0, 1, 2, 3, 4, 6, 7, 8, 9, rng.randrange(256)))
        size = {2: 5, 3: 4, 4: 6 * rng.randrange(4), 6: 8, 7: 8, 8: 4}.get(kind, rng.randrange(40))
        frames.append(
            _frame(
                kind,
                rng.choice((0, 1, 4, 5, rng.randrange(256))),
                rng.choice((0, 1, 3, rng.randrange(2**31))),
                rng.randbytes(size),
            )
        )
    return b"".join(frames)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _mutated(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0:
            return data[:at] + rng.choice(_PIECES) + data[at:]
        case 1:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at + rng.randrange(9) :]
        case 2:
            return data[:at]
        case 3:
            end = min(len(data), at + rng.randrange(1, 200))
            return data[:at] + data[at:end] * rng.choice((2, 50)) + data[end:]
        case 4:
            return data[:at] + data[at + rng.randrange(1, 60) :]
        case _:
            return data[:at] + b"A" * rng.choice((100, 9000, 70_000)) + data[at:]


def _cut(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 3))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


__all__ = ["ROUTES", "Input", "make"]
