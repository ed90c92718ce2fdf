"""The groups of a cluster: who asks for one that leaves, and their bounds."""

from __future__ import annotations

from typing import Any, cast

import pytest

from actors import Future
from pixy.engine.consume.groups import Groups
from pixy.errors import ShuttingDown, TooManyRequests
from pixy.membership.kafka.beginnings import Memory


class Case:
    """Groups whose actors are plain objects."""

    def __init__(self, most: int = 8) -> None:
        self.spawned: list[str] = []
        self.memories: list[Memory] = []
        self.groups = Groups(self._spawn, most)

    def _spawn(self, name: str, memory: Memory) -> Any:
        self.spawned.append(name)
        self.memories.append(memory)
        return object()

    def get(self, name: str, caller: str = "") -> Any:
        """Ask for a group; return its actor, or the reply that waits."""
        reply: Future[Any] = Future()
        return self.groups.get(name, caller, lambda: reply) or reply


def test_who_asks_for_a_group_that_leaves_gets_the_next_one() -> None:
    case = Case()
    first = case.get("g")
    assert case.get("g") is first and case.spawned == ["g"]
    case.groups.leaving("g")
    waiting = case.get("g")
    assert not waiting.done()
    case.groups.stopped(first)
    second = waiting.value()
    assert second is not first and case.get("g") is second and case.spawned == ["g", "g"]


def test_who_asks_for_a_group_that_fails_while_it_leaves_gets_its_next_life() -> None:
    """It is the same actor, and has not stopped: nobody else would ever answer."""
    case = Case()
    first = case.get("g")
    case.groups.leaving("g")
    waiting = case.get("g")
    case.groups.started("g")
    assert waiting.value() is first and case.get("g") is first


def test_a_group_that_is_held_does_not_start_again_until_it_is_let_go() -> None:
    case = Case()
    first = case.get("g")
    case.groups.leaving("g")
    early = case.get("g")
    assert case.groups.hold("g") and not case.groups.hold("g")
    late = case.get("g")
    case.groups.stopped(first)
    other = case.get("h")
    assert not early.done() and not late.done() and case.spawned == ["g", "h"] and other is not None
    case.groups.let_go("g")
    assert early.value() is late.value() is case.get("g") and case.spawned == ["g", "h", "g"]


def test_groups_are_bounded_in_all_and_for_each_caller() -> None:
    case = Case(most=4)
    for number in range(3):
        case.get(f"a{number}", "a")
    with pytest.raises(TooManyRequests):
        case.get("a3", "a")
    case.get("b0", "b")
    with pytest.raises(TooManyRequests):
        case.get("c0", "c")
    assert len(case.groups) == 4 and set(case.groups.refs()) == {"a0", "a1", "a2", "b0"}


def test_a_cluster_that_drains_starts_no_group() -> None:
    case = Case()
    first = case.get("g")
    case.groups.leaving("g")
    waiting = cast("Future[Any]", case.get("g"))
    case.groups.closed = True
    with pytest.raises(ShuttingDown):
        case.get("other")
    case.groups.stopped(first)
    with pytest.raises(ShuttingDown):
        waiting.get(timeout=0)


def test_the_names_of_groups_that_were_started_last_are_known() -> None:
    case = Case(most=2)
    for name in ("a", "b", "a", "c"):
        case.groups.stopped(case.get(name))
    assert case.groups.known() == ["a", "c"]
    first, _b, again, _c = case.memories
    assert again is first, "what was known of its topics is known to its next life"
