"""The scenarios of actors in worker processes on this project's runtime."""

from __future__ import annotations

import asyncio
import time

from actors import ActorSystem, ProcessActor
from tests.bench.actors.handlers import MESSAGE, Echo, Result, compute, expect, rate_async


class EchoProcess(Echo, ProcessActor):
    mailbox_capacity = 1_000_000


class Computing(ProcessActor):
    """Computes for a while in Python."""

    def on_receive(self, message: int) -> int:
        """Compute."""
        return compute(message)


def process_ask(count: int) -> Result:
    """Await asks of a process actor one by one."""

    async def main() -> Result:
        async with ActorSystem() as system:
            ref = await system.spawn(EchoProcess)

            async def work(calls: int) -> None:
                for _ in range(calls):
                    reply = await ref.ask(MESSAGE, block=False)
                expect(reply, MESSAGE)

            return await rate_async(work, count)

    return asyncio.run(main())


def process_compute(count: int) -> Result:
    """Compute four times ``count`` steps in a pool of two processes."""

    async def main() -> Result:
        async with ActorSystem() as system:
            pool = system.spawn_pool(Computing, size=2)
            for ref in pool.refs:
                await ref.ask(1, block=False)
            begun = time.perf_counter()
            for reply in [pool.ask(count, block=False) for _ in range(4)]:
                await reply
            return {"per_second": 4 / (time.perf_counter() - begun)}

    return asyncio.run(main())
