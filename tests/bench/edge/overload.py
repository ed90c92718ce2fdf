"""Overload: what one principal far above his share costs another.

As a program it is the hostile one: ``python -m tests.bench.edge.overload ADDRESS KEY RATE CONNECTIONS``; with a rate of 0 it asks
as fast as it is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bare_servers import VALUE
from tests.bench.daemon import process
from tests.bench.edge.credentials import Credentials, configuration
from tests.bench.edge.requests import Connection, post
from tests.bench.report import ROOT, Report
from tests.kafka.cluster import free_port

SHARE = 100
"""Requests a second that each principal may make."""
HONEST = 0.9
"""Of its share, what the honest one asks for: at exactly its share, jitter alone would cause refusals."""
TIMES = 10
SECONDS = 3.0
CONNECTIONS = 64
MOST_LOST = 0.1


@dataclass
class Got:
    """The service that a principal got in one period."""

    rate: float
    p99: float
    statuses: Counter[int]


async def paced(address: str, key: str, rate: float, seconds: float, connections: int) -> Got:
    """Ask at a rate, whatever the answers take; a rate of 0: as fast as they come.

    Args:
        address: ``host:port``.
        key: the caller's API key.
        rate: requests per second; 0: as fast as the answers come.
        seconds: how long to ask.
        connections: to ask on.
    """
    request = post("/topics/overload/messages?sync", VALUE, {"X-API-Key": key})
    opened = [await Connection.to(address) for _ in range(connections)]
    begun = time.monotonic()
    took: list[float] = []
    statuses: Counter[int] = Counter()

    async def caller(number: int, connection: Connection) -> None:
        at = number
        while time.monotonic() - begun < seconds:
            due = begun + at / rate if rate else 0.0
            at += connections
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            sent = due or time.monotonic()
            status = await connection.ask(request)
            statuses[status] += 1
            if status == 200:
                took.append(time.monotonic() - sent)

    await asyncio.gather(*(caller(number, each) for number, each in enumerate(opened)))
    for each in opened:
        each.close()
    passed = time.monotonic() - begun
    p99 = sorted(took)[int(len(took) * 0.99)] if took else float("inf")
    return Got(len(took) / passed, p99, statuses)


@contextlib.contextmanager
def hostile(address: str, key: str, rate: float) -> Iterator[None]:
    """Ask from a process of its own until the end of the block."""
    command = [sys.executable, "-m", "tests.bench.edge.overload", address, key, str(rate), str(CONNECTIONS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it has begun
        try:
            yield
        finally:
            child.kill()


def measure(report: Report, what: str, config: Path, known: Credentials, rate: float, rounds: int) -> None:
    """Ask alone and beside the hostile one in turn, and add a row."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    alone, beside = [], []
    arguments = ("-m", "pixy.cli.main", "--config", str(config), "--tcpAddr", address, "--grpcAddr", "")
    with process(*arguments, wait_port=port):
        asyncio.run(paced(address, known.key, SHARE * HONEST, 1.0, 4))
        for _ in range(rounds):
            alone.append(asyncio.run(paced(address, known.key, SHARE * HONEST, SECONDS, 4)))
            with hostile(address, known.other, rate):
                beside.append(asyncio.run(paced(address, known.key, SHARE * HONEST, SECONDS, 4)))
    lost = 1 - statistics.median(two.rate / one.rate for one, two in zip(alone, beside, strict=True))
    refused = sum(sum(each.statuses.values()) - each.statuses[200] for each in (*alone, *beside))
    report.add(
        what,
        f"{lost:+.1%} of its rate lost",
        f"< {MOST_LOST:.0%}",
        lost < MOST_LOST,
        f"{statistics.median(each.rate for each in alone):.0f} a second alone, "
        f"{statistics.median(each.rate for each in beside):.0f} beside it, {refused} refused; p99 "
        f"{statistics.median(each.p99 for each in alone) * 1e3:.1f} and "
        f"{statistics.median(each.p99 for each in beside) * 1e3:.1f} ms; {rounds} pairs of {SECONDS:g} s",
    )


def run(report: Report, folder: Path, bootstrap: str, known: Credentials, rounds: int) -> None:
    """Add the rows."""
    limits = [{"who": ["key:*"], "requests_per_second": SHARE}]
    limited = configuration(folder, "limited", bootstrap, limits=limits)
    what = f"one principal at {TIMES} x its share of {SHARE} requests a second, beside another"
    measure(report, what, limited, known, TIMES * SHARE, rounds)
    unlimited = configuration(folder, "unlimited", bootstrap)
    what = f"the same without limits, {CONNECTIONS} connections as fast as they are answered"
    measure(report, what, unlimited, known, 0, rounds)


async def _hostile() -> None:
    address, key, rate, connections = sys.argv[1:]
    print("begun", flush=True)
    await paced(address, key, float(rate), 3600.0, int(connections))


if __name__ == "__main__":
    asyncio.run(_hostile())
