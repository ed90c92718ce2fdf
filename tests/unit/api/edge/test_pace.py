"""The order in which requests begin."""

from __future__ import annotations

import asyncio

import pytest

from pixy.api.edge.pace import BATCH, TURN, Pace


class Clock:
    """Each request takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _flood(
    clock: Clock, count: int, takes: float = 0.001
) -> tuple[Pace, list[str], list[asyncio.Task[None]]]:
    pace, begun = Pace(clock), list[str]()

    async def request(caller: str) -> None:
        turn = pace.enter(caller)
        if turn is not None:
            await pace.wait(turn, caller)
        begun.append(caller)
        clock.now += takes if caller == "hostile" else 0.0001

    tasks = [asyncio.create_task(request("hostile")) for _ in range(count)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(request("honest")))
    return pace, begun, tasks


async def test_whoever_sends_one_request_does_not_wait_for_a_thousand() -> None:
    _, begun, tasks = await _flood(Clock(), 1000)
    assert len(begun) == round(TURN / 0.001), "the turn ends"
    await asyncio.gather(*tasks)
    assert len(begun) == 1001 and begun.index("honest") < len(begun[:6]) + 2 * BATCH


async def test_requests_that_fit_into_a_turn_do_not_wait() -> None:
    pace = Pace(Clock())
    for _ in range(5):
        assert [pace.enter("a") for _ in range(1000)] == [None] * 1000, "no time has passed"
        await asyncio.sleep(0)
    assert pace._began is None, "nothing goes on once nobody waits"


async def test_clients_that_have_gone_take_no_turn() -> None:
    pace, begun, tasks = await _flood(Clock(), 500)
    for task in tasks[:-1]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert begun.count("honest") == 1 and begun.count("hostile") < 50
    await asyncio.sleep(0)
    assert not pace._waiting and pace._began is None


async def test_of_requests_that_take_long_few_begin_in_a_turn() -> None:
    """However many wait: each of them may be all that a turn has time for."""
    _, begun, tasks = await _flood(Clock(), 200, takes=0.004)
    before, turns = len(begun), 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns += 1
        assert len(begun) - before <= 3
        before = len(begun)
        assert turns < 1000
    assert len(begun) == 201 and begun.index("honest") <= 8


async def test_who_was_late_is_first_in_the_next_turn() -> None:
    clock = Clock()
    _, begun, tasks = await _flood(clock, 30, takes=TURN)
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun.count("honest") == 1
    await asyncio.gather(*tasks)
    assert begun.count("hostile") == 30


@pytest.mark.parametrize("count", [6, 12, 36])
async def test_who_was_late_is_not_overtaken_turn_after_turn(count: int) -> None:
    """Requests of clients that send again at once come before those who have waited, and there are enough of them to fill each turn."""
    clock = Clock()
    pace, served, idle = Pace(clock), [0] * count, set(range(count))

    def begins(each: int) -> None:
        clock.now += 0.001
        served[each] += 1
        idle.add(each)

    def called(each: int) -> None:
        turn = pace.again("a")
        if turn is None:
            begins(each)
        else:
            turn.add_done_callback(lambda _: called(each))

    def arrive() -> None:
        for each in sorted(idle):
            idle.discard(each)
            turn = pace.enter("a")
            if turn is None:
                begins(each)
            else:
                turn.add_done_callback(lambda _, each=each: called(each))
        asyncio.get_running_loop().call_soon(arrive)

    arrive()
    while sum(served) < 20 * count:
        await asyncio.sleep(0)
    assert 3 * min(served) >= max(served)
