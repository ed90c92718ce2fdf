"""Compare the tap with a direct connection and with a bare asyncio forwarder; tap and forwarder run on uvloop."""

from __future__ import annotations

import contextlib
import re
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

from pixy.wire import frames
from tests.bench.report import ROOT, Report, console
from tests.bench.wire.tap_peers import BULK, FETCH, HEARTBEAT, PRODUCE, answers, receive

ROUNDS = 7
TRIPS = 3_000
BULKS = 400
IN_FLIGHT = 4


@contextlib.contextmanager
def _process(*arguments: str, pattern: str = r"(\d+)\n", stderr: bool = False) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr else None,
    )
    try:
        stream = process.stderr if stderr else process.stdout
        assert stream is not None
        line = stream.readline()
        found = re.match(pattern, line)
        assert found is not None, line
        yield int(found[1])
    finally:
        process.kill()
        process.communicate()


class Client:
    """A Kafka client that receives answers without decoding them."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sizes = {key: len(frame) for key, frame in answers().items()}
        self.buffer = memoryview(bytearray(2 * BULK))
        self.number = 0
        self.requests = {
            FETCH: bytearray(frames.encode_request(FETCH, 11, 0, "bench", {"Topics": []})),
            HEARTBEAT: bytearray(
                frames.encode_request(
                    HEARTBEAT,
                    4,
                    0,
                    "bench",
                    {
                        "GroupId": "bench",
                        "MemberId": "bench-0a4c1c8e-3f2b-4f5e-9d1c-6f1f0c8f3a77",
                        "GenerationId": 1,
                    },
                )
            ),
            PRODUCE: bytearray(
                frames.encode_request(
                    PRODUCE,
                    7,
                    0,
                    "bench",
                    {
                        "Acks": -1,
                        "TopicData": [
                            {"Name": "bench", "PartitionData": [{"Index": 0, "Records": bytes(BULK)}]},
                        ],
                    },
                )
            ),
        }

    def send(self, key: int) -> None:
        self.number += 1
        struct.pack_into(">i", self.requests[key], 8, self.number)
        self.socket.sendall(self.requests[key])

    def take(self, key: int) -> None:
        receive(self.socket, self.buffer[: self.sizes[key]])

    def latency(self) -> float:
        """Measure the p50 of a Heartbeat's round trip, in seconds."""
        found = []
        for _ in range(TRIPS):
            begun = time.perf_counter()
            self.send(HEARTBEAT)
            self.take(HEARTBEAT)
            found.append(time.perf_counter() - begun)
        return statistics.median(found)

    def rate(self, key: int) -> float:
        """Measure MB per second of requests of one API key, with :data:`IN_FLIGHT` requests in flight."""
        begun = time.perf_counter()
        for i in range(BULKS + IN_FLIGHT):
            if i < BULKS:
                self.send(key)
            if i >= IN_FLIGHT:
                self.take(key)
        return BULKS * BULK / 1e6 / (time.perf_counter() - begun)


def measure(report: Report) -> None:
    """Measure latency and throughput, and add the rows."""
    peers = "tests.bench.wire.tap_peers"
    with (
        _process(peers, "broker") as broker,
        _process(peers, "forward", str(broker)) as bare,
        _process(
            "pixy.cli.main",
            "tap",
            "--broker",
            f"127.0.0.1:{broker}",
            "--listen",
            "127.0.0.1:0",
            "--output",
            "none",
            pattern=r".*:(\d+) -> ",
            stderr=True,
        ) as tap,
    ):
        clients = {"direct": Client(broker), "bare": Client(bare), "tap": Client(tap)}
        trips: dict[str, list[float]] = {name: [] for name in clients}
        fetched: dict[str, list[float]] = {name: [] for name in clients}
        produced: dict[str, list[float]] = {name: [] for name in clients}
        for client in clients.values():
            client.latency()
        for _ in range(ROUNDS):
            for name, client in clients.items():
                trips[name].append(client.latency())
                fetched[name].append(client.rate(FETCH))
                produced[name].append(client.rate(PRODUCE))
    p50 = {name: statistics.median(values) for name, values in trips.items()}
    added = (p50["tap"] - p50["direct"]) * 1e3
    report.add(
        "tap: added latency, p50",
        f"{added:.3f} ms",
        "< 0.5 ms",
        added < 0.5,
        ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in p50.items()),
    )
    for what, found in (("fetch responses", fetched), ("produce requests", produced)):
        rates = {name: statistics.median(values) for name, values in found.items()}
        report.add(
            f"tap: {what} forwarded",
            f"{rates['tap']:,.0f} MB/s",
            ">= 300 MB/s",
            rates["tap"] >= 300,
            ", ".join(f"{name} {value:,.0f}" for name, value in rates.items()) + " MB/s, frames of 1 MiB",
        )


def run() -> bool:
    """Run the tap's rows alone; return whether all met their targets."""
    console.print("tap, against a direct connection and a bare forwarder")
    report = Report()
    measure(report)
    return report.finish(ROOT / "build" / "bench-tap.json")


if __name__ == "__main__":
    sys.exit(0 if run() else 1)
