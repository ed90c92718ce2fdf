"""Helpers of the integration tests: configurations, a daemon in this process, a daemon as a process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc

from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.engine.engine import Engine
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

ROOT = Path(__file__).resolve().parent.parent


def make_config(seed_peers: list[str], **consumer: Any) -> App:
    """A configuration with listeners on free ports.

    Args:
        seed_peers: addresses of brokers.
        consumer: values for fields of the section ``consumer``.
    """
    proxy = Proxy(kafka=Kafka(seed_peers=list(seed_peers)))
    proxy.consumer.initial_offset = "oldest"
    for name, value in consumer.items():
        setattr(proxy.consumer, name, value)
    return App(grpc_addr="127.0.0.1:0", tcp_addr="127.0.0.1:0", proxies={"default": proxy})


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    headers: Any

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])

    @property
    def value(self) -> bytes:
        return base64.b64decode(self.json["value"])


class Daemon:
    """A running engine with its listeners, and clients of both APIs."""

    def __init__(self, engine: Engine, http: aiohttp.ClientSession, stub: Any) -> None:
        self.engine = engine
        self.http = http
        self.stub = stub

    async def call(self, method: str, path: str, **options: Any) -> Answer:
        url = f"http://{self.engine.addresses['rest']}{path}"
        async with self.http.request(method, url, allow_redirects=False, **options) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, data: bytes | str = b"", **options: Any) -> Answer:
        options.setdefault("headers", {"Content-Type": "text/plain"})
        return await self.call("POST", path, data=data, **options)

    async def produce(self, topic: str, value: bytes, key: bytes | None = None) -> tuple[int, int]:
        answer = await self.stub.Produce(
            pb.ProdRq(topic=topic, message=value, key_value=key or b"", key_undefined=key is None)
        )
        return answer.partition, answer.offset

    async def consume(self, topic: str, group: str, **fields: Any) -> pb.ConsRs:
        return await self.stub.ConsumeNAck(pb.ConsNAckRq(topic=topic, group=group, **fields))

    async def ack(self, topic: str, group: str, message: pb.ConsRs) -> None:
        await self.stub.Ack(
            pb.AckRq(topic=topic, group=group, partition=message.partition, offset=message.offset)
        )

    def owned(self, topic: str, group: str) -> set[int]:
        """The partitions of a topic that this daemon has an owner of."""
        owners = re.compile(rf"/service/default/{re.escape(group)}/{re.escape(topic)}\.(\d+)")
        return {int(found[1]) for path in self.engine.system.paths() if (found := owners.match(path))}

    async def polls_wait(self, topic: str, group: str, count: int) -> None:
        """Wait until this many long polls wait for a message; those whose client has gone do not count."""

        async def waiting() -> int:
            ref = self.engine.system.lookup(f"/service/default/{group}")
            subscriptions = None if ref is None else getattr(ref._cell.actor, "_subscriptions", None)
            polls = None if subscriptions is None else subscriptions.get(topic)
            return 0 if polls is None else sum(not poll.reply.done() for poll in polls._polls)

        await eventually(waiting, lambda found: found == count)

    async def offsets(self, topic: str, group: str) -> dict[int, Any]:
        answer = await self.stub.GetOffsets(pb.GetOffsetsRq(topic=topic, group=group))
        return {po.partition: po for po in answer.offsets}


@contextlib.asynccontextmanager
async def serving(config: App) -> AsyncIterator[Daemon]:
    """Run the engine with its listeners in this process; the stop at the end must be clean."""
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    try:
        timeout = aiohttp.ClientTimeout(total=60)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http,
            grpc.aio.insecure_channel(engine.addresses["grpc"]) as channel,
        ):
            yield Daemon(engine, http, KafkaPixyStub(channel))
    finally:
        result = await engine.stop()
    assert result.clean, result


async def eventually(
    check: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool] = bool, within: float = 20.0
) -> Any:
    """Repeat ``check`` until ``wanted`` accepts its result, and return that result.

    Args:
        check: called every 20 ms.
        wanted: whether a result is acceptable.
        within: seconds; then the assertion fails and names the last result.
    """
    deadline = time.monotonic() + within
    while True:
        found = await check()
        if wanted(found):
            return found
        assert time.monotonic() < deadline, f"still {found!r} after {within} s"
        await asyncio.sleep(0.02)


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Await a gRPC call that must fail; return its status and description."""
    try:
        answer = await call
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"it answered {answer!r}")


class Program:
    """The daemon as a process."""

    def __init__(self, *args: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pixy.cli.main", *args],
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )

    def wait(self, timeout: float = 100.0) -> tuple[int, str]:
        """Wait for the end, for longer than the default `shutdown_timeout`; return the exit code and the output."""
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
            raise AssertionError(f"still running after {timeout} s:\n{output}") from None
        return self.process.returncode, output

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
