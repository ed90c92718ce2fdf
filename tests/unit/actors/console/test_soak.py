"""A short form of ``make soak-console``: five pages watch busy actors that come and go, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import aiohttp
import pytest

from actors.console.hub import Topic, Watcher
from actors.tracing.census import SLICE
from actors.tracing.protocol import Sample
from tests.bench.console.fleet import watchable
from tests.bench.console.soak import VIEWS, Page, paired, watching
from tests.bench.console.steps import Steps
from tests.support import eventually

pytestmark = pytest.mark.slow

ACTORS = 5000
TICKS = 2


def kept() -> Counter[str]:
    """What the console has of pages and actors."""
    gc.collect()
    return Counter(
        type(each).__name__ for each in gc.get_objects() if isinstance(each, Sample | Topic | Watcher)
    )


async def watched(address: str, turn: int) -> list[Page]:
    """Watch with five pages until each has had some frames of its view."""
    async with aiohttp.ClientSession() as http, watching(http, address, turn) as pages:

        async def fewest() -> int:
            return min(page.frames[page.source] for page in pages)

        await eventually(fewest, lambda frames: frames > TICKS, 60.0)
        return pages


async def test_pages_get_their_views_in_short_steps_and_leave_nothing_behind() -> None:
    steps, seen = Steps(), set[str]()
    async with watchable(ACTORS) as (address, fleet):
        with steps.measured():
            for turn in (0, 1):
                pages = await watched(address, turn)
                errors = {error for page in pages for error in page.errors}
                assert not [error for error in errors if "has not answered within" not in error], (
                    "not a busy machine's"
                )
                seen |= {page.source for page in pages}

                async def left() -> Counter[str]:
                    await asyncio.sleep(0.1)
                    return kept()

                await eventually(left, lambda found: not found)
        assert fleet.rounds, "nothing has happened to the actors"
    assert seen == {source for source, _ in VIEWS}
    rounds = steps.counts["actors.console.round"]
    assert rounds > 2 * TICKS * ACTORS / SLICE, "they look at more actors in a step"
    assert steps.long < TICKS, (steps, "in processor time; there were more than 2 * TICKS ticks")


def test_a_pair_counts_what_a_tick_costs_and_not_what_the_program_does() -> None:
    alone = {"used": 1.0, "messages": 1000, "took": 10.0}
    watched_half = {
        "used": 0.7, "messages": 500, "took": 10.0, "ticks": 10, "computed": 0.15, "longest": {"a": 0.001, "b": 0.002}, "long": 0,
        "steps": 100, "collection": 0.0, "replaced": 50, "rss": 80.0, "objects": 1000,
    }  # fmt: skip
    found = paired(alone, watched_half, [Page("tree", {})])
    assert found["cost"] == pytest.approx(0.02) and found["own"] == pytest.approx(0.015)
    assert (found["longest"], found["by"]) == (0.002, "b")
