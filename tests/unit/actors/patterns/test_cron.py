"""Cron timers, with a wall clock that is the loop's virtual time."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import sys
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest

from actors import Actor, ActorSystem, Backoff, Supervision
from actors.patterns import Cron, CronTimer, start_cron
from tests.unit.actors.virtual_time import virtual_system, virtual_time

BERLIN = ZoneInfo("Europe/Berlin")
SOON = Supervision(backoff=Backoff(first=0.001))


class Wall:
    """A wall clock that runs with the loop and can be set."""

    def __init__(self, start: dt.datetime) -> None:
        self.offset = start

    def now(self) -> dt.datetime:
        return self.offset + dt.timedelta(seconds=asyncio.get_running_loop().time())


class Daily(Actor):
    def __init__(self, wall: Wall, expression: str, seen: list[str]) -> None:
        super().__init__()
        self.wall, self.schedule, self.seen = wall, Cron(expression, BERLIN), seen
        self.timer: CronTimer | None = None

    def on_start(self) -> None:
        self.timer = start_cron(self, self.schedule, "now", now=self.wall.now)

    def on_receive(self, message: Any) -> Any:
        if message == "now":
            self.seen.append(self.wall.now().astimezone(BERLIN).strftime("%d %H:%M"))
        elif message == "cancel":
            assert self.timer is not None
            self.timer.cancel()
        elif message == "sent":
            assert self.timer is not None
            return self.timer.sent
        else:
            raise ValueError(message)
        return None


def start(system: ActorSystem, expression: str, at: str) -> tuple[Any, Wall, list[str]]:
    wall = Wall(dt.datetime.fromisoformat(at).replace(tzinfo=BERLIN))
    seen: list[str] = []
    return system.spawn(Daily, wall, expression, seen, supervision=SOON), wall, seen


@virtual_time
async def test_messages_come_at_the_times_of_the_schedule() -> None:
    async with virtual_system() as system:
        ref, _, seen = start(system, "30 9,18 * * MON-FRI", "2026-11-20T08:00")  # a Friday
        await asyncio.sleep(4 * 86400)
        assert seen == ["20 09:30", "20 18:30", "23 09:30", "23 18:30"]
        assert await ref.ask("sent", block=False) == 4
        await ref.ask("cancel", block=False)
        await asyncio.sleep(2 * 86400)
        assert len(seen) == 4


@virtual_time
async def test_summer_time_begins_and_ends() -> None:
    async with virtual_system() as system:
        _, _, seen = start(system, "0 3 * * *", "2026-03-28T12:00")
        await asyncio.sleep(3 * 86400)
        assert seen == ["29 03:00", "30 03:00", "31 03:00"]


@virtual_time
async def test_a_clock_that_is_set_is_noticed_within_a_minute_and_what_was_missed_comes_once() -> None:
    async with virtual_system() as system:
        _, wall, seen = start(system, "0 * * * *", "2026-11-20T08:30")
        await asyncio.sleep(30)
        wall.offset += dt.timedelta(hours=5)  # the machine slept
        await asyncio.sleep(60)
        assert seen == ["20 13:31"]
        await asyncio.sleep(3600)
        assert seen[1:] == ["20 14:00"]
        wall.offset -= dt.timedelta(hours=1)  # set back: an occurrence that was sent is not sent again
        await asyncio.sleep(3600)
        assert len(seen) == 2
        await asyncio.sleep(3600)
        assert seen[2:] == ["20 15:00"]


@virtual_time
async def test_a_clock_that_is_set_back_far_does_not_silence_the_timer() -> None:
    async with virtual_system() as system:
        _, wall, seen = start(system, "0 * * * *", "2026-11-20T08:30")
        await asyncio.sleep(3600)
        wall.offset -= dt.timedelta(days=10)
        await asyncio.sleep(7200)
        assert seen == ["20 09:00", "10 10:00", "10 11:00"]
        for _ in range(4):  # step by step comes to the same
            wall.offset -= dt.timedelta(hours=2)
            await asyncio.sleep(60)
        await asyncio.sleep(3600)
        assert seen[3:] == ["10 04:00"]


@virtual_time
async def test_a_restart_starts_it_again_and_once() -> None:
    async with virtual_system() as system:
        ref, _, seen = start(system, "0 * * * *", "2026-11-20T08:30")
        await ref
        ref.tell("fail")
        await asyncio.sleep(7200)
        assert seen == ["20 09:00", "20 10:00"] and ref.statistics().restarts == 1
        await ref.stop(block=False)
        await asyncio.sleep(7200)
        assert len(seen) == 2


@pytest.mark.parametrize("expression", ["", "x", "1 2 3", "60 * * * *", "0 0 30 2 *"])
def test_a_schedule_that_is_wrong_is_named(expression: str) -> None:
    with pytest.raises(ValueError, match=f"^{expression!r} is no schedule: ".replace("*", r"\*")):
        Cron(expression)


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        (None, BERLIN, "a cron expression is of class str, not None"),
        ("* * * * *", "Europe/Berlin", "a schedule's zone is of class tzinfo, not 'Europe/Berlin'"),
    ],
)
def test_what_is_no_expression_and_no_zone(expression: Any, zone: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(words)}$"):
        Cron(expression, zone)


@pytest.mark.parametrize(
    ("schedule", "now", "words"),
    [
        ("* * * * *", None, r"schedule is of class Cron, not '\* \* \* \* \*'"),
        (Cron("* * * * *"), dt.datetime.now, r"now\(\) returns a time without a zone"),
    ],
)
async def test_a_mistake_is_refused_where_the_timer_is_started(schedule: Any, now: Any, words: str) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Starts)
        with pytest.raises((TypeError, ValueError), match=words):
            await ref.ask((schedule, now), block=False)
        assert ref.is_alive(), "a task that fails later would be a failure of the actor"


class Starts(Actor):
    def on_receive(self, message: tuple[Any, Any]) -> None:
        start_cron(self, message[0], "tick", now=message[1])


def test_a_missing_library_is_named() -> None:
    with (
        mock.patch.dict(sys.modules, {"cronsim": None}),
        pytest.raises(ModuleNotFoundError, match="pip install cronsim"),
    ):
        Cron("* * * * *")
