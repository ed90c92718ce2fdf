"""Each scenario shows the same on the model and on real Kafka."""

from __future__ import annotations

import asyncio
import random
from difflib import SequenceMatcher
from itertools import zip_longest

import pytest

from actors.testing import Sim, simulate
from tests.kafka.cluster import Cluster
from tests.model import client_scenarios, session_scenarios
from tests.model.on_kafka import KafkaWorld
from tests.model.on_model import ModelWorld
from tests.model.world import Script

SEEDS = range(20)
"""The model has choices where Kafka has: what takes how long."""


def on_model(script: Script, seed: int = 0) -> list[str]:
    """Run a script on the model and return what it saw."""

    async def run(sim: Sim) -> list[str]:
        world = ModelWorld(random.Random(seed))
        await script(world)
        return world.seen

    return list(simulate(run, seed=seed, mode="loop").value)


def on_kafka(script: Script, cluster: Cluster, prefix: str, protocol: str = "classic") -> list[str]:
    """Run a script on a real broker and return what it saw."""

    async def run() -> list[str]:
        world = KafkaWorld(cluster, prefix, protocol)
        try:
            await script(world)
        finally:
            await world.close()
        return world.seen

    return asyncio.run(run())


def side_by_side(model: list[str], real: list[str]) -> str:
    """Both lists in two columns; lines that differ are marked."""
    width = max(map(len, ["on the model", *model]))
    lines = [f"  {'on the model':{width}} | on real Kafka"]
    for ours, theirs in zip_longest(model, real, fillvalue=""):
        lines.append(f"{' ' if ours == theirs else '!'} {ours:{width}} | {theirs}")
    return "\n".join(lines)


@pytest.mark.parametrize("script", client_scenarios.SCENARIOS, ids=lambda script: script.__name__)
def test_a_client_on_the_model_sees_what_one_on_kafka_sees(kafka: Cluster, name: str, script: Script) -> None:
    compare(script, on_kafka(script, kafka, name))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("script", session_scenarios.SCENARIOS, ids=lambda script: script.__name__)
def test_a_session_on_the_model_sees_what_one_on_kafka_sees(
    kafka: Cluster, name: str, script: Script, protocol: str
) -> None:
    compare(script, on_kafka(script, kafka, name, protocol))


def compare(script: Script, theirs: list[str]) -> None:
    """Fail unless the model can show what real Kafka has shown."""
    ours = [on_model(script, seed) for seed in SEEDS]
    if theirs not in ours:
        closest = max(ours, key=lambda seen: SequenceMatcher(None, seen, theirs).ratio())
        pytest.fail("\n" + side_by_side(closest, theirs), pytrace=False)
