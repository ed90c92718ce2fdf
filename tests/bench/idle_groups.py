"""Count what idle consumer groups cost a daemon: threads, memory, descriptors, processor time.

A group is idle here when it has joined, owns the partition of its topic, and waits for a message that does not come.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from tests.bench.daemon import process, rss
from tests.bench.report import ROOT, Report, console, on_kafka
from tests.kafka.cluster import Cluster, free_port

RESULT = ROOT / "build" / "bench-groups.json"
SIZES = (0, 250, 500, 1000)
TOPIC = "idle"
AT_ONCE = 25
"""Groups that join at the same time."""
SECONDS = 10.0
"""For the processor time of idling."""
LINEAR = 1.25


@dataclass
class Cost:
    """The resources that one daemon used with so many groups."""

    groups: int
    threads: int
    megabytes: float
    descriptors: int
    processor: float
    """Of one processor, as a share."""


def config(bootstrap: str, port: int, groups: int) -> Path:
    """Write the configuration of a daemon that takes so many groups, and keeps them while nobody asks."""
    consumer = {
        "max_groups": 2 * groups + 1,  # one caller may have three quarters
        "subscription_timeout": "1h",
        "long_polling_timeout": "1s",
        "initial_offset": "oldest",
    }
    proxies = {"default": {"kafka": {"seed_peers": [bootstrap]}, "consumer": consumer}}
    path = ROOT / "build" / "bench-groups.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(
        msgspec.yaml.encode({"tcp_addr": f"127.0.0.1:{port}", "grpc_addr": "", "proxies": proxies})
    )
    return path


async def join(port: int, groups: int) -> None:
    """Have each group ask once: the answer, that there is no message, comes only after it has joined."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def ask(group: int) -> None:
            url = f"http://127.0.0.1:{port}/topics/{TOPIC}/messages?group=group{group}"
            async with gate, http.get(url) as answer:
                if answer.status != 408:
                    raise RuntimeError(f"group {group}: {answer.status} {await answer.text()}")

        await asyncio.gather(*(ask(group) for group in range(groups)))


def processor_time(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cost(bootstrap: str, groups: int) -> Cost:
    """Start a daemon, have the groups join, and count."""
    port = free_port()
    arguments = ("-m", "pixy.cli.main", "--config", str(config(bootstrap, port, groups)))
    with process(*arguments, wait_port=port) as daemon:
        asyncio.run(join(port, groups))
        time.sleep(SECONDS)  # until all are idle
        before = processor_time(daemon.pid)
        time.sleep(SECONDS)
        return Cost(
            groups,
            len(list(Path(f"/proc/{daemon.pid}/task").iterdir())),
            rss(daemon.pid),
            len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())),
            (processor_time(daemon.pid) - before) / SECONDS,
        )


def rows(cluster: Cluster, report: Report) -> None:
    """Add a row for each number of groups, and one that says whether the cost is linear."""
    cluster.create_topic(TOPIC)
    (bootstrap,) = cluster.bootstrap()
    none, *costs = [cost(bootstrap, groups) for groups in SIZES]
    each = [(one.megabytes - none.megabytes) / one.groups for one in costs]
    for one, megabytes in zip(costs, each, strict=True):
        report.add(
            f"{one.groups} idle groups",
            f"{megabytes * 1024:.0f} KiB a group",
            "linear",
            megabytes <= LINEAR * statistics.median(each),
            f"{(one.threads - none.threads) / one.groups:.2f} threads and "
            f"{(one.descriptors - none.descriptors) / one.groups:.2f} descriptors a group; in all {one.megabytes:.0f} "
            f"MiB, {one.threads} threads, {one.descriptors} descriptors, {one.processor:.0%} of a processor",
        )
    console.print(f"a daemon without groups: {none}")


def run() -> bool:
    """Run this part. Returns whether the cost is linear."""
    return on_kafka(rows, RESULT, "idle consumer groups")
