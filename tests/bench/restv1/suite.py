"""Run the rows of the v1/v2 REST API on a real Kafka; writes build/bench-restv1.json."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from confluent_kafka import Producer

from tests.bench.daemon import process
from tests.bench.report import ROOT, Report, console, on_kafka
from tests.bench.restv1 import consumers
from tests.bench.restv1.client import VALUE
from tests.kafka.cluster import Cluster, free_port

RESULT = ROOT / "build" / "bench-restv1.json"
ROUNDS = 5
PRODUCED = 300_000


class Bench:
    """One daemon on one broker.

    Attributes:
        port: the port of the daemon's REST API.
    """

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self.cluster, self.report = cluster, report
        self.bootstrap = cluster.bootstrap()[0]
        self.port = free_port()
        for topic in ("bare", "produce", "lone"):
            cluster.create_topic(topic, 4)

    def run(self) -> None:
        """Start the daemon and run all rows, those of :data:`PARTS` included."""
        with process(
            "-m",
            "pixy.cli.main",
            f"--kafkaPeers={self.bootstrap}",
            "--grpcAddr=127.0.0.1:0",
            f"--tcpAddr=127.0.0.1:{self.port}",
            wait_port=self.port,
        ) as daemon:
            self._produce()
            self._lone()
            for part in PARTS:
                part(self, daemon.pid)

    def client(self, topic: str, connections: int, records: int, requests: int) -> dict[str, float]:
        """Produce over REST with :mod:`tests.bench.restv1.client`.

        Args:
            topic: the topic to write to.
            connections: connections, each with one request at a time.
            records: records per request.
            requests: requests over all connections.

        Returns:
            The client's figures: records per second, and latencies in milliseconds.
        """
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.bench.restv1.client",
                f"127.0.0.1:{self.port}",
                f"/topics/{topic}",
                str(connections),
                str(records),
                str(requests),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: dict[str, float] = json.loads(done.stdout)
        return found

    def _produce(self) -> None:
        ours, bare, p50 = [], [], []
        bare_produce(self.bootstrap, "bare", PRODUCED)  # warm up: the broker's JVM compiles its hot paths
        self.client("produce", 16, 100, 1000)
        for _ in range(ROUNDS):
            bare.append(bare_produce(self.bootstrap, "bare", PRODUCED))
            found = self.client("produce", 16, 100, 2000)
            ours.append(found["per_second"])
            p50.append(found["p50_ms"])
        self.report.ratio(
            "produce, 100 records a request, 16 connections, against confluent-kafka", 0.12, ours, bare
        )
        console.print(f"    p50 of a request {statistics.median(p50):.1f} ms")

    def _lone(self) -> None:
        ours, base = [], []
        for _ in range(ROUNDS):
            base.append(bare_lone(self.bootstrap, "lone", 500))
            ours.append(self.client("lone", 1, 1, 500)["p50_ms"])
        extra = statistics.median(a - b for a, b in zip(ours, base, strict=True))
        self.report.add(
            "produce of one record at a time: p50 above confluent-kafka's",
            f"{extra:.2f} ms",
            "<= 0.8 ms",
            extra <= 0.8,
            f"{statistics.median(ours):.2f} against {statistics.median(base):.2f} ms",
        )


PARTS: list[Callable[[Bench, int], None]] = [consumers.run]
"""More rows. Each function is called with the bench and the daemon's process id."""


def bare_produce(bootstrap: str, topic: str, count: int) -> float:
    """Measure records per second of confluent-kafka alone: a delivery callback per record, linger 5 ms."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": count + 1,
        }
    )
    landed = 0

    def callback(error: object, _message: object) -> None:
        nonlocal landed
        if error is not None:
            raise RuntimeError(error)
        landed += 1

    produce, poll = producer.produce, producer.poll
    begun = time.perf_counter()
    for at in range(count):
        produce(topic, VALUE, on_delivery=callback)
        if at % 1000 == 0:
            poll(0)
    producer.flush()
    took = time.perf_counter() - begun
    if landed != count:
        raise RuntimeError(f"{landed} of {count} records were acknowledged")
    return count / took


def bare_lone(bootstrap: str, topic: str, calls: int) -> float:
    """Measure confluent-kafka's p50 from produce to callback, in milliseconds: linger 0, idempotent."""
    from tests.bench.daemon import lone_produce

    return lone_produce(bootstrap, topic, calls)


def run() -> bool:
    """Run the rows; return whether all met their targets."""
    return on_kafka(
        lambda cluster, report: Bench(cluster, report).run(), RESULT, f"64-byte values, {ROUNDS} rounds a row"
    )
