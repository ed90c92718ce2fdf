"""The daemon as a program, and the same requests to it, whatever serves them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.support import ROOT, eventually

V2 = "application/vnd.kafka.v2+json"
V2_BINARY = "application/vnd.kafka.binary.v2+json"


class Running:
    """A daemon in a process of its own.

    Args:
        folder: for its files.
        config: its configuration.
        args: further arguments.
    """

    def __init__(self, folder: Path, config: str, *args: str) -> None:
        self.folder = folder
        self.pid_file = folder / "pid"
        (folder / "config.yaml").write_text(config)
        self._args = ("--config", str(folder / "config.yaml"), "--pidFile", str(self.pid_file), *args)
        self.process: asyncio.subprocess.Process
        self.lines: list[str] = []
        self._reading: asyncio.Task[None]

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pixy.cli.main", *self._args),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip())
            print(self.lines[-1])  # pytest shows it if the test fails

    async def serves(self) -> None:
        """Wait for the pid file, which is written once the daemon serves, and for the line with the last address."""

        async def ready() -> bool:
            assert self.process.returncode is None, self.lines
            return self.pid_file.exists() and any("serving rest on" in line for line in self.lines)

        await eventually(ready, within=60.0)

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            code = await self.process.wait()
            await self._reading
        return code

    def address(self, listener: str) -> str:
        pattern = re.compile(rf'serving {listener} on ([^\s"]+)')
        return next(found[1] for line in self.lines if (found := pattern.search(line)))

    def children(self) -> list[int]:
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(each) for each in found.stdout.split()]


@contextlib.asynccontextmanager
async def running(folder: Path, config: str, *args: str) -> AsyncIterator[Running]:
    daemon = Running(folder, config, *args)
    await daemon.start()
    try:
        yield daemon
    finally:
        if daemon.process.returncode is None:
            daemon.process.terminate()
        await daemon.ended()


async def rest_answers(base: str, topic: str) -> dict[str, Any]:
    """Send requests to the REST APIs; return status, content type and body of each answer."""
    found: dict[str, Any] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:

        async def ask(what: str, method: str, path: str, **options: Any) -> Any:
            async with http.request(method, base + path, allow_redirects=False, **options) as answer:
                body = (await answer.read()).decode().replace(topic, "TOPIC").replace(base, "BASE")
                body = re.sub(r'("timestamp":)\d+', r"\1TIME", body)
                headers = {
                    name: answer.headers.get(name, "").replace(topic, "TOPIC")
                    for name in ("Content-Type", "Location", "Retry-After", "Server", "Allow")
                }
                found[what] = answer.status, headers, body
                return answer.status

        text = {"Content-Type": "text/plain"}
        await ask("sync", "POST", f"/topics/{topic}/messages?sync&key=a", data="one", headers=text)
        await ask("async", "POST", f"/topics/{topic}/messages?key=a", data="two", headers=text)
        await ask("form", "POST", f"/topics/{topic}/messages?sync", data={"msg": "three", "key": "a"})
        await ask(
            "headers",
            "POST",
            f"/topics/{topic}/messages?sync&key=a",
            data=b"\x00\xff",
            headers={"Content-Type": "application/octet-stream", "X-Kafka-foo-BAR": "Zm9v"},
        )
        await ask(
            "wrong type", "POST", f"/topics/{topic}/messages?sync", data="x", headers={"Content-Type": "a/b"}
        )
        await ask(
            "bad header",
            "POST",
            f"/topics/{topic}/messages?sync",
            data="x",
            headers={**text, "X-Kafka-A": "?"},
        )
        await ask("too large", "POST", f"/topics/{topic}/messages?sync", data=b"x" * 3_000_000, headers=text)
        await ask("large", "POST", f"/topics/{topic}/messages?sync&key=a", data=b"x" * 900_000, headers=text)
        await ask("unknown topic", "POST", f"/topics/{topic}-none/messages?sync", data="x", headers=text)
        await ask("no group", "GET", f"/topics/{topic}/messages")
        group = f"?group=g-{topic}"
        for number in range(4):
            await ask(f"consume {number}", "GET", f"/topics/{topic}/messages{group}&noAck")
        await ask("ack", "POST", f"/topics/{topic}/acks{group}&partition=0&offset=0")
        await ask("bad ack", "POST", f"/topics/{topic}/acks{group}&partition=x&offset=0")
        await ask("offsets", "GET", f"/topics/{topic}/offsets?group=other-{topic}")
        await ask(
            "set offsets",
            "POST",
            f"/topics/{topic}/offsets?group=other-{topic}",
            data='[{"partition":0,"offset":2}]',
        )
        await ask("malformed offsets", "POST", f"/topics/{topic}/offsets?group=other-{topic}", data="[{")
        await ask("topic", "GET", f"/topics/{topic}?withPartitions")
        await ask("no such topic", "GET", f"/topics/{topic}-none")
        await ask("no such cluster", "GET", f"/clusters/none/topics/{topic}")
        await ask("no path", "GET", "/none")
        await ask("no method", "PATCH", f"/topics/{topic}/messages")
        await ask("redirect", "GET", f"/topics/{topic}//messages?a=%20b")
        await ask("ping", "GET", "/_ping")
        await ask("head", "HEAD", "/_ping")
        await ask("host", "GET", "/topics", headers={"Host": "evil.example"})
        await ask("long path", "GET", "/" + "a" * 9000)
        await ask(
            "v2 produce",
            "POST",
            f"/topics/{topic}",
            data='{"records":[{"value":"eA==","partition":0},{"value":"eQ==","partition":0}]}',
            headers={"Content-Type": V2_BINARY, "Accept": V2},
        )
        await ask("v2 malformed", "POST", f"/topics/{topic}", data="{", headers={"Content-Type": V2_BINARY})
        await ask("v2 metadata", "GET", f"/topics/{topic}/partitions", headers={"Accept": V2})
        instance = f"/consumers/v2-{topic}/instances"
        made = '{"name":"i","format":"binary","auto.offset.reset":"earliest"}'
        await ask("v2 create", "POST", f"/consumers/v2-{topic}", data=made, headers={"Content-Type": V2})
        await ask(
            "v2 assign",
            "POST",
            f"{instance}/i/assignments",
            data=f'{{"partitions":[{{"topic":"{topic}","partition":0}}]}}',
            headers={"Content-Type": V2},
        )
        await ask(
            "v2 read",
            "GET",
            f"{instance}/i/records?timeout=5000&max_bytes=1000",
            headers={"Accept": V2_BINARY},
        )
        await ask("v2 commit", "POST", f"{instance}/i/offsets", headers={"Content-Type": V2})
        await ask("v2 delete", "DELETE", f"{instance}/i", headers={"Content-Type": V2})
        await ask("v2 gone", "DELETE", f"{instance}/i", headers={"Content-Type": V2})
    return found


async def grpc_answers(address: str, topic: str) -> dict[str, Any]:
    """Make calls; return the answer or the status of each."""
    found: dict[str, Any] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        stub = KafkaPixyStub(channel)

        async def call(what: str, asked: Any) -> Any:
            try:
                answer = await asked
                found[what] = re.sub(
                    r"(timestamp: )\d+|( (seconds|nanos): )\d+", "TIME", str(answer).replace(topic, "TOPIC")
                )
                return answer
            except grpc.aio.AioRpcError as error:
                found[what] = error.code(), (error.details() or "").replace(topic, "TOPIC")

        def raw(method: str, message: bytes = b"") -> Any:
            return channel.unary_unary(method)(message)

        await call("produce", stub.Produce(pb.ProdRq(topic=topic, message=b"x", key_value=b"k")))
        await call("async", stub.Produce(pb.ProdRq(topic=topic, message=b"x", async_mode=True)))
        await call("unknown", stub.Produce(pb.ProdRq(topic=topic + "-none", message=b"x")))
        await call("large", stub.Produce(pb.ProdRq(topic=topic, message=b"x" * 900_000, key_value=b"k")))
        await call(
            "packed",
            stub.Produce(
                pb.ProdRq(topic=topic, message=b"x" * 5000, key_value=b"k"), compression=grpc.Compression.Gzip
            ),
        )
        await call("bad ack", stub.Ack(pb.AckRq(topic=topic, group="g", partition=-1)))
        await call("malformed", raw("/KafkaPixy/Produce", b"\xff\xff"))
        await call("no method", raw("/KafkaPixy/Nothing"))
        await call("no service", raw("/Nothing/Nothing"))
        group = f"grpc-{topic}"
        for number in range(2):
            await call(
                f"consume {number}", stub.ConsumeNAck(pb.ConsNAckRq(topic=topic, group=group, no_ack=True))
            )
        await call("offsets", stub.GetOffsets(pb.GetOffsetsRq(topic=topic, group=f"other-{topic}")))
        await call("no group", stub.ListConsumers(pb.ListConsumersRq(topic=topic, group="none")))
        # Nobody joins a group in a millisecond.
        late = pb.ConsNAckRq(topic=topic, group=f"late-{topic}", no_ack=True)
        await call("timeout", stub.ConsumeNAck(late, timeout=0.001))
        health = health_pb2_grpc.HealthStub(channel)
        await call("health", health.Check(health_pb2.HealthCheckRequest(service="KafkaPixy")))
        await call("no health", health.Check(health_pb2.HealthCheckRequest(service="none")))
        watch = health.Watch(health_pb2.HealthCheckRequest())
        found["watch"] = str(await watch.read())
        watch.cancel()
        asked = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        for _ in range(2):  # a bidirectional stream: an answer to each message, one after the other
            await asked.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answer = await asked.read()
            found["services"] = sorted(each.name for each in answer.list_services_response.service)
        await asked.done_writing()
        found["end of stream"] = await asked.read() == grpc.aio.EOF, await asked.code()
    return found
