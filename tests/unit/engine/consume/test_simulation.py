"""The group's actors in simulated time: hours of offers, acks, retries, revocations and crashes a seed.

The tests check the proxy's promises: a message that was acknowledged and committed is never offered
again by the next assignment, no message is skipped, and one that was not acknowledged comes again.
"""

from __future__ import annotations

import pytest

from actors.testing import Crash, Sim, simulate
from tests.effort import examples, seeds
from tests.unit.engine.consume.group_model import MESSAGES, PARTITIONS, Scenario

SEEDS = seeds(12)


@pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
def test_every_message_is_acknowledged_and_committed_through_rebalances(mode: str) -> None:
    for seed in SEEDS:

        async def scenario(sim: Sim) -> None:
            made = Scenario(sim)
            await made.run()
            assert set(made.offered) == {(p, o) for p in range(PARTITIONS) for o in range(MESSAGES)}

        simulate(scenario, seed=seed, mode=mode)


def test_without_faults_each_message_is_offered_once() -> None:
    async def scenario(sim: Sim) -> None:
        made = Scenario(sim)
        await made.run(forget=0.0, rebalances=False)
        assert set(made.offered.values()) == {1}

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_a_message_offered_to_a_client_that_has_gone_is_offered_to_the_next_at_once() -> None:
    async def scenario(sim: Sim) -> None:
        made = Scenario(sim)
        made.proxy.consumer.ack_timeout = 3600.0  # no offer expires
        await made.run(forget=0.0, rebalances=False, impatient=True, within=600)
        assert set(made.offered.values()) == {1}

    for seed in SEEDS:
        simulate(scenario, seed=seed)


def test_crashed_owners_lose_no_ack() -> None:
    for seed in SEEDS:
        crash = Crash(path="/g/t.*", probability=0.01)

        async def scenario(sim: Sim) -> None:
            await Scenario(sim).run(rebalances=False)

        simulate(scenario, seed=seed, faults=(crash,), may_escalate=True)


def test_thousands_of_hours_in_seconds() -> None:
    async def scenario(sim: Sim) -> None:
        await Scenario(sim, scale=6000).run()

    crash = Crash(path="/g/t.*", probability=0.002)
    hours, seed = 0.0, 1000
    while hours < examples(3000):  # some 24 hours a run
        outcome = simulate(
            scenario, seed=seed, mode=("actors", "pct")[seed % 2], faults=(crash,), may_escalate=True
        )
        hours += outcome.seconds / 3600
        seed += 1
