"""Generate load: ``python -m tests.bench.load KIND TARGET TOPIC CALLERS CALLS``.

The load is a closed loop: each caller sends its next call when the last one is answered. Prints one JSON
document with calls per second and latencies in milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
import grpc

from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub
from tests.bench.bare_servers import VALUE

CONNECTIONS = 16
"""Of the kind ``spread``: a server of several processes gets some in each."""

Call = Callable[[], Awaitable[object]]


async def closed_loop(call: Call, callers: int, calls: int) -> dict[str, float]:
    """Have callers make a call again as soon as it is answered.

    Args:
        call: one call.
        callers: calls at the same time.
        calls: in all.

    Returns:
        ``per_second``, and the latencies ``p50_ms`` and ``p99_ms``.
    """
    latencies: list[float] = []
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            begun = time.perf_counter()
            await call()
            latencies.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*[caller() for _ in range(callers)])
    took = time.perf_counter() - begun
    ordered = sorted(latencies)
    return {
        "per_second": len(ordered) / took,
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
    }


async def over_grpc(kind: str, target: str, topic: str, callers: int, calls: int) -> dict[str, float]:
    """Measure calls over gRPC, after a twentieth of them for warming up. See :func:`closed_loop`.

    Args:
        kind: ``produce``, ``spread`` (the same over :data:`CONNECTIONS`); anything else consumes.
        target: ``host:port``.
        topic: to write to, or to consume as the group ``bench``.
        callers: calls at the same time.
        calls: in all.
    """
    count = CONNECTIONS if kind == "spread" else 1
    async with contextlib.AsyncExitStack() as opened:
        own = [("grpc.use_local_subchannel_pool", 1)]
        stubs = [
            KafkaPixyStub(await opened.enter_async_context(grpc.aio.insecure_channel(target, options=own)))
            for _ in range(count)
        ]
        stub, turns = stubs[0], itertools.cycle(stubs)
        if kind in ("produce", "spread"):
            request = pb.ProdRq(topic=topic, key_undefined=True, message=VALUE)

            async def call() -> object:
                return await next(turns).Produce(request)
        else:
            consume = pb.ConsNAckRq(topic=topic, group="bench", auto_ack=True)

            async def call() -> object:
                return await stub.ConsumeNAck(consume)

        await closed_loop(call, callers, max(50, calls // 20))
        return await closed_loop(call, callers, calls)


async def over_http(kind: str, target: str, topic: str, callers: int, calls: int) -> dict[str, float]:
    """Measure posts of a message over REST, after a twentieth of them for warming up. See :func:`closed_loop`.

    Args:
        kind: ``rest-sync`` waits for Kafka; anything else does not.
        target: ``host:port``.
        topic: to write to.
        callers: requests at the same time, a connection each.
        calls: in all.
    """
    url = f"http://{target}/topics/{topic}/messages" + ("?sync" if kind == "rest-sync" else "")
    headers = {"Content-Type": "text/plain"}
    connector = aiohttp.TCPConnector(limit=callers)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call() -> object:
            async with session.post(url, data=VALUE, headers=headers) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status}: {await answer.text()}")
                return await answer.read()

        await closed_loop(call, callers, max(50, calls // 20))
        return await closed_loop(call, callers, calls)


if __name__ == "__main__":
    KIND, TARGET, TOPIC, CALLERS, CALLS = sys.argv[1:]
    over = over_http if KIND.startswith("rest") else over_grpc
    print(json.dumps(asyncio.run(over(KIND, TARGET, TOPIC, int(CALLERS), int(CALLS)))))
