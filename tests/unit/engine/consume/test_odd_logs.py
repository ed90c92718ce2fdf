"""The group's actors on logs with gaps, in simulated time: no readable message is skipped, and the end is committed.

Compaction, retention, aborted transactions and markers leave offsets without a message, also at the tail; topics
grow. A planted off-by-one in the handling of gaps must be caught.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.testing import Crash, Sim, SimulationFailed, simulate
from pixy.engine.consume.offset_tracker import OffsetTracker
from tests.effort import seeds
from tests.unit.engine.consume.group_model import PARTITIONS, Scenario
from tests.unit.engine.records import TOPIC

SEEDS = seeds(12)


class OddLogs(Scenario):
    """A scenario whose logs have gaps from the beginning and get more of them meanwhile.

    Args:
        sim: the simulated run.
        disturbances: how often the logs change.
    """

    def __init__(self, sim: Sim, disturbances: int = 8) -> None:
        super().__init__(sim)
        self.left = disturbances
        self.kafka = self.group.kafka
        for number in range(PARTITIONS):
            self.transaction(number)
            self.compact(number)
        for number in range(PARTITIONS):
            self.transaction(number)  # its marker is the tail

    def transaction(self, number: int) -> None:
        name = f"tx-{number}-{self.rng.random()}"
        self.kafka.produce((TOPIC, number), self.rng.randint(1, 3), name)
        self.kafka.end(name, commit=self.rng.random() < 0.5)

    def compact(self, number: int) -> None:
        log = self.kafka.log((TOPIC, number))
        begin = self.rng.randrange(log.start, log.end)
        log.compact(range(begin, min(log.end - 1, begin + self.rng.randint(1, 8))))

    async def disturb(self) -> None:
        """Change the logs from time to time."""
        while self.left:
            await asyncio.sleep(self.rng.random() * 2)
            number = self.rng.randrange(len(self.kafka.topics[TOPIC].partitions))
            log = self.kafka.log((TOPIC, number))
            what = self.rng.choice(["transaction", "compact", "produce", "delete", "grow"])
            if what == "transaction":
                self.transaction(number)
            elif what == "compact" and log.end > log.start:
                self.compact(number)
            elif what == "delete" and log.end > log.start:
                log.delete(log.start + self.rng.randint(1, 5))
            elif what == "grow":
                self.kafka.grow(TOPIC, min(5, len(self.kafka.topics[TOPIC].partitions) + 1))
            else:
                self.kafka.produce((TOPIC, number), self.rng.randint(1, 4))
            self.kafka.changed()
            self.left -= 1

    def readable(self) -> set[tuple[int, int]]:
        """What a consumer can read now: partition and offset."""
        found: set[tuple[int, int]] = set()
        for number in self.ends():
            log = self.kafka.log((TOPIC, number))
            found |= {(number, offset) for offset in log.read(log.start, 10**6, committed=True)[0]}
        return found

    def finished(self) -> bool:
        return not self.left and self.readable() <= self.acked

    def ends(self) -> dict[int, int]:
        count = len(self.kafka.topics[TOPIC].partitions)
        return {number: self.kafka.log((TOPIC, number)).end for number in range(count)}

    async def _partitions(self, _topic: str) -> int:
        await asyncio.sleep(self.rng.random() * 0.01)
        return len(self.kafka.topics[TOPIC].partitions)

    async def run(self, **options: Any) -> None:
        disturbing = asyncio.create_task(self.disturb())
        try:
            await super().run(**options)
        finally:
            disturbing.cancel()
            await asyncio.gather(disturbing, return_exceptions=True)


def simulated(seed: int, *faults: Any) -> None:
    """Run one scenario. Raises SimulationFailed if a promise is broken."""

    async def scenario(sim: Sim) -> None:
        made = OddLogs(sim)
        await made.run(within=600)
        assert made.readable() <= set(made.offered)

    simulate(scenario, seed=seed, faults=faults, may_escalate=True)


@pytest.mark.slow
def test_every_readable_message_is_offered_and_the_end_is_committed() -> None:
    for seed in SEEDS:
        simulated(seed)


def test_also_while_owners_crash() -> None:
    for seed in SEEDS:
        simulated(seed, Crash(path="/g/t.*", probability=0.01))


@pytest.mark.parametrize("off", [-1, 1])
def test_a_planted_off_by_one_at_a_gap_is_caught(monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    ack = OffsetTracker.ack

    def planted(tracker: OffsetTracker, start: int, stop: int | None = None) -> None:
        ack(tracker, start, None if stop is None else max(start, stop + off))

    monkeypatch.setattr(OffsetTracker, "ack", planted)
    with pytest.raises(SimulationFailed):
        for seed in SEEDS:
            simulated(seed)
