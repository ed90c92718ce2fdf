"""Connections that hold on to the daemon: each ends at its deadline or at a bound, and the daemon serves meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import trustme

from pixy.config import App
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.integration.edge.raw import Raw
from tests.support import ROOT, Daemon, eventually, serving


async def pings(daemon: Daemon) -> None:
    answer = await daemon.get("/_ping")
    assert answer.body == b"pong"


async def test_half_a_head_is_answered_at_its_deadline(config: App) -> None:
    config.connections.header_timeout = 0.3
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        await raw.send("GET /_ping HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        await pings(daemon)
        answer = await raw.rest()
        assert answer.startswith(b"HTTP/1.1 408 ") and b"`connections.header_timeout`" in answer


async def test_a_head_that_trickles_gets_no_more_time(config: App) -> None:
    config.connections.header_timeout = 0.3
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        assert (await raw.ask("/_ping"))[0] == 200  # it also holds for a later request

        async def trickle() -> None:
            await raw.send("GET /_ping HTTP/1.1\r\n")
            for number in range(10_000):
                await raw.send(f"X-{number}: 1\r\n")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        assert (await raw.rest()).startswith(b"HTTP/1.1 408 ")
        trickling.cancel()


async def test_a_head_in_pieces_is_served(config: App) -> None:
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        for _ in range(3):
            for piece in ("GET /_pi", "ng HTTP/1.1\r\nHo", "st: localhost\r\n", "\r", "\n"):
                await raw.send(piece)
                await pings(daemon)
            assert await raw.answer() == (200, b"pong")


async def test_requests_that_come_together_are_served(config: App) -> None:
    """Heads and bodies in one segment: what is counted as a head's part must not end the connection."""
    config.connections.max_header_bytes = 16_384
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        body = b"\r\n\r\n" * 5000
        post = b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
        chunked = post + b"Transfer-Encoding: chunked\r\n\r\n4e20\r\n" + body + b"\r\n0\r\n\r\n"
        whole = post + b"Content-Length: 20000\r\n\r\n" + body
        for _ in range(3):
            await raw.send((whole + chunked) * 3 + b"GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
            assert [await raw.answer() for _ in range(6)] == [(200, b"{}")] * 6
            assert [await raw.answer() for _ in range(40)] == [(200, b"pong")] * 40


async def test_an_idle_connection_is_closed(config: App) -> None:
    config.connections.idle_timeout = 0.3
    async with serving(config) as daemon, await Raw.to(daemon) as silent, await Raw.to(daemon) as used:
        assert (await used.ask("/_ping"))[0] == 200
        assert (await silent.rest(), await used.rest()) == (b"", b"")


async def test_headers_that_are_too_large_are_refused(config: App) -> None:
    """Twenty lines of 60 KB: each is allowed by itself."""
    async with serving(config) as daemon:
        for _ in range(5):
            async with await Raw.to(daemon) as raw:
                sending = asyncio.create_task(
                    raw.send(
                        b"GET /_ping HTTP/1.1\r\n"
                        + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 60_000) for n in range(20))
                    )
                )
                answer = await raw.rest()
                assert answer.startswith(b"HTTP/1.1 431 ") and b"`connections.max_header_bytes`" in answer
                await sending
        await pings(daemon)


@pytest.mark.parametrize("begun", [b"", b"GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_unfinished_heads_are_bounded_together(config: App, begun: bytes) -> None:
    """The same behind a whole request, in the same segment."""
    config.connections.max_unfinished_headers = 1 << 20
    async with serving(config) as daemon:
        async with contextlib.AsyncExitStack() as opened:
            held = []
            for _ in range(60):
                raw = await opened.enter_async_context(await Raw.to(daemon))
                await raw.send(begun + b"GET /_ping HTTP/1.1\r\nX-A: " + b"x" * 50_000)
                if begun:
                    assert (await raw.answer())[0] == 200
                held.append(asyncio.create_task(raw.line()))
            await pings(daemon)

            async def refused() -> int:
                done = [task.result() for task in held if task.done()]
                assert all(b" 503 " in line or not line for line in done), done
                return len(done)

            await eventually(refused, lambda count: (60 - count) * 50_000 <= 2 << 20)
            async with await Raw.to(daemon) as raw:
                await raw.send("GET /_ping HTTP/1.1\r\nHost: local")
                await pings(daemon)
                await raw.send("host\r\n\r\n")
                assert await raw.answer() == (200, b"pong"), "one who holds little is served"
            for task in held:
                task.cancel()
        await pings(daemon)


async def test_connections_of_one_address_are_bounded(config: App, tmp_path: Path) -> None:
    config.connections.max_per_address = 4  # of which the client of the tests may take one
    config.unix_addr = str(tmp_path / "s")
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        some = [await opened.enter_async_context(await Raw.to(daemon)) for _ in range(4)]
        assert (await some[-1].ask("/_ping"))[0] == 200
        async with await Raw.to(daemon) as more:
            answer = await more.rest()
            assert answer.startswith(b"HTTP/1.1 429 ") and b"`connections.max_per_address`" in answer
        async with await Raw.to(daemon, "rest-unix") as other:
            assert (await other.ask("/_ping"))[0] == 200, "another caller is not touched"
        some[0].close()

        async def again() -> bool:
            async with await Raw.to(daemon) as raw:
                await raw.send("GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return b" 200 " in await raw.line()

        await eventually(again)


async def test_all_connections_are_bounded(config: App, tmp_path: Path) -> None:
    config.connections.max = 3
    config.unix_addr = str(tmp_path / "s")
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        for listener in ("rest", "rest-unix", "rest"):
            raw = await opened.enter_async_context(await Raw.to(daemon, listener))
            assert (await raw.ask("/_ping"))[0] == 200
        for listener in ("rest", "rest-unix"):
            async with await Raw.to(daemon, listener) as more:
                answer = await more.rest()
                assert answer.startswith(b"HTTP/1.1 503 ") and b"`connections.max`" in answer


async def test_an_answer_that_nobody_takes_ends(config: App) -> None:
    config.connections.write_timeout = 0.3
    async with serving(config) as daemon, await Raw.to(daemon, receive=4096) as raw:
        ask = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        most = 4000
        for _ in range(most // 20):
            await raw.send(ask * 20)
        await pings(daemon)

        async def open_connections() -> int:
            server = daemon.engine.system.lookup("/service/rest")
            return len(server._cell.actor._server.connections)  # type: ignore[union-attr]

        await eventually(open_connections, lambda count: count <= 1)  # that of the pings


@pytest.fixture
def certified(config: App, tmp_path: Path) -> App:
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    leaf.private_key_pem.write_to_path(str(tmp_path / "key"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    config.tls.key_path, config.tls.certificate_path = str(tmp_path / "key"), str(tmp_path / "cert")
    return config


async def test_a_tls_handshake_that_stalls_ends(certified: App) -> None:
    certified.connections.handshake_timeout = 0.5
    certified.connections.max_per_address = 3
    async with serving(certified) as daemon, contextlib.AsyncExitStack() as opened:
        stalled = [await opened.enter_async_context(await Raw.to(daemon)) for _ in range(3)]
        grpc_stalled = await opened.enter_async_context(await Raw.to(daemon, "grpc"))
        async with await Raw.to(daemon) as more:
            assert await more.rest() == b"", "those in their handshake count"
        for raw in (*stalled, grpc_stalled):
            await raw.rest()
        host, port = daemon.engine.addresses["rest"].rsplit(":", 1)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw = await opened.enter_async_context(
            Raw(*await asyncio.open_connection(host, int(port), ssl=context))
        )
        assert await raw.ask("/_ping") == (200, b"pong")


async def test_grpc_connections_are_bounded(config: App, name: str) -> None:
    config.connections.handshake_timeout = 1.0
    config.connections.max_grpc = 5
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        await daemon.stub.ListTopics(pb.ListTopicRq())
        silent = [await opened.enter_async_context(await Raw.to(daemon, "grpc")) for _ in range(8)]
        beyond = await asyncio.gather(*(raw.rest() for raw in silent))  # all end: at once, or at the deadline
        assert len(beyond) == 8
        await daemon.stub.ListTopics(pb.ListTopicRq())
        other = await opened.enter_async_context(grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]))
        await KafkaPixyStub(other).ListTopics(pb.ListTopicRq(), wait_for_ready=True, timeout=20)


async def test_metadata_of_a_call_is_bounded(config: App) -> None:
    async with serving(config) as daemon:
        large = (("x-large", "x" * 32_000),)
        with pytest.raises(grpc.RpcError) as refused:
            await daemon.stub.ListTopics(pb.ListTopicRq(), metadata=large)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await daemon.stub.ListTopics(pb.ListTopicRq())


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
sys.argv = ["kafka-pixy", *sys.argv[1:]]
runpy.run_module("pixy.cli.main", run_name="__main__")
"""


async def test_idle_connections_leave_files_for_kafka(name: str, tmp_path: Path) -> None:
    """300 idle connections, and then a group, whose client opens files."""
    socket_path = tmp_path / "s"
    settings = tmp_path / "c.yaml"
    settings.write_text(
        f"{{grpc_addr: '', tcp_addr: '', unix_addr: {socket_path}, logging: [], "
        "proxies: {default: {consumer: {long_polling_timeout: 100ms, join_timeout: 1s}}}}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", LIMITED, "--sandbox", "--config", str(settings)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    try:

        async def connected() -> Raw | None:
            try:
                return Raw(*await asyncio.open_unix_connection(str(socket_path)))
            except OSError:
                return None

        honest: Raw = await eventually(connected)
        async with contextlib.AsyncExitStack() as opened:
            assert await honest.ask("/_ping") == (200, b"pong")
            idle = []
            for _ in range(300):
                raw = Raw(*await asyncio.open_unix_connection(str(socket_path)))
                idle.append(await opened.enter_async_context(raw))
            status, body = await honest.ask(f"/topics/{name}/messages?group={name}")
            assert status == 408, body
            assert (
                await honest.ask(f"/topics/{name}/messages?sync", "POST", b"x", Content_Type="text/plain")
            )[0] == 200
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
