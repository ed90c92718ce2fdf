"""What ``make demo-console`` runs: a sandbox, load, a consumer that is stuck, and the address of the console that shows why."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.engine.engine import Engine
from pixy.engine.shares import caller
from pixy.errors import PixyError
from pixy.kafka.sandbox import Sandbox

_PER_SECOND = 40.0
_TOPIC, _HEALTHY, _STUCK = "orders", "shipping", "billing"
ADDRESS = "127.0.0.1:19093"


def configuration(address: str, seed_peers: list[str]) -> App:
    """Return the demo's configuration.

    Args:
        address: of the admin listener.
        seed_peers: the sandbox's.
    """
    proxy = Proxy(kafka=Kafka(seed_peers=seed_peers))
    proxy.consumer.initial_offset = "oldest"
    proxy.consumer.max_pending_messages = 20
    proxy.consumer.session_timeout, proxy.consumer.heartbeat_interval = 6.0, 2.0  # type: ignore[assignment]
    return App(grpc_addr="", tcp_addr="127.0.0.1:0", admin_addr=address, proxies={"sandbox": proxy})


async def produce(engine: Engine) -> None:
    """Write messages for ever."""
    cluster, number = engine.cluster(), 0
    while True:
        with contextlib.suppress(PixyError):
            await cluster.produce(_TOPIC, f"order {number}".encode(), str(number).encode())
        number += 1
        await asyncio.sleep(1 / _PER_SECOND)


async def consume(engine: Engine, group: str, name: str, *, acks: bool) -> None:
    """Take messages for ever.

    Args:
        engine: gives them.
        group: the consumer's.
        name: of the client.
        acks: whether it acknowledges.
    """
    caller.set(name)
    cluster = engine.cluster()
    while True:
        with contextlib.suppress(PixyError):
            delivery = await cluster.consume(_TOPIC, group)
            delivery.sent()
            if acks:
                await cluster.ack(_TOPIC, group, delivery.partition, delivery.offset)


async def run(address: str, seconds: float | None = None) -> int:
    """Run the demo.

    Args:
        address: of the admin listener.
        seconds: how long; None: until Ctrl-C.
    """
    sandbox = Sandbox()
    config = configuration(address, sandbox.seed_peers)
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    work: list[Coroutine[Any, Any, None]] = [
        produce(engine),
        consume(engine, _HEALTHY, "10.1.0.7", acks=True),
        consume(engine, _STUCK, "10.1.0.9", acks=False),
    ]
    tasks = [asyncio.create_task(each) for each in work]
    shown = engine.addresses["admin"]
    print(
        f"A sandbox with {_PER_SECOND:.0f} messages a second, a consumer that works, and one that is stuck.\n"
        f"Open http://{shown}/console/#/findings and find out which, and why, or run: kafka-pixy top --admin {shown}\n"
        "Ctrl-C stops it.",
        flush=True,
    )
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stopped.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        result = await engine.stop()
    return int(not result.clean)


__all__ = ["ADDRESS", "configuration", "run"]
