"""Calls that begin and do not go on, watchers that take nothing, and connections that do not end: others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pixy.auth.keys import make_key
from pixy.cli.serve import listeners
from pixy.config import App
from pixy.engine.engine import Engine
from pixy.proto import kafkapixy_pb2 as pb
from tests.integration.edge.http2 import (
    DATA,
    GOAWAY,
    HEADERS,
    PREFACE,
    SETTINGS,
    Http2,
    begin,
    frame,
    message,
)
from tests.integration.edge.test_shares import edge_of
from tests.support import ROOT, Daemon, eventually, serving, status_of

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
NO_ROOM = b"\0\x04\0\0\0\0"
"""SETTINGS_INITIAL_WINDOW_SIZE: 0"""
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def gate_of(daemon: Daemon) -> Any:
    """Of the gRPC listener."""
    found = daemon.engine.system.lookup("/service/grpc")
    assert found is not None
    return found._cell.actor._gate


Metadata = tuple[tuple[str, str], ...]


async def half_begun(daemon: Daemon, method: str, count: int, metadata: Metadata = ()) -> Http2:
    """A connection with calls whose messages do not come."""
    connection = await Http2.to(daemon)
    await connection.send(b"".join(begin(1 + 2 * number, method, metadata) for number in range(count)))
    return connection


def with_keys(config: App, folder: Path) -> list[Metadata]:
    """Turn ``auth`` on, and return the metadata of two callers."""
    keys = [make_key(f"app{number}") for number in range(2)]
    (folder / "keys").write_text("".join(f"{stored.name} sha256:{stored.digest}\n" for _, stored in keys))
    config.auth.enabled, config.auth.keys_file = True, str(folder / "keys")
    return [(("x-api-key", key),) for key, _ in keys]


@pytest.mark.parametrize("method", ["/KafkaPixy/Produce", CHECK, WATCH, REFLECTION])
async def test_strangers_calls_without_a_message_take_nobodys_place(
    config: App, tmp_path: Path, method: str
) -> None:
    known, _ = with_keys(config, tmp_path)
    config.max_concurrent_requests = 8
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        for _ in range(3):
            opened.callback((await half_begun(daemon, method, 4)).close)

        async def served() -> bool:
            try:
                await daemon.stub.ListTopics(pb.ListTopicRq(), metadata=known)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
                return False
            return True

        await eventually(lambda: asyncio.sleep(0, gate_of(daemon).begun), lambda count: count >= 8)
        await eventually(served)
        # A quarter as many places is for strangers, and of probes one for each connection; that of an answer is free once
        # the core has sent it.
        alone = 3 if method in (CHECK, WATCH) else 0
        await eventually(lambda: asyncio.sleep(0, gate_of(daemon).held), lambda count: count <= 2 + alone)


async def test_a_message_has_a_deadline(config: App) -> None:
    config.body_timeout = 0.3
    async with serving(config) as daemon:
        for begun in (b"", message(b"x", 1000)):
            connection = await half_begun(daemon, "/KafkaPixy/Produce", 1)
            await connection.send(frame(DATA, 0, 1, begun))
            trailers = await connection.next(HEADERS, 1)
            assert b"it did not arrive within 0.3 s" in trailers
            connection.close()
        await eventually(lambda: asyncio.sleep(0, gate_of(daemon).held), lambda count: count == 0)


async def test_a_call_without_a_message_is_refused(config: App) -> None:
    async with serving(config) as daemon:
        connection = await Http2.to(daemon)
        await connection.send(begin(1, "/KafkaPixy/Produce", end=True))
        assert b"it has no message" in await connection.next(HEADERS, 1)
        connection.close()


async def test_messages_that_arrive_slowly_leave_room_for_others(
    config: App, name: str, tmp_path: Path
) -> None:
    """Few are read at the same time; of the others the core takes no more than a window."""
    hostile, honest = with_keys(config, tmp_path)
    config.max_buffered_bytes = 8 << 20
    async with serving(config) as daemon:
        slow = await half_begun(daemon, "/KafkaPixy/Produce", 40, hostile)
        for number in range(40):
            await slow.send(frame(DATA, 0, 1 + 2 * number, message(b"x" * 100, 1_000_000)))
        gate = gate_of(daemon)
        await eventually(lambda: asyncio.sleep(0, gate.begun), lambda count: count >= 40)
        assert gate.reading <= 6, "three quarters of what fits into max_buffered_bytes"
        produce = pb.ProdRq(topic=name, key_undefined=True, message=b"x" * 100_000)
        await daemon.stub.Produce(produce, metadata=honest, timeout=20)
        slow.close()
        await eventually(lambda: asyncio.sleep(0, gate.held), lambda count: count == 0)


async def test_a_watcher_who_takes_nothing_stops_nobody(config: App) -> None:
    """His window has no room: the status of the others changes, and the daemon drains."""
    async with serving(config) as daemon:
        stuck = await Http2.to(daemon, NO_ROOM)
        await stuck.send(begin(1, WATCH) + frame(DATA, 1, 1, message(b"")))
        gate = gate_of(daemon)
        await eventually(lambda: asyncio.sleep(0, gate.begun), lambda count: count == 1)
        async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            watcher = health.Watch(health_pb2.HealthCheckRequest(service="KafkaPixy"))
            first = await asyncio.wait_for(watcher.read(), 20)
            server = daemon.engine.system.lookup("/service/grpc")
            await asyncio.wait_for(server._cell.actor.drain(), 20)  # type: ignore[union-attr]
            second = await asyncio.wait_for(watcher.read(), 20)
            assert (first.status, second.status) == (1, 2), "SERVING, NOT_SERVING"
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 2
            unknown = health.Watch(health_pb2.HealthCheckRequest(service="other"))
            assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            code, _ = await status_of(health.Check(health_pb2.HealthCheckRequest(service="other")))
            assert code is grpc.StatusCode.NOT_FOUND
        stuck.close()


async def test_watches_of_one_connection_are_bounded(config: App) -> None:
    """Each holds memory for as long as its client likes: 16,000 over four connections held 250 MB."""
    async with serving(config) as daemon:
        hostile = await Http2.to(daemon)
        gate = gate_of(daemon)
        for first in range(0, 300, 50):
            calls = [1 + 2 * number for number in range(first, first + 50)]
            await hostile.send(
                b"".join(begin(call, WATCH) + frame(DATA, 1, call, message(b"")) for call in calls)
            )
        await eventually(lambda: asyncio.sleep(0, gate.begun), lambda count: count == 300)
        await eventually(lambda: asyncio.sleep(0, gate._untaken.held), lambda count: count == 0)
        assert gate.held == 64, "the others were refused, and their clients have heard of it"
        async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
            watcher = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await asyncio.wait_for(watcher.read(), 20)).status == 1, "another client of the address"
        hostile.close()
        await eventually(lambda: asyncio.sleep(0, gate.held), lambda count: count == 0)


async def test_answers_that_a_stranger_does_not_take_use_up_nobodys_place(
    config: App, tmp_path: Path
) -> None:
    """His window has no room for any of them."""
    known, _ = with_keys(config, tmp_path)
    config.max_concurrent_requests = 8
    async with serving(config) as daemon:
        stuck = await Http2.to(daemon, NO_ROOM)
        gate = gate_of(daemon)
        for number in range(10):
            call = 1 + 2 * number
            await stuck.send(begin(call, CHECK) + frame(DATA, 1, call, message(b"")))
            await eventually(lambda: asyncio.sleep(0, gate.begun), lambda count: count == number + 1)  # noqa: B023
        for _ in range(3):
            await daemon.stub.ListTopics(pb.ListTopicRq(), metadata=known, timeout=20)
        # What is not taken keeps its place, among a quarter as many, and that of its connection.
        await eventually(lambda: asyncio.sleep(0, gate.held), lambda count: 0 < count <= 2 + 1)
        stuck.close()
        await eventually(lambda: asyncio.sleep(0, gate.held), lambda count: count == 0)


async def test_an_answer_that_is_not_taken_keeps_its_callers_place_and_bytes(
    config: App, name: str, tmp_path: Path
) -> None:
    known, other = with_keys(config, tmp_path)
    config.max_buffered_bytes = 1 << 20
    async with serving(config) as daemon:
        budget, gate = edge_of(daemon).budget, gate_of(daemon)
        produced = pb.ProdRq(topic=name, message=b"x" * 300_000, key_undefined=True)
        written = await daemon.stub.Produce(produced, metadata=known)
        fetch = pb.FetchRq(topic=name, partition=written.partition, offset=written.offset, max_messages=1)
        stuck = await Http2.to(daemon, NO_ROOM)
        for number in range(3):
            call = begin(1 + 2 * number, "/KafkaPixy/Fetch", [(key, value) for key, value in known])
            await stuck.send(call + frame(DATA, 1, 1 + 2 * number, message(fetch.SerializeToString())))
        await eventually(lambda: asyncio.sleep(0, (gate.begun, gate.held)), lambda found: found == (4, 2))
        assert 600_000 < budget.held < 700_000, "the third is refused: it is more than three quarters"
        status, text = await status_of(daemon.stub.Fetch(fetch, metadata=known))
        assert status is grpc.StatusCode.UNAVAILABLE and "`max_buffered_bytes`" in text
        assert len((await daemon.stub.Fetch(fetch, metadata=other)).records) == 1
        stuck.close()
        await eventually(lambda: asyncio.sleep(0, (gate.held, budget.held)), lambda found: found == (0, 0))


async def test_reflection_works_for_anybody_without_auth(config: App) -> None:
    async with serving(config) as daemon:
        async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            wanted = reflection_pb2.ServerReflectionRequest(list_services="")
            answers = [each async for each in stub.ServerReflectionInfo(iter([wanted, wanted]))]
            assert len(answers) == 2
        await eventually(lambda: asyncio.sleep(0, gate_of(daemon).held), lambda count: count == 0)


async def test_what_a_client_says_at_the_end_reaches_no_terminal(tmp_path: Path) -> None:
    """gRPC's core would write the text of a GOAWAY frame to stderr, as it is."""
    settings = tmp_path / "c.yaml"
    settings.write_text(
        "{grpc_addr: '127.0.0.1:0', tcp_addr: '', unix_addr: %s, proxies: {default: {}}}" % (tmp_path / "s")
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "pixy.cli.main", "--sandbox", "--config", str(settings)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert program.stdout is not None
        seen = b""
        while (found := re.search(rb"grpc.* 127\.0\.0\.1:(\d+)", seen)) is None:
            line = await asyncio.to_thread(program.stdout.readline)
            assert line, seen
            seen += line
        reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
        writer.write(PREFACE + frame(SETTINGS))
        writer.write(frame(GOAWAY, payload=b"\0\0\0\0\0\0\0\0\x1b[31mforged\nline"))
        await reader.readexactly(9)
        writer.write(begin(1, CHECK) + frame(DATA, 1, 1, message(b"")))
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 20)
        writer.close()
    finally:
        program.terminate()
        rest, _ = await asyncio.to_thread(program.communicate)
    assert b"forged" not in seen + rest


async def test_a_client_that_takes_nothing_does_not_hold_up_a_stop(config: App) -> None:
    """Each of his SETTINGS frames is acknowledged; the core waits until the last of those is taken."""
    config.connections.write_timeout = 600.0  # else the core gives the client up by itself
    config.shutdown_timeout = 25.0
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    host, port = engine.addresses["grpc"].rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREFACE + frame(SETTINGS))
    flood = frame(SETTINGS, payload=b"\0\x03\0\0\0\x64") * 1000
    with contextlib.suppress(TimeoutError):
        for _ in range(1000):
            writer.write(flood)
            await asyncio.wait_for(writer.drain(), 1)
    stopped = await engine.stop()
    writer.close()
    assert stopped.clean, stopped
