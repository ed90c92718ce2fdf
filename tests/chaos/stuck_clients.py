"""Measure whether clients that are stuck slow the partitions of others.

    python -m tests.chaos.stuck_clients [--messages 3000] [--pairs 3]

On a real Kafka, a daemon in this process serves a group with three busy partitions, whose clients acknowledge each
message over gRPC. Each pair of runs compares the rate of these partitions without and with stuck clients:

- ``no acks``: clients take all messages of a fourth partition that it offers, and never acknowledge one;
- ``no reads``: clients request messages of a megabyte from another topic of the group, and read nothing.

The program prints the ratio of the rates per pair, and their median: the aim is more than 0.9.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import socket
import statistics
import time
import uuid
from collections.abc import AsyncIterator

import grpc
from confluent_kafka import Producer

from tests.kafka.cluster import Cluster
from tests.support import Daemon, make_config, serving

PARTITIONS = 3
"""Busy ones; the next one is the stuck clients'."""
WORKERS = 16
SOCKETS = 50
BIG = 900_000


def fill(cluster: Cluster, topic: str, partition: int, count: int, size: int = 100) -> None:
    """Write messages to a partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap()[0], "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number + bytes(size), partition=partition)
        if number % 500 == 0:
            producer.flush(30)
    producer.flush(30)


async def rate(daemon: Daemon, topic: str, messages: int) -> float:
    """Consume and acknowledge all messages of the busy partitions; return how many a second.

    What comes from the stuck clients' partition is not acknowledged, whoever gets it.
    """
    left = PARTITIONS * messages
    begun = 0.0

    async def work() -> None:
        nonlocal left, begun
        while left > 0:
            try:
                message = await daemon.consume(topic, "g", no_ack=True)
            except grpc.RpcError:
                continue
            begun = begun or time.monotonic()
            if message.partition < PARTITIONS:
                left -= 1
                await daemon.ack(topic, "g", message)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return PARTITIONS * messages / (time.monotonic() - begun)


@contextlib.asynccontextmanager
async def sockets_that_nobody_reads(daemon: Daemon, topic: str) -> AsyncIterator[None]:
    """Send a request for a large message over each of many connections, and read nothing."""
    host, _, port = daemon.engine.addresses["rest"].rpartition(":")
    loop = asyncio.get_running_loop()
    opened: list[socket.socket] = []
    request = f"GET /topics/{topic}/messages?group=g HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    try:
        for _ in range(SOCKETS):
            each = socket.socket()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.setblocking(False)
            opened.append(each)
            await loop.sock_connect(each, (host, int(port)))
            await loop.sock_sendall(each, request)
        yield
    finally:
        for each in opened:
            each.close()


async def run(cluster: Cluster, messages: int, stuck: str) -> float:
    """Measure one daemon with fresh topics; ``stuck`` names the stuck clients, or is empty."""
    topic = f"t{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, PARTITIONS + 1)
    for partition in range(PARTITIONS):
        await asyncio.to_thread(fill, cluster, topic, partition, messages)
    config = make_config(cluster.bootstrap(), long_polling_timeout=1.0)
    async with contextlib.AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(serving(config))
        if stuck == "no acks":
            await asyncio.to_thread(fill, cluster, topic, PARTITIONS, messages)
        elif stuck == "no reads":
            cluster.create_topic(f"{topic}-big", 1)
            await asyncio.to_thread(fill, cluster, f"{topic}-big", 0, 2 * SOCKETS, BIG)
            await stack.enter_async_context(sockets_that_nobody_reads(daemon, f"{topic}-big"))
        return await rate(daemon, topic, messages)


async def measure(cluster: Cluster, messages: int, pairs: int) -> None:
    """Print the ratios of all pairs."""
    await run(cluster, messages // 4, "")  # warms the process up
    for stuck in ("no acks", "no reads"):
        ratios = []
        for _ in range(pairs):
            alone = await run(cluster, messages, "")
            beside = await run(cluster, messages, stuck)
            ratios.append(beside / alone)
            print(
                f"{stuck}: {alone:.0f} a second alone, {beside:.0f} beside them, {ratios[-1]:.2f}", flush=True
            )
        print(f"{stuck}: median ratio {statistics.median(ratios):.2f}, the aim is above 0.9", flush=True)


def main() -> None:
    """Parse the command line, start Kafka, measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3000, help="in each busy partition")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    cluster = Cluster()
    try:
        asyncio.run(measure(cluster, args.messages, args.pairs))
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
