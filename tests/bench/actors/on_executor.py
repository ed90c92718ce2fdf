"""The scenarios of processes on ``concurrent.futures.ProcessPoolExecutor``, which actors in processes stand beside."""

from __future__ import annotations

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from tests.bench.actors.handlers import MESSAGE, Result, expect, rate_async


def _echo(message: object) -> object:
    return message


def process_ask(count: int) -> Result:
    """Await calls in one worker one by one."""

    async def main() -> Result:
        loop = asyncio.get_running_loop()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:

            async def work(calls: int) -> None:
                for _ in range(calls):
                    reply = await loop.run_in_executor(pool, _echo, MESSAGE)
                expect(reply, MESSAGE)

            await work(1)
            return await rate_async(work, count)

    return asyncio.run(main())
