"""Compare one worker on one core with two on two, on real Kafka: the scaling model of docs/fronts.md.

The load generator and the broker need processor, too. So the figure that has a target counts them out: from the processor time that a call
costs, a worker's core makes so many calls a second, and two make ``2 x cost of one worker / cost of two`` times as many. Rates are
reported beside it.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

import psutil

from tests.bench.daemon import load, process
from tests.bench.front import CALLS, ROUNDS, Measured
from tests.bench.report import ROOT, Report, on_kafka, pairs
from tests.kafka.cluster import Cluster, free_port

RESULT = ROOT / "build" / "bench-workers.json"
TARGET = 1.8
CALLERS = 64


def _daemon_on(cluster: Cluster, folder: Path, workers: int) -> tuple[tuple[str, ...], int]:
    """Write a configuration; return the arguments of Python and the port of gRPC."""
    grpc_port, rest_port = free_port(), free_port()
    path = folder / f"{workers}.yaml"
    path.write_text(
        f"grpc_addr: 127.0.0.1:{grpc_port}\ntcp_addr: 127.0.0.1:{rest_port}\nserver: {{workers: {workers}}}\n"
        f"proxies: {{default: {{kafka: {{seed_peers: ['{cluster.bootstrap()[0]}']}}}}}}\n"
    )
    return ("-m", "pixy.cli.main", "--config", str(path)), grpc_port


def _pin(pid: int, workers: int) -> None:
    """Give each worker a core of its own; the supervisor has nothing to do."""
    root = psutil.Process(pid)
    for core, each in enumerate(root.children() if workers > 1 else [root]):
        each.cpu_affinity([core])
        for thread in each.threads():
            psutil.Process(thread.id).cpu_affinity([core])


def worker_rows(cluster: Cluster, report: Report) -> None:
    """Add the rows.

    Args:
        cluster: of the daemons.
        report: gets them.
    """
    folder = ROOT / "build" / "bench-workers"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cluster.create_topic("workers", 8)
    costs: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    one, port1 = _daemon_on(cluster, folder, 1)
    two, port2 = _daemon_on(cluster, folder, 2)
    with process(*one, wait_port=port1) as first, process(*two, wait_port=port2) as second:
        servers = {1: Measured(first.pid, port1), 2: Measured(second.pid, port2)}
        for workers, child in ((1, first), (2, second)):
            _pin(child.pid, workers)
        held = servers[2].memory()
        for _ in range(ROUNDS):
            for workers, server in servers.items():
                cost, rate = server.cost(
                    lambda port=server.grpc: load("spread", port, "workers", CALLERS, CALLS)["per_second"],  # type: ignore[misc]
                    CALLS,
                )
                costs[workers].append(cost)
                rates[workers].append(rate)
    each = [2 * share for share in pairs(costs[1], costs[2])]
    found = statistics.median(each)
    report.add(
        "calls that 2 workers on 2 cores have processor for, against 1 on 1: sync produce, 64 callers, 16 connections",
        f"{found:.2f} x",
        f">= {TARGET} x",
        found >= TARGET,
        f"processor time of a call {statistics.median(costs[2]):.0f} and {statistics.median(costs[1]):.0f} us, "
        f"pairs {min(each):.2f} to {max(each):.2f}",
    )
    as_is = pairs(rates[2], rates[1])
    report.add(
        "the same, rates with load and broker on the same cores",
        f"{statistics.median(as_is):.2f} x",
        "reported",
        True,
        f"{statistics.median(rates[2]):,.0f} against {statistics.median(rates[1]):,.0f} a second, "
        f"pairs {min(as_is):.2f} to {max(as_is):.2f}",
    )
    report.add(
        "memory, idle, 2 workers",
        f"{sum(held):.0f} MiB",
        "reported",
        True,
        "the supervisor and each worker: " + ", ".join(f"{mib:.0f}" for mib in held),
    )


def run() -> bool:
    """Run the rows; return whether all met their targets."""
    return on_kafka(worker_rows, RESULT, f"{ROUNDS} rounds of {CALLS} calls")
