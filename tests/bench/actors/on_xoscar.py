"""The pipeline on xoscar, all in one process.

``create_actor`` returns a reference that goes through xoscar's message layer even at home (about
100 microseconds a message here); ``actor_ref`` returns the local one, which is what is measured.
"""

from __future__ import annotations

import asyncio
from typing import Any

import xoscar as xo

from tests.bench.actors.handlers import Result
from tests.bench.actors.stages import Tally

_tallies: list[Tally] = []
"""Not an argument: xoscar would copy it on the way to the constructor."""


class Pass(xo.Actor):  # type: ignore[misc]
    """Hands a message on without waiting for its handling: xoscar has no bound to wait for."""

    def __init__(self, following: Any) -> None:
        self.next = following

    async def receive(self, message: int) -> None:
        """Pass it on."""
        await self.next.receive.tell(message)


class CallThrough(Pass):
    """Calls the next stage: no hand-over, a message holds all stages until it is through."""

    async def receive(self, message: int) -> None:
        """Pass it on and wait."""
        await self.next.receive(message)


class Last(xo.Actor):  # type: ignore[misc]
    """The last stage keeps the books."""

    async def receive(self, message: int) -> None:
        """Count it."""
        _tallies[-1].take(message)


async def _local(address: str, actor_class: type, *args: Any) -> Any:
    ref = await xo.create_actor(actor_class, *args, address=address)
    return await xo.actor_ref(address=address, uid=ref.uid)


def pipeline(count: int) -> Result:
    """Messages told from stage to stage."""

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
    """The same stages as nested calls, one message at a time."""

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
