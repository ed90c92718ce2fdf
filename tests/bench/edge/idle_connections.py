"""Idle connections: memory of each, and what they do to the p99 of an honest caller."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.bare_servers import VALUE
from tests.bench.daemon import process, rss
from tests.bench.edge.credentials import Credentials, configuration
from tests.bench.edge.requests import PING, Connection, post
from tests.bench.report import Report
from tests.kafka.cluster import free_port

HTTP = 10_000
GRPC = 2_500
"""Below the bounds that the daemon has with 20,000 open files."""
SOURCES = 5
"""Addresses that they come from, because one may have ``connections.max_per_address``."""
AT_ONCE = 200
CALLS = 2_000
MOST_SLOWER = 0.10
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"


@dataclass
class Found:
    """The results of a measurement."""

    memory: list[float] = field(default_factory=list)
    """KiB of each connection."""
    with_them: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    """p99 in seconds, by rounds."""


async def opened(address: str, count: int, *, grpc: bool) -> list[Connection]:
    """Open connections that have been used once.

    Args:
        address: ``host:port``.
        count: connections.
        grpc: they speak gRPC, and else HTTP.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Connection:
        async with gate:
            connection = await Connection.to(address, f"127.0.0.{2 + number % SOURCES}")
            if grpc:
                connection._writer.write(_PREFACE)
                await connection._reader.readexactly(9)  # its SETTINGS have arrived: the connection is up
            elif await connection.ask(PING) != 200:
                raise RuntimeError("a connection is refused")
            return connection

    return await asyncio.gather(*map(one, range(count)))


async def p99(address: str, key: str) -> float:
    """Make requests one by one, and return the p99 in seconds."""
    request = post("/topics/idle/messages?sync", VALUE, {"X-API-Key": key})
    connection = await Connection.to(address)
    took = []
    for number in range(CALLS + 200):
        begun = time.perf_counter()
        if await connection.ask(request) != 200:
            raise RuntimeError("a request is refused")
        if number >= 200:
            took.append(time.perf_counter() - begun)
    connection.close()
    return sorted(took)[int(CALLS * 0.99)]


async def measure(addresses: dict[str, str], pid: int, known: Credentials, rounds: int) -> dict[str, Found]:
    """Open and close them, and measure the honest caller each time."""
    found = {"rest": Found(), "grpc": Found()}
    for number in range(rounds + 1):
        for listener, count in (("rest", HTTP), ("grpc", GRPC)):
            before = rss(pid)
            without = await p99(addresses["rest"], known.key)
            idle = await opened(addresses[listener], count, grpc=listener == "grpc")
            after = rss(pid)
            beside = await p99(addresses["rest"], known.key)
            for each in idle:
                each.close()
            await asyncio.sleep(1.0)
            if number == 0:  # later ones find memory that these have left
                found[listener].memory.append((after - before) * 1024 / count)
            else:
                found[listener].without.append(without)
                found[listener].with_them.append(beside)
    return found


def run(report: Report, folder: Path, bootstrap: str, known: Credentials, rounds: int) -> None:
    """Add the rows."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    addresses = {listener: f"127.0.0.1:{free_port()}" for listener in ("rest", "grpc")}
    config = configuration(folder, "idle", bootstrap)
    flags = ("--tcpAddr", addresses["rest"], "--grpcAddr", addresses["grpc"])
    port = int(addresses["rest"].rsplit(":", 1)[1])
    try:
        with process("-m", "pixy.cli.main", "--config", str(config), *flags, wait_port=port) as daemon:
            found = asyncio.run(measure(addresses, daemon.pid, known, rounds))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    for listener, count in (("rest", HTTP), ("grpc", GRPC)):
        what = f"{count:,} idle {'HTTP' if listener == 'rest' else 'gRPC'} connections"
        one = found[listener]
        report.add(
            f"{what}: memory of each",
            f"{one.memory[0]:.1f} KiB",
            "reported",
            True,
            f"{one.memory[0] * count / 1024:.0f} MiB in all",
        )
        slower = statistics.median(b / a for a, b in zip(one.without, one.with_them, strict=True)) - 1
        report.add(
            f"{what}: p99 of an honest caller",
            f"{slower:+.1%}",
            f"< {MOST_SLOWER:+.0%}",
            slower < MOST_SLOWER,
            f"{statistics.median(one.without) * 1e3:.2f} ms without, {statistics.median(one.with_them) * 1e3:.2f} ms "
            f"with them, {rounds} pairs of {CALLS} sync produces over REST",
        )


__all__ = ["run"]
