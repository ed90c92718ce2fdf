"""The pipeline on xoscar, in one process.

``create_actor`` returns a reference that uses xoscar's message layer even within a process (about 100
microseconds per message here). ``actor_ref`` returns a local reference; the scenarios measure that one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import xoscar as xo

from tests.bench.actors.handlers import MESSAGE, Result, expect, rate_async
from tests.bench.actors.tally import Tally

_tallies: list[Tally] = []
"""A global, because xoscar would copy a tally passed to a constructor."""


class Pass(xo.Actor):  # type: ignore[misc]
    """A middle stage, which does not wait for the next one: xoscar's queues have no bound."""

    def __init__(self, following: Any) -> None:
        self.next = following

    async def receive(self, message: int) -> None:
        """Send the message to the next stage."""
        await self.next.receive.tell(message)


class CallThrough(Pass):
    """A middle stage that calls the next one and waits, so a message occupies all stages until it is handled."""

    async def receive(self, message: int) -> None:
        """Call the next stage with the message and wait."""
        await self.next.receive(message)


class Last(xo.Actor):  # type: ignore[misc]
    """The last stage, which counts the messages."""

    async def receive(self, message: int) -> None:
        """Count the message."""
        _tallies[-1].take(message)


async def _local(address: str, actor_class: type, *args: Any) -> Any:
    ref = await xo.create_actor(actor_class, *args, address=address)
    return await xo.actor_ref(address=address, uid=ref.uid)


def pipeline(count: int) -> Result:
    """Tell messages from stage to stage."""

    async def main() -> Result:
        _tallies.append(tally := Tally(count))
        pool = await xo.create_actor_pool("127.0.0.1:0", n_process=0)
        async with pool:
            home = pool.external_address
            last = await _local(home, Last)
            first = await _local(home, Pass, await _local(home, Pass, last))
            while tally.more():
                await first.receive.tell(tally.next())
            while not tally.complete():
                await asyncio.sleep(0.001)
        return tally.result()

    return asyncio.run(main())


def pipeline_calls(count: int) -> Result:
    """Pass messages through the same stages as nested calls, one message at a time."""

    async def main() -> Result:
        _tallies.append(tally := Tally(count))
        pool = await xo.create_actor_pool("127.0.0.1:0", n_process=0)
        async with pool:
            home = pool.external_address
            last = await _local(home, Last)
            first = await _local(home, CallThrough, await _local(home, CallThrough, last))
            while tally.more():
                await first.receive(tally.next())
        return tally.result()

    return asyncio.run(main())


class Echo(xo.Actor):  # type: ignore[misc]
    """Answers with the message itself."""

    async def ask(self, message: Any) -> Any:
        """Return the message."""
        return message


def process_ask(count: int) -> Result:
    """Await calls of an actor in a sub-pool's process one by one."""

    async def main() -> Result:
        pool = await xo.create_actor_pool("127.0.0.1:0", n_process=1)
        async with pool:
            address = pool.sub_processes and next(iter(pool.sub_processes))
            ref = await xo.create_actor(Echo, address=address)

            async def work(calls: int) -> None:
                for _ in range(calls):
                    reply = await ref.ask(MESSAGE)
                expect(reply, MESSAGE)

            await work(1)
            return await rate_async(work, count)

    return asyncio.run(main())
