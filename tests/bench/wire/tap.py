"""Compare the tap with a direct connection and with a bare asyncio forwarder; tap and forwarder run on uvloop."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pixy.wire import frames
from tests.bench.report import ROOT, Report, console, pairs
from tests.bench.wire.tap_peers import BULK, FETCH, HEARTBEAT, PRODUCE, answers, numbered, receive

ROUNDS = 7
TRIPS = 3_000
BULKS = 400
IN_FLIGHT = 4
BULK_TARGET = 0.6
SMALL = 102_400
"""Heartbeats of a round of small requests."""
BURST, WINDOW = 64, 1_024
"""Requests that are sent at once, and those in flight."""


@contextlib.contextmanager
def _process(
    *arguments: str, pattern: str = r"(\d+)\n", stderr: bool = False, pids: list[int] | None = None
) -> Iterator[int]:
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
        if pids is not None:
            pids.append(process.pid)
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

    def tail(self) -> float:
        """Measure the p99 of a Heartbeat's round trip, in seconds."""
        found = []
        for _ in range(TRIPS):
            begun = time.perf_counter()
            self.send(HEARTBEAT)
            self.take(HEARTBEAT)
            found.append(time.perf_counter() - begun)
        return statistics.quantiles(found, n=100)[-1]

    def small(self) -> None:
        """Send :data:`SMALL` Heartbeats, :data:`WINDOW` of them in flight, and receive their answers."""
        frame, size = bytes(self.requests[HEARTBEAT]), self.sizes[HEARTBEAT] * BURST
        view = memoryview(bytearray(size))
        bursts = [
            numbered(frame, b"".join(struct.pack(">i", n) for n in range(first, first + BURST)), 8)
            for first in range(0, SMALL, BURST)
        ]
        for i, burst in enumerate(bursts):
            self.socket.sendall(burst)
            if i >= WINDOW // BURST:
                receive(self.socket, view)
        for _ in range(min(WINDOW // BURST, len(bursts))):
            receive(self.socket, view)

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
        run_tap(broker) as tap,
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
        ratios = {name: statistics.median(pairs(found["tap"], found[name])) for name in ("direct", "bare")}
        report.add(
            f"tap: {what} forwarded",
            f"{ratios['direct']:.2f} x direct",
            f">= {BULK_TARGET} x",
            ratios["direct"] >= BULK_TARGET,
            f"{ratios['bare']:.2f} x bare forwarder; "
            + ", ".join(f"{name} {value:,.0f}" for name, value in rates.items())
            + " MB/s, frames of 1 MiB",
        )


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, all of its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_small(report: Report) -> None:
    """Measure small pipelined requests, in processor time of the forwarder: other processes take theirs from the wall's."""
    peers = "tests.bench.wire.tap_peers"
    pids: list[int] = []
    with (
        _process(peers, "small") as broker,
        _process(peers, "forward", str(broker), pids=pids) as bare,
        run_tap(broker, pids) as tap,
    ):
        clients = {"direct": Client(broker), "bare": Client(bare), "tap": Client(tap)}
        owners = dict(zip(("bare", "tap"), pids, strict=True))
        cost: dict[str, list[float]] = {name: [] for name in owners}
        wall: dict[str, list[float]] = {name: [] for name in clients}
        tails: dict[str, list[float]] = {name: [] for name in clients}
        for client in clients.values():
            client.small()
        for _ in range(ROUNDS):
            for name, client in clients.items():
                used = processor_seconds(owners[name]) if name in owners else 0.0
                begun = time.perf_counter()
                client.small()
                wall[name].append(SMALL / (time.perf_counter() - begun))
                if name in owners:
                    cost[name].append((processor_seconds(owners[name]) - used) / SMALL)
                tails[name].append(client.tail())
    rates = {name: 1 / max(statistics.median(values), 1e-9) for name, values in cost.items()}
    wanted = max(60_000, 0.25 * rates["bare"])
    report.add(
        "tap: small pipelined requests a second on one core",
        f"{rates['tap']:,.0f}",
        f">= {wanted:,.0f}",
        rates["tap"] >= wanted,
        f"processor time a request: tap {1e6 / rates['tap']:.1f} us, bare forwarder {1e6 / rates['bare']:.1f} us; wall: "
        + ", ".join(f"{name} {statistics.median(values):,.0f}/s" for name, values in wall.items()),
    )
    ratios = [tap / direct for tap, direct in zip(tails["tap"], tails["direct"], strict=True)]
    found = statistics.median(ratios)
    report.add(
        "tap: p99 of a round trip, one request in flight",
        f"{found:.1f} x direct",
        "< 4 x",
        found < 4,
        ", ".join(f"{name} {statistics.median(values) * 1e3:.3f} ms" for name, values in tails.items()),
    )


def run_tap(
    broker: int, pids: list[int] | None = None, *flags: str
) -> contextlib.AbstractContextManager[int]:
    """Run the tap in front of a broker's port; the context is its own port.

    Args:
        broker: the port.
        pids: receives the number of the process.
        flags: more of the command line.
    """
    return _process(
        "pixy.cli.main",
        "tap",
        "--broker",
        f"127.0.0.1:{broker}",
        "--listen",
        "127.0.0.1:0",
        "--output",
        "none",
        *flags,
        pattern=r".*:(\d+) -> ",
        stderr=True,
        pids=pids,
    )


def run() -> bool:
    """Run the tap's rows alone; return whether all met their targets."""
    console.print("tap, against a direct connection and a bare forwarder")
    report = Report()
    measure(report)
    measure_small(report)
    return report.finish(ROOT / "build" / "bench-tap.json")


if __name__ == "__main__":
    sys.exit(0 if run() else 1)
