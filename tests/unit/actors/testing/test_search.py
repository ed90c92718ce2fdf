"""A short form of ``make search-actors``, and proof that it finds what it is for."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from actors._core import cell, lifecycle, room, supervision, waiting
from actors._core.cell import Cell
from actors._system import ActorSystem
from actors._threaded import ThreadedCell
from actors.testing.preempt import simulate_threads
from tests.effort import seeds
from tests.search.actors import WORLDS, search

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_nothing_is_found(world: str) -> None:
    runs, failures = search([world], seeds(40))
    assert runs >= 10 and not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["preempt", "threaded"])
def test_a_seed_repeats_its_run_on_a_machine_of_any_speed(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[int]] = []
    for step in (1, 10_000_000):
        real = itertools.count(step, step)
        defaults = {**(ActorSystem.__init__.__kwdefaults__ or {}), "clock": real.__next__}
        monkeypatch.setattr(ActorSystem.__init__, "__kwdefaults__", defaults)
        found.append([])

        def simulated(*args: Any) -> Any:
            value, threads = simulate_threads(*args)
            found[-1].append(threads.switches)
            return value, threads

        monkeypatch.setattr("tests.search.actors.simulate_threads", simulated)
        assert search([world], seeds(40))[1] == []
    assert found[0] == found[1] and sum(found[0]) > 100


def test_a_lost_wake_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a sender that had begun to wait did not look whether the actor had fallen asleep."""

    def wait_for_room(mailbox: Any, envelope: Any) -> Any:
        room = None
        with mailbox.lock:
            if len(mailbox.normal) < mailbox.capacity and not mailbox.waiting:
                mailbox.normal.append(envelope)
            else:
                room = waiting._queue(mailbox, envelope)
        if room is None:
            mailbox.rouse()
        return room

    def falls_asleep(self: Cell) -> bool:
        self.mailbox.asleep = True
        if self.mailbox.empty():
            return True
        self.mailbox.asleep = False
        return False

    from actors import _overflow, _ref

    for module in (_overflow, _ref):
        monkeypatch.setattr(module, "wait_for_room", wait_for_room)
    monkeypatch.setattr(Cell, "falls_asleep", falls_asleep)
    _, failures = search(["preempt"], range(400), most=1)
    assert failures and "wait for ever" in failures[0]
    again = search(["preempt"], range(int(failures[0].split()[2].rstrip(":")), 400), most=1)[1]
    assert again[0] == failures[0], "a seed repeats its run"


def test_a_thread_that_goes_on_after_a_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the thread does not wait for the loop's decision, the failed instance handles the next messages."""

    def fail(self: Any, error: BaseException, where: str, *, resumable: bool = False) -> None:
        if asyncio._get_running_loop() is self.loop:
            Cell.fail(self, error, where, resumable=resumable)
        else:
            self.system.on_loop(self._fail_on_loop, error, where, resumable)

    monkeypatch.setattr(ThreadedCell, "fail", fail)
    _, failures = search(["threaded"], range(200), most=1)
    assert failures and "an instance that has failed" in failures[0]


@pytest.mark.slow
def test_a_thread_thatfalls_asleep_beside_a_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # In the file of the cell, so that the search may preempt it at any line.
    names = dict(vars(cell))
    exec(compile(ASLEEP_TOO_LATE, cell.__file__, "exec"), names)
    monkeypatch.setattr(Cell, "falls_asleep", names["falls_asleep"])
    assert search(["threaded"], range(1400, 2400), most=1)[1]


ASLEEP_TOO_LATE = """
def falls_asleep(self):
    if self.mailbox.empty() and not self.mailbox.waiting:
        self.mailbox.asleep = True
        return True
    return False
"""


def test_a_lane_that_gets_back_what_the_thread_has_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    names = dict(vars(room))
    exec(compile(NOT_COMPARED, room.__file__, "exec"), names)
    monkeypatch.setattr(room, "_clear", names["_clear"])
    _, failures = search(["given-up"], range(200), most=1)
    assert failures and "handled twice" in failures[0]


NOT_COMPARED = """
def _clear(lane):
    gone, kept = [], []
    for each in tuple(lane):
        (gone if _is_given_up(each) else kept).append(each)
    lane.clear()
    lane.extend(kept)
    return gone
"""


def test_a_start_that_is_not_noticed_when_it_is_cancelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_start_task_ended", lambda _cell, _task: None)
    assert search(["cancel"], range(300), most=1)[1]


def test_a_loop_whose_end_nobody_tells_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActorSystem, "loop_closed", lambda _self: None)
    assert search(["close"], range(50), most=1)[1]


def test_a_group_that_a_stopped_member_leaves_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the restart of several actors ended with the actor that had failed."""
    waits = supervision.Restart._waits

    def only_with_the_first(self: Any, cell: Cell) -> bool:
        return waits(self, cell) and self._cell.state in (
            lifecycle.RESTARTING,
            lifecycle.RUNNING,
            lifecycle.STARTING,
        )

    monkeypatch.setattr(supervision.Restart, "_waits", only_with_the_first)
    assert search(["cancel"], range(300), most=1)[1]
