"""Measure the daemon behind both fronts, beside bare servers on the same ones, on real Kafka.

The figure is processor time a call, of the server with its children: rates also depend on what the load generator takes.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from tests.bench.daemon import find_ghz, ghz, load, process
from tests.bench.report import ROOT, Report, on_kafka
from tests.kafka.cluster import Cluster, free_port

RESULT = ROOT / "build" / "bench-front.json"
ROUNDS = int(os.environ.get("BENCH_FRONT_ROUNDS", "5"))
CALLS = int(os.environ.get("BENCH_FRONT_CALLS", "8000"))
FRONTS = ("portable", "envoy")


class Measured:
    """A server that runs.

    Args:
        pid: of its process.
        grpc: its port of gRPC.
        rest: its port of REST; 0: it has none.
    """

    def __init__(self, pid: int, grpc: int, rest: int = 0) -> None:
        self.grpc = grpc
        self.rest = rest
        root = psutil.Process(pid)
        self._processes = [root, *root.children(recursive=True)]

    def processor(self) -> float:
        """Return the seconds of processor time so far."""
        times = [each.cpu_times() for each in self._processes]
        return sum(each.user + each.system for each in times)

    def memory(self) -> list[float]:
        """Return the MiB that each of its processes has to itself, with its share of what several have."""
        return [each.memory_full_info().pss / 2**20 for each in self._processes]

    def cost(self, drive: Callable[[], float], calls: int) -> tuple[float, float]:
        """Drive it; return microseconds of processor time a call, and calls a second.

        Args:
            drive: makes the calls, and returns their rate.
            calls: how many it makes.
        """
        before = self.processor()
        rate = drive()
        return (self.processor() - before) / calls * 1e6, rate


@contextmanager
def servers(cluster: Cluster, folder: Path) -> Iterator[dict[str, Measured]]:
    """Run the daemon behind both fronts, and a bare server on each.

    Args:
        cluster: of the daemons.
        folder: for their configurations.
    """
    with ExitStack() as stack:
        found: dict[str, Measured] = {}
        for front, kind in zip(FRONTS, ("grpc", "asgi"), strict=True):
            port = free_port()
            child = stack.enter_context(
                process("-m", "tests.bench.bare_servers", kind, str(port), wait_port=port)
            )
            found[f"bare {front}"] = Measured(child.pid, port)
            grpc_port, rest_port = free_port(), free_port()
            path = folder / f"{front}.yaml"
            path.write_text(
                f"grpc_addr: 127.0.0.1:{grpc_port}\ntcp_addr: 127.0.0.1:{rest_port}\nserver: {{front: {front}}}\n"
                f"proxies: {{default: {{kafka: {{seed_peers: ['{cluster.bootstrap()[0]}']}}}}}}\n"
            )
            child = stack.enter_context(
                process("-m", "pixy.cli.main", "--config", str(path), wait_port=rest_port)
            )
            found[front] = Measured(child.pid, grpc_port, rest_port)
        yield found


def _produce(port: int) -> float:
    program = find_ghz()
    if program:
        return ghz(program, port, "front", 64, CALLS)
    # A twentieth of the calls warm up, and cost processor time as well.
    return load("produce", port, "front", 64, CALLS)["per_second"]


def _rows(cluster: Cluster, report: Report) -> None:
    folder = ROOT / "build" / "bench-front"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cluster.create_topic("front", 4)
    with servers(cluster, folder) as found:
        for front, most in zip(FRONTS, (90, 180), strict=True):
            held = found[front].memory()
            report.add(
                f"memory, idle, {front}",
                f"{sum(held):.0f} MiB",
                f"<= {most} MiB",
                sum(held) <= most,
                "proportional set size by process: " + ", ".join(f"{each:.0f}" for each in held),
            )
        costs: dict[str, list[float]] = {name: [] for name in found}
        rates: dict[str, list[float]] = {name: [] for name in found}
        rest_costs: dict[str, list[float]] = {front: [] for front in FRONTS}
        rest_rates: dict[str, list[float]] = {front: [] for front in FRONTS}
        for _ in range(ROUNDS):
            for name, server in found.items():
                cost, rate = server.cost(lambda port=server.grpc: _produce(port), CALLS)  # type: ignore[misc]
                costs[name].append(cost)
                rates[name].append(rate)
            for front in FRONTS:
                port = found[front].rest
                cost, rate = found[front].cost(
                    lambda port=port: load("rest", port, "front", 32, CALLS)["per_second"],  # type: ignore[misc]
                    CALLS,
                )
                rest_costs[front].append(cost)
                rest_rates[front].append(rate)
        _report(report, costs, rates, rest_costs, rest_rates)


def _report(
    report: Report,
    costs: dict[str, list[float]],
    rates: dict[str, list[float]],
    rest_costs: dict[str, list[float]],
    rest_rates: dict[str, list[float]],
) -> None:
    middle = {name: statistics.median(each) for name, each in costs.items()}
    for name, each in costs.items():
        most = 140.0 if name == "envoy" else float("inf")
        report.add(
            f"processor time of a sync produce, 64 callers, {name}",
            f"{middle[name]:.0f} us",
            "<= 140 us" if name == "envoy" else "reported",
            middle[name] <= most,
            f"rounds {min(each):.0f} to {max(each):.0f}; {statistics.median(rates[name]):,.0f} a second",
        )
    for front, most in zip(FRONTS, (float("inf"), 1.9), strict=True):
        each = [mine / bare for mine, bare in zip(costs[front], costs[f"bare {front}"], strict=True)]
        share = statistics.median(each)
        report.add(
            f"the same, {front} against the bare server on it",
            f"{share:.2f} x",
            "reported" if front == "portable" else f"<= {most} x",
            share <= most,
            f"pairs {min(each):.2f} to {max(each):.2f}",
        )
    report.times("sync produce, 64 callers, envoy against portable", 3.0, rates["envoy"], rates["portable"])
    report.times(
        "REST async produce, 32 connections, envoy against portable",
        2.0,
        rest_rates["envoy"],
        rest_rates["portable"],
        "processor time "
        + " and ".join(f"{statistics.median(rest_costs[front]):.0f} us" for front in reversed(FRONTS)),
    )


def run() -> bool:
    """Run the rows; return whether all met their targets."""
    return on_kafka(_rows, RESULT, f"{ROUNDS} rounds of {CALLS} calls a row")
