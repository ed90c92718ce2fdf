"""The edge's cost of an honest request: processor time of the daemon per request, by variant, in turn in one process."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.bench.bare_servers import VALUE
from tests.bench.edge.credentials import Credentials
from tests.bench.edge.requests import Connection, post
from tests.bench.report import ROOT, Report

CALLERS = 16
REQUESTS = 500
"""In a period: a third of a second, because the machine's speed changes within seconds."""
SETTLE = 0.05
"""Seconds in which the last period's messages reach Kafka."""
LISTENERS = {"bare": "bare", "off": "open", "off again": "open", "key": "auth", "jwt": "auth"}
"""Each variant's listener."""
KINDS = {
    "rest-async": "REST async produce",
    "rest-sync": "REST sync produce",
    "grpc": "gRPC sync produce",
}
ROWS = (
    ("the edge with auth off, against none", "off", "bare", 0.05),
    ("an API key, against auth off", "key", "off", None),
    ("a JWT that is known, against auth off", "jwt", "off", 0.15),
)
"""The name of each comparison, its variant, its base, and the most that the variant may add."""

Call = Callable[[], Awaitable[object]]


class Variants:
    """The daemon process; see :mod:`tests.bench.edge.variants`."""

    def __init__(self, process: asyncio.subprocess.Process, addresses: dict[str, str]) -> None:
        self._process = process
        self.addresses = addresses

    @classmethod
    async def start(cls, config: Path) -> Variants:
        """Start it, and wait until it serves."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.edge.variants", str(config), cwd=ROOT, stdin=PIPE, stdout=PIPE
        )
        assert process.stdout is not None
        return cls(process, json.loads(await process.stdout.readline()))

    async def turn(self, listener: str) -> float:
        """Turn to a variant, and return the processor seconds used so far."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(listener.encode() + b"\n")
        return float(await self._process.stdout.readline())

    async def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def callers(kind: str, addresses: dict[str, str], variant: str, known: Credentials) -> list[Call]:
    """Connect callers who make the same request in each variant, with the credential that it needs."""
    api = kind.partition("-")[0]
    address = addresses[f"{api}-{LISTENERS[variant]}"]
    sent = {"key": {"x-api-key": known.key}, "jwt": {"authorization": f"Bearer {known.jwt}"}}.get(variant, {})
    if api == "grpc":
        channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        stub, metadata = KafkaPixyStub(channel), tuple(sent.items())
        message = pb.ProdRq(topic=kind, key_undefined=True, message=VALUE)
        return [lambda: stub.Produce(message, metadata=metadata)] * CALLERS
    request = post(f"/topics/{kind}/messages" + ("?sync" if kind == "rest-sync" else ""), VALUE, sent)

    def caller(connection: Connection) -> Call:
        async def call() -> None:
            status = await connection.ask(request)
            if status != 200:
                raise RuntimeError(f"{variant}: status {status}")

        return call

    return [caller(await Connection.to(address)) for _ in range(CALLERS)]


async def spend(calls: list[Call], count: int) -> None:
    """Make so many requests, each caller one after the other."""
    left = count

    async def caller(call: Call) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    await asyncio.gather(*map(caller, calls))


async def measure(daemon: Variants, kind: str, known: Credentials, rounds: int) -> dict[str, list[float]]:
    """Return processor microseconds per request of each variant, by rounds."""
    calls = {each: await callers(kind, daemon.addresses, each, known) for each in LISTENERS}
    costs: dict[str, list[float]] = {each: [] for each in LISTENERS}
    rng = random.Random(kind)
    for number in range(rounds + 2):
        for variant in rng.sample(list(LISTENERS), len(LISTENERS)):
            await daemon.turn(LISTENERS[variant])
            await spend(calls[variant], REQUESTS // 10)
            await asyncio.sleep(SETTLE)
            before = await daemon.turn(LISTENERS[variant])
            await spend(calls[variant], REQUESTS)
            await asyncio.sleep(SETTLE)
            used = await daemon.turn(LISTENERS[variant]) - before
            if number > 1:  # the first rounds warm up
                costs[variant].append(used / REQUESTS * 1e6)
    return costs


def add_rows(report: Report, kind: str, costs: dict[str, list[float]]) -> None:
    """Add what each variant costs more than its base: the median of the rounds."""
    same, same_notch = _dearer(costs["off again"], costs["off"])
    for what, variant, base, most in ROWS:
        dearer, notch = _dearer(costs[variant], costs[base])
        report.add(
            f"{KINDS[kind]}: {what}: processor time per request in the daemon",
            f"{dearer:+.1%} +-{notch:.1%}",
            f"< {most:+.0%}" if most is not None else "reported",
            most is None or dearer < most,
            f"{statistics.median(costs[variant]):.0f} against {statistics.median(costs[base]):.0f} microseconds, "
            f"{len(costs[variant])} pairs; the same twice {same:+.1%} +-{same_notch:.1%}",
        )


def _dearer(ours: list[float], base: list[float]) -> tuple[float, float]:
    """Return how much more ours cost: the median of pairs, and half the width of its 95 % interval."""
    ratios = [mine / other for mine, other in zip(ours, base, strict=True)]
    low, _, high = statistics.quantiles(ratios)
    return statistics.median(ratios) - 1, 1.57 * (high - low) / len(ratios) ** 0.5


async def run(report: Report, config: Path, known: Credentials, rounds: int) -> None:
    """Measure each kind of request, and add its rows."""
    daemon = await Variants.start(config)
    try:
        for kind in KINDS:
            add_rows(report, kind, await measure(daemon, kind, known, rounds))
    finally:
        await daemon.stop()


__all__ = ["run"]
