"""An ask on asyncio alone: a queue, a task that reads it, and a future per message."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.bench.actors.handlers import MESSAGE, Result, expect, rate_async


async def _serve(inbox: asyncio.Queue[tuple[Any, asyncio.Future[Any]]]) -> None:
    while True:
        message, reply = await inbox.get()
        reply.set_result(message)


def ask(count: int) -> Result:
    """Await asks one by one."""

    async def main() -> Result:
        inbox: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        server = asyncio.create_task(_serve(inbox))

        async def work(calls: int) -> None:
            for _ in range(calls):
                future: asyncio.Future[Any] = loop.create_future()
                inbox.put_nowait((MESSAGE, future))
                reply = await future
            expect(reply, MESSAGE)

        result = await rate_async(work, count)
        server.cancel()
        return result

    return asyncio.run(main())
