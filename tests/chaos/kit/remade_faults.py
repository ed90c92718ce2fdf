"""Faults of topics as a whole: deleted and made again with fewer, as many, or more partitions; partitions added."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from tests.chaos.kit.brokers import Brokers
from tests.chaos.kit.clients import Clients
from tests.chaos.kit.record import Recorder
from tests.chaos.kit.schedule import Planned
from tests.chaos.kit.snapshot import write_life

MOST_PARTITIONS = 12
ATTEMPTS = 120
"""Attempts at deleting or making a topic, with half a second between."""
FEWER, AS_MANY = 0.5, 0.65
"""Up to here on the dice a topic made again has fewer partitions, and as many; beyond it has more."""


def another(count: int, dice: float) -> int:
    """Return how many partitions a topic made again has.

    Args:
        count: how many it had.
        dice: between 0 and 1.
    """
    if FEWER <= dice < AS_MANY:
        return count
    rng = random.Random(dice)
    if (dice < FEWER and count > 1) or count >= MOST_PARTITIONS:
        return rng.randint(1, count - 1)
    return rng.randint(count + 1, MOST_PARTITIONS)


class RemadeFaults:
    """See :class:`tests.chaos.kit.faults.Faults`."""

    def __init__(self, brokers: Brokers, clients: Clients, records: Recorder) -> None:
        self._brokers = brokers
        self._records = records
        self._topics = {topic.name: topic for topic in clients.plan.topics}

    async def recreate_topic(self, planned: Planned) -> str:
        """Delete a topic of groups, and make it again with the same name."""
        return await self._recreate("recreated", planned)

    async def recreate_chosen(self, planned: Planned) -> str:
        """Do the same with a topic of instances that have chosen its partitions."""
        return await self._recreate("chosen", planned)

    async def _recreate(self, name: str, planned: Planned) -> str:
        before = len(await asyncio.to_thread(self._brokers.partitions, name))
        count = another(before or self._topics[name].partitions, planned.dice)
        seen = await asyncio.to_thread(write_life, self._records, self._brokers.bootstrap, name, before)
        t0 = time.time()
        await self._insist(lambda: self._brokers.delete(name), "UNKNOWN_TOPIC_OR_PART")
        self._records.event("topic deleted", topic=name, t0=t0)
        await asyncio.sleep(planned.seconds)
        t0 = time.time()
        await self._insist(lambda: self._brokers.create(self._topics[name], count), "")
        self._records.event("topic made again", topic=name, t0=t0, before=before, partitions=count)
        return f"{name}: {before} -> {count} partitions{'' if seen else ', nobody saw what it held'}"

    async def _insist(self, act: Callable[[], None], done: str) -> None:
        """Repeat what another fault, or a deletion that goes on, may refuse; ``done`` names the error that is fine."""
        for attempt in range(ATTEMPTS):
            try:
                await asyncio.to_thread(act)
                return
            except KafkaException as error:
                if error.args[0].name() == done:
                    return
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.5)

    async def grow_topic(self, planned: Planned) -> str:
        """Add a partition to a topic of a group."""
        return await self._grow("grown", 1)

    async def grow_chosen(self, planned: Planned) -> str:
        """Add partitions to a topic of instances that have chosen its partitions."""
        return await self._grow("chosen", 1 + int(planned.dice * 3))

    async def _grow(self, name: str, more: int) -> str:
        count = len(await asyncio.to_thread(self._brokers.partitions, name))
        if count + more > MOST_PARTITIONS:
            return f"missed: {count} partitions are enough"
        t0 = time.time()
        await asyncio.to_thread(self._brokers.grow, name, count + more)
        self._records.event("topic grown", topic=name, t0=t0, before=count, partitions=count + more)
        return f"{name}: {count} -> {count + more} partitions"


__all__ = ["RemadeFaults", "another"]
