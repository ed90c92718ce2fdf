"""Measure the journal's cost in processor time per request.

Two processes of the same program differ by some per cent because of their memory layout and hash seeds; on a
busy machine two daemons without a journal differed by 17 %. So one process turns its journal off and on
(:mod:`tests.bench.pipeline.journal_toggle`), and each period with the journal is compared with the periods
before and after it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from itertools import pairwise

from tests.bench.daemon import fill
from tests.bench.pipeline.journal_toggle import LINGER
from tests.bench.report import ROOT, Report, console
from tests.kafka.cluster import Cluster, free_port

PERIODS = 721
CALLERS = {"produce": 64, "consume": 16}
BACKLOG = 1_500_000
MOST = 0.03
WHAT = {"produce": "sync produce, 64 callers", "consume": "consume with auto-ack, 16 callers"}


def measure(kind: str, bootstrap: str) -> list[float]:
    """Measure processor microseconds per request in each period: off, on, off, ..., off.

    Args:
        kind: ``produce`` or ``consume``.
        bootstrap: a broker's address.
    """
    grpc, http = free_port(), free_port()
    config = ROOT / "build" / f"bench-journal-{kind}.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(
        f"grpc_addr: 127.0.0.1:{grpc}\ntcp_addr: 127.0.0.1:{http}\nproxies:\n  default:\n    kafka:\n"
        f"      seed_peers: [{bootstrap}]\n    consumer:\n      initial_offset: oldest\n    journal:\n      topic: journal\n"
        f"      linger: {LINGER}\n"
    )
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.pipeline.journal_toggle", str(config), kind, str(PERIODS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    load = None
    try:
        wait = "import socket,sys,time\nwhile 1:\n try: socket.create_connection(('127.0.0.1', int(sys.argv[1]))); break\n except OSError: time.sleep(.05)"
        subprocess.run([sys.executable, "-c", wait, str(http)], check=True, timeout=60)
        load = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.load",
                kind,
                f"127.0.0.1:{grpc}",
                kind,
                str(CALLERS[kind]),
                str(10**8),
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        output, _ = daemon.communicate(timeout=120 + PERIODS * 2)
    finally:
        for process in (load, daemon):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    if daemon.returncode:
        raise RuntimeError(
            f"the daemon ended with {daemon.returncode}: was the backlog of {BACKLOG:,} consumed?"
        )
    found: list[float] = json.loads(output)
    return found


def run(report: Report) -> None:
    """Measure produce and consume, and add the rows."""
    cluster = Cluster()
    try:
        bootstrap = cluster.bootstrap()[0]
        for topic in ("produce", "consume", "journal"):
            cluster.create_topic(topic, 4)
        fill(bootstrap, "consume", BACKLOG)
        for kind, what in WHAT.items():
            console.print(f"  {kind}: {PERIODS} periods ...")
            _row(report, what, measure(kind, bootstrap))
    finally:
        cluster.close()


def _row(report: Report, what: str, costs: list[float]) -> None:
    off, on = costs[::2], costs[1::2]
    ratios = [each / statistics.mean(beside) for each, beside in zip(on, pairwise(off), strict=True)]
    same = [
        each / statistics.mean(beside)
        for each, beside in zip(off[1:-1], zip(off, off[2:], strict=False), strict=True)
    ]
    dearer = statistics.median(ratios) - 1
    report.add(
        f"journal on, against off, {what}: processor time per request in the daemon",
        f"{dearer:+.1%}",
        f"< {MOST:+.0%}",
        dearer < MOST,
        f"+-{_notch(ratios):.1%}; {statistics.median(on):.0f} against {statistics.median(off):.0f} microseconds; off against "
        f"off {statistics.median(same) - 1:+.1%} +-{_notch(same):.1%}",
    )


def _notch(values: list[float]) -> float:
    """Return half the width of the median's 95 % confidence interval (McGill, Tukey and Larsen 1978)."""
    low, _, high = statistics.quantiles(values)
    return float(1.57 * (high - low) / len(values) ** 0.5)


if __name__ == "__main__":
    REPORT = Report()
    run(REPORT)
    raise SystemExit(not REPORT.finish(ROOT / "build" / "bench-journal.json"))
