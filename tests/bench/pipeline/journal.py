"""What the journal costs a request: two daemons on one Kafka, one with it, in turn."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.bench.daemon import fill, load, process
from tests.bench.report import ROOT, Report, console, pairs
from tests.kafka.cluster import Cluster, free_port

ROUNDS = 9
CALLERS, CALLS = 64, 8_000
MOST = 0.03


@dataclass
class Daemon:
    """A daemon in a process of its own."""

    pid: int
    port: int

    def cpu(self) -> float:
        """Seconds of processor that it has used."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def daemon(bootstrap: str, name: str, journal: str) -> Iterator[Daemon]:
    """Start one; ``journal`` empty: without."""
    config = ROOT / "build" / f"bench-{name}.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(
        f"proxies:\n  default:\n    kafka:\n      seed_peers: [{bootstrap}]\n    consumer:\n"
        f"      initial_offset: oldest\n    journal:\n      topic: '{journal}'\n"
    )
    grpc, http = free_port(), free_port()
    with process(
        "-m", "pixy.cli.main", "--config", str(config), f"--grpcAddr=127.0.0.1:{grpc}",
        f"--tcpAddr=127.0.0.1:{http}", wait_port=grpc,
    ) as child:
        yield Daemon(child.pid, grpc)


def measure(kind: str, topic: str, daemons: list[Daemon]) -> tuple[list[list[float]], list[list[float]]]:
    """Requests a second, and processor microseconds a request, by daemon and round."""
    rates: list[list[float]] = [[], []]
    costs: list[list[float]] = [[], []]
    for round_ in range(ROUNDS + 1):
        order = (0, 1) if round_ % 2 else (1, 0)
        for which in order:
            before = daemons[which].cpu()
            rate = load(kind, daemons[which].port, topic, CALLERS if kind == "produce" else 16, CALLS)["per_second"]
            if round_:  # the first one warms up
                rates[which].append(rate)
                costs[which].append((daemons[which].cpu() - before) / CALLS * 1e6)
    return rates, costs


def run(report: Report) -> None:
    """Add the rows."""
    cluster = Cluster()
    try:
        bootstrap = cluster.bootstrap()[0]
        for topic in ("sync", "consume-0", "consume-1", "journal"):
            cluster.create_topic(topic, 4)
        with ExitStack() as stack:
            daemons = [
                stack.enter_context(daemon(bootstrap, name, journal))
                for name, journal in (("plain", ""), ("journal", "journal"))
            ]
            _rows(report, "sync produce, 64 callers", *measure("produce", "sync", daemons))
            for at in range(2):
                fill(bootstrap, f"consume-{at}", (ROUNDS + 2) * (CALLS + CALLS // 20) + 1000)
            _rows(report, "consume with auto-ack, 16 callers", *_consume(daemons))
    finally:
        cluster.close()


def _consume(daemons: list[Daemon]) -> tuple[list[list[float]], list[list[float]]]:
    rates: list[list[float]] = [[], []]
    costs: list[list[float]] = [[], []]
    for round_ in range(ROUNDS + 1):
        for which in (0, 1) if round_ % 2 else (1, 0):
            before = daemons[which].cpu()
            # A topic each: both would be members of one group.
            rate = load("consume", daemons[which].port, f"consume-{which}", 16, CALLS)["per_second"]
            if round_:
                rates[which].append(rate)
                costs[which].append((daemons[which].cpu() - before) / CALLS * 1e6)
    return rates, costs


def _rows(report: Report, what: str, rates: list[list[float]], costs: list[list[float]]) -> None:
    dearer = statistics.median(pairs(costs[1], costs[0])) - 1
    report.add(
        f"journal on against off, {what}: the daemon's processor time a request", f"{dearer:+.1%}",
        f"<= {MOST:+.0%}", dearer <= MOST,
        f"{statistics.median(costs[1]):.0f} against {statistics.median(costs[0]):.0f} microseconds",
    )
    each = pairs(rates[1], rates[0])
    rate = statistics.median(each)
    report.add(
        f"journal on against off, {what}: requests a second", f"{rate:.1%}", f">= {1 - MOST:.0%}", rate >= 1 - MOST,
        f"{statistics.median(rates[1]):,.0f} against {statistics.median(rates[0]):,.0f}, "
        f"pairs {min(each):.0%} to {max(each):.0%}",
    )


if __name__ == "__main__":
    REPORT = Report()
    run(REPORT)
    console.print()
    raise SystemExit(not REPORT.finish(ROOT / "build" / "bench-journal.json"))
