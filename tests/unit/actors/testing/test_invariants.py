"""Each invariant reports a runtime, or an actor, that a test breaks on purpose."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor, Backoff, Future, Intensity, Supervision
from actors._core import termination
from actors._core.cell import Cell
from actors._core.handling import work
from actors._core.lifecycle import RUNNING
from actors._core.mailbox import Mailbox
from actors._policy import RestartHistory
from actors._system import ActorSystem
from actors.testing import Sim, SimulationFailed, simulate
from tests.effort import seeds

QUICK = Supervision(backoff=Backoff(first=0.01, most=0.02))


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message

    def echo(self, message: Any) -> Any:
        return message


async def talk(sim: Sim) -> None:
    ref = sim.system.spawn(Echo, name="echo", supervision=QUICK)
    for number in range(5):
        ref.tell(number)
    assert await ref.ask("x", block=False) == "x"
    ref.tell(ValueError("restart"))
    assert await ref.ask("y", block=False) == "y"


def caught(scenario: Any, match: str, **options: Any) -> None:
    with pytest.raises(SimulationFailed, match=match):
        simulate(scenario, **options)


def test_the_healthy_runtime_passes() -> None:
    for seed in seeds(30):
        simulate(talk, seed=seed, mode=("actors", "pct", "harsh", "loop")[seed % 4])


def test_a_message_handled_after_the_stop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    class Zombie(Echo):
        def on_stop(self) -> None:
            kept.extend((self._cell, self))

    async def scenario(sim: Sim) -> None:
        ref = sim.system.spawn(Zombie)
        assert await ref.stop(block=False)
        kept[0].actor = kept[1]
        kept[0].mailbox.normal.append(("late", None, 0, None, None, None))
        kept[0].state = RUNNING
        kept[0].step()
        await sim.settle()

    caught(scenario, r"processed after stop: /Zombie-1 handles str and is stopped")


def test_two_messages_handled_at_a_time_are_reported() -> None:
    class Impatient(Actor):
        async def on_receive(self, message: Any) -> None:
            if message == "first":
                self._cell.mailbox.normal.append(("second", None, 0, None, None, None))
                work(self._cell, 1).close()
                await asyncio.sleep(1)

    async def scenario(sim: Sim) -> None:
        sim.system.spawn(Impatient).tell("first")
        await asyncio.sleep(2)

    caught(scenario, "two at a time: .* handles str, and str is not done")


def test_an_ask_without_a_reply_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "answer_dead_letter", lambda *_: None)

    async def scenario(sim: Sim) -> None:
        ref = sim.system.spawn(Echo)
        ref.stop(block=False)
        ref.ask("after the stop", block=False)

    caught(scenario, "outside asked /Echo-1 and never got a reply", mode="loop")


def test_a_reply_that_changes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(sim: Sim) -> None:
        future: Future[Any] = sim.system.spawn(Echo).ask(1, block=False)
        await future
        future._value = 2

    caught(scenario, "the reply of /Echo-1 to int changed")


def test_messages_of_one_sender_out_of_order_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def push(self: Mailbox, envelope: Any) -> None:
        self.hooks.admits(self.cell, envelope, "normal")  # type: ignore[union-attr]
        self.normal.appendleft(envelope)
        self.rouse()

    monkeypatch.setattr(Mailbox, "push", push)
    caught(talk, r"order: /echo handles \w+ of outside .*after a message that was sent later")

    async def calls(sim: Sim) -> None:
        proxy = sim.system.spawn(Echo, name="echo").proxy()
        for number in range(3):
            proxy.echo.defer(number)
        await sim.settle()

    caught(calls, "order: /echo handles ProxyCall of outside .*after a message that was sent later")


def test_a_mailbox_above_its_bound_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def push(self: Mailbox, envelope: Any) -> None:
        self.hooks.admits(self.cell, envelope, "normal")  # type: ignore[union-attr]
        self.push_behind(envelope)

    monkeypatch.setattr(Mailbox, "push", push)

    async def scenario(sim: Sim) -> None:
        ref = sim.system.spawn(Echo)
        for number in range(4):
            ref.tell(number)

    caught(scenario, r"bound: /Echo-1 has \d normal messages, 2 allowed", mailbox_capacity=2)


def test_more_restarts_than_the_intensity_allows_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestartHistory, "exceeded", lambda *_: False)

    async def scenario(sim: Sim) -> None:
        policy = Supervision(intensity=Intensity(2, 30.0), backoff=Backoff(first=0.01))
        ref = sim.system.spawn(Echo, supervision=policy)
        for _ in range(4):
            ref.tell(ValueError("again"))
        await asyncio.sleep(10)

    caught(scenario, "intensity: /Echo-1 is restarted 3 times within 30 s, 2 allowed")


def test_a_second_on_stop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopper(Echo):
        def on_stop(self) -> None:
            pass

    release = termination._release

    def twice(cell: Cell) -> None:
        cell.actor.on_stop()
        release(cell)

    monkeypatch.setattr(termination, "_release", twice)

    async def scenario(sim: Sim) -> None:
        await sim.system.spawn(Stopper)

    caught(scenario, "on_stop: called 2 times in one life of /Stopper-1")


def test_actors_and_timers_left_behind_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_stop(self: Any, timeout: Any = None) -> Any:
        from actors import StopReport

        return StopReport()

    async def timer(sim: Sim) -> None:
        ref = sim.system.spawn(Echo, name="left")
        ref._cell.timers.set("t", 1e9, "x")
        ref.tell(1)

    with monkeypatch.context() as patch:
        patch.setattr(ActorSystem, "stop", no_stop)
        caught(timer, "left behind: /left is still in the tree.*is running.*has timers")


def test_wrong_counters_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Cell.handler_failed

    def twice(self: Any, envelope: Any, error: BaseException) -> None:
        self.failed += 1
        failed(self, envelope, error)

    monkeypatch.setattr(Cell, "handler_failed", twice)
    caught(talk, "counters: /echo counts 2 failed, 1 were seen")
