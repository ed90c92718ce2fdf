"""Measure for how long partitions fall silent when a daemon joins or leaves a group.

    python -m tests.chaos.handover [--partitions 64] [--daemons 3] [--rate 10] [--protocol classic]

On a real Kafka, engines in this process consume a topic for one group while a producer writes to each partition
at a steady rate. The last engine joins late and leaves early, ``--rounds`` times. For each hand-over the program
prints the gaps of delivery: per partition, the longest time between two messages, less the pause between two
messages of the producer. It also counts messages that were delivered twice or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer

from pixy.engine.engine import Engine
from pixy.errors import PixyError
from tests.kafka.cluster import Cluster
from tests.support import make_config

WORKERS = 16
"""Long polls of each engine."""
SETTLE = 3.0
"""Seconds of steady delivery before a hand-over, and after it until its gaps are counted."""


@dataclass
class Deliveries:
    """When which message was delivered, by partition."""

    times: dict[int, list[float]] = field(default_factory=dict)
    counts: dict[bytes, int] = field(default_factory=dict)

    def note(self, partition: int, value: bytes) -> None:
        """A message was delivered now."""
        self.times.setdefault(partition, []).append(time.monotonic())
        self.counts[value] = self.counts.get(value, 0) + 1

    def gaps(self, since: float, until: float) -> list[float]:
        """The longest pause of each partition between two times, sorted."""
        longest = []
        for times in self.times.values():
            inside = [since, *(at for at in times if since <= at <= until), until]
            longest.append(max(b - a for a, b in itertools.pairwise(inside)))
        return sorted(longest)


class Source:
    """Writes to all partitions in turn, at a steady rate."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self.sent: list[bytes] = []

    async def run(self) -> None:
        """Write until cancelled."""
        begun = time.monotonic()
        while True:
            due = int((time.monotonic() - begun) * self._rate * self._partitions)
            for number in range(len(self.sent), due):
                value = b"%d" % number
                self._producer.produce(self._topic, value, partition=number % self._partitions)
                self.sent.append(value)
            self._producer.poll(0)
            await asyncio.sleep(0.005)

    def flush(self) -> None:
        """Wait until all is written."""
        self._producer.flush(30)


async def consume(engine: Engine, topic: str, deliveries: Deliveries) -> None:
    """Consume with auto-ack until the engine stops."""
    cluster = engine.cluster()
    while not engine.stopping:
        try:
            delivery = await cluster.consume(topic, "g", auto_ack=True)
        except PixyError:
            await asyncio.sleep(0.001)
            continue
        deliveries.note(delivery.partition, bytes(delivery.message.value()))
        delivery.sent()


class Daemon:
    """An engine and its long polls."""

    def __init__(self, bootstrap: list[str], args: argparse.Namespace) -> None:
        config = make_config(bootstrap, group_protocol=args.protocol)
        self.engine = Engine(config)
        self.heartbeat = config.proxies["default"].consumer.heartbeat_interval
        self._polls: list[asyncio.Task[None]] = []

    async def start(self, topic: str, deliveries: Deliveries) -> None:
        await self.engine.start()
        self._polls = [asyncio.create_task(consume(self.engine, topic, deliveries)) for _ in range(WORKERS)]

    async def stop(self) -> None:
        result = await self.engine.stop()
        assert result.clean, result
        await asyncio.gather(*self._polls)


def show(what: str, gaps: Sequence[float], pause: float) -> float:
    """Print the quantiles of the gaps; return the 99th percentile in seconds."""
    net = [max(0.0, gap - pause) for gap in gaps]
    p50, p99 = (net[math.ceil(q * len(net)) - 1] for q in (0.5, 0.99))
    print(
        f"{what:6} gaps of {len(net)} partitions: p50 {p50:.3f} s, p99 {p99:.3f} s, longest {net[-1]:.3f} s"
    )
    return p99


async def measure(bootstrap: list[str], topic: str, args: argparse.Namespace) -> float:
    """Run all hand-overs; return the worst 99th percentile in seconds."""
    deliveries = Deliveries()
    source = Source(bootstrap[0], topic, args.partitions, args.rate)
    daemons = [Daemon(bootstrap, args) for _ in range(args.daemons - 1)]
    for daemon in daemons:
        await daemon.start(topic, deliveries)
    writing = asyncio.create_task(source.run())
    worst = 0.0

    async def flowing() -> None:
        while len(deliveries.times) < args.partitions:
            await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLE)

    await flowing()
    show("steady", deliveries.gaps(time.monotonic() - SETTLE / 2, time.monotonic()), 1 / args.rate)
    for _ in range(args.rounds):
        late = Daemon(bootstrap, args)
        for what, act in (("join", lambda late=late: late.start(topic, deliveries)), ("leave", late.stop)):
            begun = time.monotonic()
            await act()
            await asyncio.sleep(SETTLE)
            worst = max(worst, show(what, deliveries.gaps(begun, time.monotonic()), 1 / args.rate))
    writing.cancel()
    source.flush()
    deadline = time.monotonic() + 10
    while len(deliveries.counts) < len(source.sent) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    for daemon in daemons:
        await daemon.stop()
    twice = sum(count > 1 for count in deliveries.counts.values())
    lost = len(source.sent) - len(deliveries.counts)
    print(f"{len(source.sent)} messages, {twice} delivered twice, {lost} not delivered")
    print(
        f"worst p99 {worst:.3f} s; the aim is one heartbeat interval and half a second: {0.5 + late.heartbeat} s"
    )
    return worst


def main() -> None:
    """Parse the command line, start Kafka, measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--daemons", type=int, default=3)
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second and partition")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.ERROR, format="%(asctime)s %(name)s %(message)s"
    )
    cluster = Cluster()
    try:
        cluster.create_topic("handover", args.partitions)
        asyncio.run(measure(cluster.bootstrap(), "handover", args))
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
