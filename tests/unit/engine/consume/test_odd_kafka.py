"""Nothing is skipped and nobody stays behind, whatever Kafka does."""

from __future__ import annotations

from typing import Any

import pytest

from actors.testing import Sim, SimulationFailed, simulate
from pixy.membership import Fetched
from tests.effort import seeds
from tests.model.session import ModelSession
from tests.unit.engine.consume.odd_kafka import EVENTS, OddKafka

MODES = ("actors", "pct", "harsh")


async def everything(sim: Sim) -> None:
    await OddKafka(sim).run()


@pytest.mark.parametrize("event", EVENTS[1:])
def test_nothing_is_skipped_while_kafka_does_odd_things(event: str) -> None:
    async def scenario(sim: Sim) -> None:
        await OddKafka(sim, ("produce", event)).run()

    for seed in seeds(3):
        simulate(scenario, seed=seed, mode=MODES[seed % 3])


def test_nothing_is_skipped_while_kafka_does_all_odd_things() -> None:
    for seed in seeds(12):
        simulate(everything, seed=seed, mode=MODES[seed % 3])


_land = ModelSession._land


def _without_ends(self: ModelSession, partition: Any, event: Fetched) -> None:
    if event.batches:
        _land(self, partition, event)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "wrong", "error"),
    [
        ("_held", lambda *_: True, "goes back from"),
        ("_checked", lambda _self, commits, _ids: list(commits), "goes back from"),
        ("_land", _without_ends, "stays behind"),
    ],
)
def test_the_search_finds_a_session_that(
    monkeypatch: pytest.MonkeyPatch, what: str, wrong: Any, error: str
) -> None:
    """Commit what it holds no more, or for a topic of the same name; tell of no ends of logs."""
    monkeypatch.setattr(ModelSession, what, wrong)
    with pytest.raises(SimulationFailed, match=error):
        for seed in range(20):
            simulate(everything, seed=seed, mode=MODES[seed % 3])
