"""One timer for all tasks that wait for the same time at most."""

from __future__ import annotations

import asyncio

import pytest

from pixy.api.edge.deadline import Deadline

SOON = 0.005


async def test_a_block_that_takes_too_long_ends_with_a_timeout() -> None:
    deadline, task = Deadline(SOON), asyncio.current_task()
    with pytest.raises(TimeoutError), deadline:
        await asyncio.Event().wait()
    assert task is not None and task.cancelling() == 0 and deadline.held == 0


async def test_a_block_that_ends_in_time_is_not_ended_later() -> None:
    deadline = Deadline(SOON)
    with deadline:
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), Deadline(2 * SOON):  # the first one's timer fires meanwhile
        await asyncio.Event().wait()
    assert deadline.held == 0 and deadline._timer is None


async def test_a_cancellation_from_outside_stays_one() -> None:
    """Also if the time ends in the same turn of the loop."""
    for timed_out in (False, True):
        deadline = Deadline(60.0)

        async def wait(deadline: Deadline = deadline) -> None:
            with deadline:
                await asyncio.Event().wait()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        if timed_out:
            deadline._due[task] = 0.0
            deadline._end()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert deadline.held == 0


async def test_an_error_of_the_block_is_not_replaced() -> None:
    with pytest.raises(ValueError), Deadline(SOON):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError from None
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_a_thousand_tasks_share_a_timer_and_end_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, deadline = asyncio.get_running_loop(), Deadline(SOON)
    timers, ended = list[float](), list[int]()
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda at, *args: timers.append(at) or call_at(at, *args))

    async def wait(number: int) -> None:
        try:
            with deadline:
                if number % 2:
                    return
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append(number)

    await asyncio.gather(*(wait(number) for number in range(1000)))
    assert ended == list(range(0, 1000, 2))
    assert len(timers) < 250, "not one for each of the 500 that wait"


async def test_tasks_whose_times_end_together_end_in_several_turns() -> None:
    deadline, ended, turns = Deadline(60.0), 0, 0

    async def wait() -> None:
        nonlocal ended
        try:
            with deadline:
                await asyncio.Event().wait()
        except TimeoutError:
            ended += 1

    tasks = [asyncio.create_task(wait()) for _ in range(300)]
    await asyncio.sleep(0)
    for task in deadline._due:
        deadline._due[task] = 0.0
    assert deadline._timer is not None
    deadline._timer.cancel()
    deadline._end()
    while ended < len(tasks):
        before = ended
        await asyncio.sleep(0)
        assert ended - before <= 64
        turns += 1
        assert turns < 1000
    assert deadline.held == 0 and deadline._timer is None
