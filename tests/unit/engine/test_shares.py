"""Fair parts of what all callers share."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pixy.config.model import Proxy
from pixy.engine import shares
from pixy.engine.client import ClusterClient
from pixy.engine.shares import Shares, Turns
from pixy.errors import TooManyRequests


def test_a_caller_gets_three_quarters_of_the_places() -> None:
    places = Shares(8)
    assert [places.enter("a") for _ in range(7)] == [True] * 6 + [False]
    assert places.enter("b")
    places.leave("a")
    assert places.enter("a") and not places.enter("a")
    assert Shares(1).enter("a")


def test_all_callers_together_get_all_places() -> None:
    places = Shares(4, total=True)
    assert [places.enter(name) for name in "aaabb"] == [True] * 4 + [False]
    places.leave("b")
    assert places.enter("c") and places.held == 4


@pytest.mark.parametrize("most", [8, 100, 16_384])
def test_many_who_take_all_they_can_leave_room_for_one_more(most: int) -> None:
    places = Shares(most, total=True)

    def fill(name: str) -> int:
        return next(count for count in range(most + 1) if not places.enter(name))

    assert fill("a") == most - most // 4
    assert fill("b") <= most // 4 - (most // 4 > 2)
    if most > 8:
        assert places.enter("c") and places.enter("d")


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_whoever_waits_often_waits_behind_others() -> None:
    turns = Turns(4)
    got: list[str] = []

    async def enter(name: str) -> None:
        await turns.enter(name)
        got.append(name)

    hostile = [asyncio.create_task(enter("hostile")) for _ in range(100)]
    await _settle()
    assert got == ["hostile"] * 3, "three quarters"
    others = [asyncio.create_task(enter(name)) for name in ("b", "c", "c")]
    await _settle()
    assert got[3:] == ["b"], "the last place was kept for others"
    for name in ("hostile", "hostile", "b"):
        turns.leave(name)
        await _settle()
    assert got[4:] == ["hostile", "c", "hostile"], "in turn, though a hundred had asked before"
    for task in (*hostile, *others):
        task.cancel()
    await asyncio.gather(*hostile, *others, return_exceptions=True)


async def test_who_gives_up_gets_no_place() -> None:
    turns = Turns(1)
    await turns.enter("a")
    waiting = [asyncio.create_task(turns.enter(name)) for name in ("b", "b", "c")]
    await _settle()
    waiting[0].cancel()
    await _settle()
    turns.leave("a")
    await asyncio.wait_for(waiting[1], 20)
    waiting[2].cancel()
    turns.leave("b")
    late = asyncio.create_task(turns.enter("d"))
    await asyncio.wait_for(late, 20)
    assert turns.held == 1


async def test_a_place_that_came_with_the_cancellation_is_given_back() -> None:
    turns = Turns(1)
    await turns.enter("a")
    waiting = asyncio.create_task(turns.enter("b"))
    await _settle()
    turns.leave("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert turns.held == 0


async def test_one_caller_leaves_admin_requests_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(max_admin_requests=4)
    client = ClusterClient(cast(Any, None), proxy, lambda: False)
    answered = asyncio.Event()

    async def unanswered(*_args: object, **_options: object) -> list[int]:
        await answered.wait()
        return [1]

    monkeypatch.setattr(client._refs, "ask", unanswered)

    async def ask(name: str) -> list[int]:
        shares.caller.set(name)
        return await client.brokers()

    waiting = [asyncio.create_task(ask(name)) for name in ("a", "a", "a", "b")]
    await _settle()
    with pytest.raises(TooManyRequests, match="max_admin_requests"):
        await asyncio.create_task(ask("a"))
    answered.set()
    assert await asyncio.gather(*waiting) == [[1]] * 4
    assert await asyncio.create_task(ask("a")) == [1]
