"""gRPC-Web on the Envoy front: what a browser sends over HTTP/1.1, binary and as base64 text."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path

import aiohttp
import pytest

from pixy.proto import kafkapixy_pb2 as pb
from tests.integration.answers import running

pytest.importorskip("pyvoy", reason="the extra `envoy` is not installed")
pytestmark = pytest.mark.slow

CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
server: {front: envoy}
"""
_TRAILERS = 0x80


def frames_of(body: bytes) -> list[tuple[int, bytes]]:
    """Split a body into the flags and the payload of each frame."""
    found = []
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        found.append((flags, body[5 : 5 + length]))
        body = body[5 + length :]
    return found


def decoded(body: bytes) -> bytes:
    """Decode the text form: each piece that was encoded by itself may end with padding."""
    return b"".join(base64.b64decode(each) for each in re.findall(rb"[^=]+=*", body))


def trailers_of(payload: bytes) -> dict[str, str]:
    """Parse a frame of trailers."""
    pairs = (line.partition(":") for line in payload.decode().split("\r\n") if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def test_a_browser_calls_over_http_1(tmp_path: Path) -> None:
    message = pb.ProdRq(topic="web", message=b"x").SerializeToString()
    framed = struct.pack(">BI", 0, len(message)) + message
    wrong = pb.ProdRq(topic="not/a/topic", message=b"x").SerializeToString()
    async with running(tmp_path, CONFIG, "--sandbox") as daemon:
        await daemon.serves()
        url = f"http://{daemon.address('grpc')}/KafkaPixy/Produce"
        async with aiohttp.ClientSession() as http:

            async def call(body: bytes, kind: str) -> tuple[int, str, bytes, dict[str, str]]:
                headers = {"Content-Type": kind, "Accept": kind, "X-Grpc-Web": "1"}
                async with http.post(url, data=body, headers=headers) as answer:
                    found = dict(answer.headers)
                    return answer.status, answer.content_type, await answer.read(), found

            status, kind, body, _ = await call(framed, "application/grpc-web+proto")
            assert (status, kind) == (200, "application/grpc-web+proto")
            data, trailers = frames_of(body)
            assert pb.ProdRs.FromString(data[1]).offset == 0
            assert trailers[0] == _TRAILERS
            assert trailers_of(trailers[1])["grpc-status"] == "0"

            status, kind, body, _ = await call(base64.b64encode(framed), "application/grpc-web-text+proto")
            assert (status, kind) == (200, "application/grpc-web-text+proto")
            data, trailers = frames_of(decoded(body))
            assert pb.ProdRs.FromString(data[1]).partition >= 0
            assert trailers_of(trailers[1])["grpc-status"] == "0"

            status, _, body, headers = await call(
                struct.pack(">BI", 0, len(wrong)) + wrong, "application/grpc-web+proto"
            )
            frames = frames_of(body)
            said = trailers_of(frames[-1][1]) if frames else {k.lower(): v for k, v in headers.items()}
            assert (status, said["grpc-status"]) == (200, "3"), (said, body)
