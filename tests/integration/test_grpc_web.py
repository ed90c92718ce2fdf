"""gRPC-Web on the Envoy front: what a browser sends over HTTP/1.1, binary and as base64 text."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from pixy.proto import kafkapixy_pb2 as pb
from tests.integration.answers import running

pytest.importorskip("pyvoy", reason="the extra `envoy` is not installed")
pytestmark = pytest.mark.slow

CONFIG = """\
grpc_addr: 127.0.0.1:0
tcp_addr: 127.0.0.1:0
admin_addr: 127.0.0.1:0
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


async def test_pages_of_others_and_paths_that_are_no_text_are_refused(tmp_path: Path) -> None:
    message = pb.ProdRq(topic="web", message=b"x").SerializeToString()
    framed = struct.pack(">BI", 0, len(message)) + message
    async with running(tmp_path, CONFIG, "--sandbox") as daemon:
        await daemon.serves()
        url = f"http://{daemon.address('grpc')}/KafkaPixy/Produce"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:

            async def called(**headers: str) -> tuple[int, str]:
                sent = {each.replace("_", "-"): value for each, value in headers.items()}
                async with http.post(url, data=framed, headers=sent) as answer:
                    body = await answer.read()
                    frames = frames_of(body) if answer.status == 200 else []
                    said = trailers_of(frames[-1][1]) if frames else {}
                    return answer.status, said.get("grpc-status") or answer.headers.get("grpc-status", "")

            web = "application/grpc-web+proto"
            assert await called(Content_Type=web) == (200, "0")
            assert (await called(Content_Type="text/plain"))[0] == 415
            assert await called(Content_Type=web, Origin="https://evil.example") == (200, "7")
            assert await called(Content_Type=web, Sec_Fetch_Site="cross-site") == (200, "7")
            evil = {"Host": "evil.example", "Origin": "http://evil.example"}
            assert await called(Content_Type=web, **evil) == (200, "7")
            for name in ("rest", "grpc"):
                for path in ("/%ff", "/topics/%C3", "/a%ED%A0%80", "/%zz"):
                    refused = URL(f"http://{daemon.address(name)}{path}", encoded=True)
                    async with http.get(refused) as answer:
                        assert answer.status == 403, path
            async with http.get(URL(f"http://{daemon.address('rest')}/caf%C3%A9", encoded=True)) as answer:
                assert answer.status == 404
