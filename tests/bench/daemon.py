"""Compare the daemon, on a real Kafka, with bare servers of the same messages; writes build/bench.json."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.bench.bare_servers import VALUE
from tests.bench.report import ROOT, Report, console, on_kafka
from tests.kafka.cluster import Cluster, free_port

RESULT = ROOT / "build" / "bench.json"
ROUNDS = 5
WRK_SECONDS = 4
GHZ_VERSION = "v0.93.0"


@contextmanager
def process(*args: str, wait_port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program until the end of the block; its output goes to build/bench-server.log.

    Args:
        args: arguments of the interpreter.
        wait_port: the block begins when the program listens on this port.
    """
    log = ROOT / "build" / "bench-server.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen([sys.executable, *args], cwd=ROOT, stdout=output, stderr=output)
    try:
        _wait_for(wait_port, child)
        yield child
    finally:
        child.terminate()
        child.wait(90)  # it leaves its groups, 60 s at most


def _wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    import socket

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError("the server ended before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server does not listen after 30 s")


def load(kind: str, port: int, topic: str, callers: int, calls: int) -> dict[str, float]:
    """Run :mod:`tests.bench.load` in a process of its own, against a port of this machine.

    Args:
        kind: ``produce``, ``consume`` (gRPC), ``rest`` or ``rest-sync``.
        port: the server's.
        topic: to write to, or to consume.
        callers: calls at the same time.
        calls: in all, after a twentieth of them for warming up.

    Returns:
        What :func:`tests.bench.load.closed_loop` measures.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.bench.load",
            kind,
            f"127.0.0.1:{port}",
            topic,
            str(callers),
            str(calls),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def wrk(port: int, topic: str, connections: int) -> float:
    """Post messages with wrk for :data:`WRK_SECONDS`; return the requests per second.

    Args:
        port: REST's.
        topic: to write to.
        connections: kept open, each with one request at a time.
    """
    script = ROOT / "build" / "produce.lua"
    script.write_text(
        f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "text/plain"\nwrk.body = "{VALUE.decode()}"\n'
    )
    done = subprocess.run(
        [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{WRK_SECONDS}s",
            "-s",
            str(script),
            f"http://127.0.0.1:{port}/topics/{topic}/messages",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    if "Non-2xx" in done.stdout:
        raise RuntimeError(done.stdout)
    return float(next(line for line in done.stdout.splitlines() if "Requests/sec" in line).split()[1])


def find_ghz() -> str | None:
    """Return the path of ghz, building it the first time if Go is installed; None if there is neither."""
    made = ROOT / "build" / "bin" / "ghz"
    if not made.exists() and shutil.which("ghz") is None and shutil.which("go"):
        console.print("building the load generator ghz with Go; later runs use it again ...")
        subprocess.run(
            ["go", "install", f"github.com/bojand/ghz/cmd/ghz@{GHZ_VERSION}"],
            env={**os.environ, "GOBIN": str(made.parent), "GOFLAGS": "-mod=mod"},
            check=False,
            capture_output=True,
            timeout=600,
        )
    return str(made) if made.exists() else shutil.which("ghz")


def ghz(program: str, port: int, topic: str, callers: int, calls: int) -> float:
    """Produce over gRPC with ghz; return the requests per second.

    Args:
        program: the path of ghz.
        port: gRPC's.
        topic: to write to.
        callers: calls at the same time, over four connections.
        calls: in all.
    """
    body = base64.b64encode(VALUE).decode()
    done = subprocess.run(
        [
            program,
            "--insecure",
            "--proto",
            str(ROOT / "proto" / "kafkapixy.proto"),
            "--call",
            "KafkaPixy.Produce",
            "-c",
            str(callers),
            "--connections",
            "4",
            "-n",
            str(calls),
            "-O",
            "json",
            "-d",
            json.dumps({"topic": topic, "key_undefined": True, "message": body}),
            f"127.0.0.1:{port}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    if set(report["statusCodeDistribution"]) != {"OK"}:
        raise RuntimeError(report["statusCodeDistribution"])
    return float(report["rps"])


def produce_rate(port: int) -> float:
    program = find_ghz()
    if program:
        return ghz(program, port, "sync", 64, 12_000)
    return load("produce", port, "sync", 64, 12_000)["per_second"]


def fill(bootstrap: str, topic: str, messages: int) -> None:
    """Write messages to the four partitions of a topic in turn, and wait until Kafka has them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for at in range(messages):
        producer.produce(topic, VALUE, partition=at % 4)
        if at % 10_000 == 0:
            producer.flush()
    producer.flush()


def lone_produce(bootstrap: str, topic: str, calls: int) -> float:
    """Time confluent-kafka alone, one message at a time with linger 0.

    Returns:
        The p50 from ``produce`` to the delivery callback, in milliseconds.
    """
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "enable.idempotence": True}
    )
    took = []
    for _ in range(calls):
        begun = time.perf_counter()
        landed: list[float] = []
        producer.produce(topic, VALUE, on_delivery=lambda _e, _m, to=landed: to.append(time.perf_counter()))
        while not landed:
            producer.poll(1)
        took.append(landed[0] - begun)
    return statistics.median(took[calls // 10 :]) * 1e3


def rss(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


class Bench:
    def __init__(self, cluster: Cluster, report: Report) -> None:
        self.cluster, self.report = cluster, report
        self.bootstrap = cluster.bootstrap()[0]
        self.grpc, self.http = free_port(), free_port()
        self.echo_grpc, self.echo_http = free_port(), free_port()
        for topic in ("sync", "lone", "async", "latency", "backlog", "consume"):
            cluster.create_topic(topic, 4)

    def run(self) -> None:
        with process(
            "-m",
            "pixy.cli.main",
            f"--kafkaPeers={self.bootstrap}",
            f"--grpcAddr=127.0.0.1:{self.grpc}",
            f"--tcpAddr=127.0.0.1:{self.http}",
            "--config",
            self._config(),
            wait_port=self.grpc,
        ) as daemon:
            time.sleep(2)
            idle = rss(daemon.pid)
            self.report.add("memory, idle with one cluster", f"{idle:.0f} MiB", "<= 90 MiB", idle <= 90, "")
            self._memory(daemon.pid)
            with process(
                "-m", "tests.bench.bare_servers", "grpc", str(self.echo_grpc), wait_port=self.echo_grpc
            ):
                self._produce()
                self._consume()
            self._lone()
            with process(
                "-m", "tests.bench.bare_servers", "http", str(self.echo_http), wait_port=self.echo_http
            ):
                self._rest()
            asyncio.run(self._latency())

    def _config(self) -> str:
        path = ROOT / "build" / "bench.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("proxies:\n  default:\n    consumer:\n      initial_offset: oldest\n")
        return str(path)

    def _memory(self, pid: int) -> None:
        fill(self.bootstrap, "backlog", 100_000)
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.load",
                "consume",
                f"127.0.0.1:{self.grpc}",
                "backlog",
                "16",
                "25000",
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        most = 0.0
        while child.poll() is None:
            most = max(most, rss(pid))
            time.sleep(0.05)
        self.report.add(
            "memory while consuming a backlog of 100,000 messages",
            f"{most:.0f} MiB",
            "<= 180 MiB",
            most <= 180,
            "",
        )

    def _produce(self) -> None:
        ours, bare = [], []
        for _ in range(2):  # warm up: a broker is half as fast until its JVM has compiled the hot paths
            produce_rate(self.grpc)
        for _ in range(ROUNDS):
            bare.append(produce_rate(self.echo_grpc))
            ours.append(produce_rate(self.grpc))
        self.report.ratio("gRPC sync produce, 64 callers, against a bare gRPC server", 0.80, ours, bare)
        self.report.add(
            "the same, against the Go original's 128 a second",
            f"{statistics.median(ours) / 128:.1f} x",
            ">= 31.6 x",
            statistics.median(ours) / 128 >= 10**1.5,
            "one and a half orders of magnitude",
        )

    def _consume(self) -> None:
        fill(self.bootstrap, "consume", 100_000)
        ours, bare = [], []
        load("consume", self.grpc, "consume", 16, 1000)
        for _ in range(ROUNDS):
            bare.append(load("consume", self.echo_grpc, "consume", 16, 12_000)["per_second"])
            ours.append(load("consume", self.grpc, "consume", 16, 12_000)["per_second"])
        self.report.ratio(
            "gRPC consume of a backlog with auto-ack, 16 callers, against a bare gRPC server",
            0.70,
            ours,
            bare,
        )

    def _lone(self) -> None:
        over = {"grpc": [], "rest": []}
        base = []
        for _ in range(ROUNDS):
            base.append(lone_produce(self.bootstrap, "lone", 500))
            over["grpc"].append(load("produce", self.grpc, "lone", 1, 500)["p50_ms"])
            over["rest"].append(load("rest-sync", self.http, "lone", 1, 500)["p50_ms"])
        for api, limit in (("grpc", 1.2), ("rest", 0.8)):
            extra = statistics.median(a - b for a, b in zip(over[api], base, strict=True))
            self.report.add(
                f"sync produce by one caller, {api}: p50 above confluent-kafka's",
                f"{extra:.2f} ms",
                f"<= {limit} ms",
                extra <= limit,
                f"{statistics.median(over[api]):.2f} against {statistics.median(base):.2f} ms",
            )

    def _rest(self) -> None:
        ours, bare = [], []
        for _ in range(ROUNDS):
            if shutil.which("wrk"):
                bare.append(wrk(self.echo_http, "async", 32))
                ours.append(wrk(self.http, "async", 32))
            else:
                bare.append(load("rest", self.echo_http, "async", 32, 12_000)["per_second"])
                ours.append(load("rest", self.http, "async", 32, 12_000)["per_second"])
        self.report.ratio("REST async produce, 32 connections, against a bare HTTP server", 0.60, ours, bare)

    async def _latency(self) -> None:
        import grpc

        from pixy.proto import kafkapixy_pb2 as pb
        from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        took = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            stub = KafkaPixyStub(channel)
            request = pb.ConsNAckRq(topic="latency", group="bench", auto_ack=True)
            for _ in range(220):
                poll = asyncio.ensure_future(stub.ConsumeNAck(request))
                await asyncio.sleep(0.02)
                landed: list[float] = []
                producer.produce(
                    "latency",
                    VALUE,
                    on_delivery=lambda _e, _m, to=landed: to.append(time.perf_counter()),
                )
                await asyncio.to_thread(producer.flush)
                try:
                    await poll
                except grpc.RpcError:
                    continue
                took.append(time.perf_counter() - landed[0])
        p50 = statistics.median(took[20:]) * 1e3
        self.report.add(
            "a message that ends a long poll: p50 from Kafka's ack to the answer",
            f"{p50:.2f} ms",
            "<= 4 ms",
            p50 <= 4,
            f"{len(took)} messages",
        )


def run() -> bool:
    """Run the daemon's rows; return whether all met their targets."""
    return on_kafka(lambda cluster, report: Bench(cluster, report).run(), RESULT, f"{ROUNDS} rounds a row")
