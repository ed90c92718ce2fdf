"""What the journal costs a request: daemons on one Kafka, with it and without, in turn.

Two processes of the same program differ by a few per cent (where their memory lies, how their strings
hash), so one of each proves nothing, however long they run: each pair is a pair of fresh processes,
and a third one, without a journal as the first, tells how much of a difference is noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.bench.daemon import fill, load, process
from tests.bench.report import ROOT, Report, console
from tests.kafka.cluster import Cluster, free_port

PAIRS, ROUNDS = 5, 4
CALLERS = {"produce": 64, "consume": 16}
CALLS = 8_000
WARM_UP = CALLS // 20
"""Calls that :mod:`tests.bench.load` makes before it measures."""

MOST = 0.03
WHAT = {"produce": "sync produce, 64 callers", "consume": "consume with auto-ack, 16 callers"}
DAEMONS = {"plain": "", "journal": "journal", "control": ""}
"""By name: the journal's topic."""


@dataclass
class Daemon:
    """A daemon in a process of its own, and what its rounds took."""

    name: str
    pid: int
    port: int
    costs: list[float] = field(default_factory=list)
    """Processor seconds of each round."""
    rates: list[float] = field(default_factory=list)

    def cpu(self) -> float:
        """Processor seconds of all its threads: the clock that clock_getcpuclockid(3) names, in nanoseconds."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def round(self, kind: str, *, counts: bool) -> None:
        """One load; the topic to consume is its own, or the daemons would be members of one group."""
        topic = "sync" if kind == "produce" else f"consume-{self.name}"
        before = self.cpu()
        rate = load(kind, self.port, topic, CALLERS[kind], CALLS)["per_second"]
        if counts:
            self.costs.append(self.cpu() - before)
            self.rates.append(rate)


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
        yield Daemon(name, child.pid, grpc)


def measure(kind: str, bootstrap: str) -> dict[str, Daemon]:
    """One set of fresh daemons, a round each in turn, the order turned round every time."""
    with ExitStack() as stack:
        daemons = [stack.enter_context(daemon(bootstrap, *each)) for each in DAEMONS.items()]
        for number in range(ROUNDS + 1):
            for each in daemons if number % 2 else daemons[::-1]:
                each.round(kind, counts=number > 0)  # the first one warms up
    return {each.name: each for each in daemons}


def run(report: Report) -> None:
    """Add the rows."""
    cluster = Cluster()
    try:
        bootstrap = cluster.bootstrap()[0]
        for topic in ("sync", "journal", *(f"consume-{name}" for name in DAEMONS)):
            cluster.create_topic(topic, 4)
        for name in DAEMONS:
            fill(bootstrap, f"consume-{name}", PAIRS * (ROUNDS + 1) * (CALLS + WARM_UP) + 1000)
        for kind in WHAT:
            sets = []
            for number in range(PAIRS):
                sets.append(measure(kind, bootstrap))
                console.print(f"  {kind}, set {number + 1} of {PAIRS}: {_cost(sets[-1], 'journal'):+.1%}, control {_cost(sets[-1], 'control'):+.1%}")
            _rows(report, kind, sets)
    finally:
        cluster.close()


def _cost(daemons: dict[str, Daemon], name: str) -> float:
    """How much more a round took, in the middle, than the rounds of the plain one beside it."""
    return statistics.median(
        mine / plain for mine, plain in zip(daemons[name].costs, daemons["plain"].costs, strict=True)
    ) - 1


def _rows(report: Report, kind: str, sets: list[dict[str, Daemon]]) -> None:
    each = [_cost(daemons, "journal") for daemons in sets]
    control = [_cost(daemons, "control") for daemons in sets]
    dearer = statistics.median(each)
    plain, journal = (
        statistics.median(cost for daemons in sets for cost in daemons[name].costs) / (CALLS + WARM_UP) * 1e6
        for name in ("plain", "journal")
    )
    report.add(
        f"journal on against off, {WHAT[kind]}: the daemon's processor time a request", f"{dearer:+.1%}",
        f"< {MOST:+.0%}", dearer < MOST,
        f"{journal:.1f} against {plain:.1f} microseconds; {PAIRS} sets of fresh processes, {min(each):+.1%} to "
        f"{max(each):+.1%}; off against off {statistics.median(control):+.1%}, {min(control):+.1%} to {max(control):+.1%}",
    )
    ratios = [
        statistics.median(daemons["journal"].rates) / statistics.median(daemons["plain"].rates) for daemons in sets
    ]
    rate = statistics.median(ratios)
    report.add(
        f"journal on against off, {WHAT[kind]}: requests a second", f"{rate:.1%}", f"> {1 - MOST:.0%}", rate > 1 - MOST,
        f"sets {min(ratios):.0%} to {max(ratios):.0%}; "
        f"{statistics.median(rate for daemons in sets for rate in daemons['journal'].rates):,.0f} a second",
    )


if __name__ == "__main__":
    REPORT = Report()
    run(REPORT)
    raise SystemExit(not REPORT.finish(ROOT / "build" / "bench-journal.json"))
