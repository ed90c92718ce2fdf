"""One question about topics for all groups with the same coordinator."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.kafka.shared_topics import RECENT, SharedTopics
from pixy.kafka.topics import Topics

LONG = 30.0
FAR = float("inf")


class Case:
    def __init__(self) -> None:
        self.now = 100.0
        self.shared = SharedTopics(lambda: self.now)
        self.asked: list[set[str]] = []
        self.heard: list[tuple[str, Topics]] = []

    def wants(self, who: str, *names: str, since: float = 0.0, coordinator: str = "b1") -> bool:
        return self.shared.wants(
            coordinator, who, names, since, lambda topics: self.heard.append((who, topics))
        )

    def ask(self, names: Iterable[str]) -> Topics:
        self.asked.append(set(names))
        return Topics({"Brokers": [], "Topics": []})

    def answer(self, ask: Any = None, coordinator: str = "b1") -> None:
        self.shared.ask(coordinator, ask or self.ask)

    @property
    def listeners(self) -> list[str]:
        return [who for who, _ in self.heard]


def test_groups_that_wait_are_answered_together() -> None:
    case = Case()
    assert case.wants("g1", "a")
    assert not case.wants("g2", "b")
    assert not case.wants("g2", "c"), "a later question of the same group replaces its earlier one"
    case.answer()
    assert case.asked == [{"a", "c"}]
    assert case.listeners == ["g1", "g2"]


def test_a_recent_answer_is_given_at_once() -> None:
    case = Case()
    assert case.wants("g1", "a", "b")
    case.answer()
    case.now += RECENT
    assert not case.wants("g2", "a")
    assert case.listeners == ["g1", "g2"]
    case.now += 0.1
    assert case.wants("g3", "a")


@pytest.mark.parametrize(("names", "since"), [(["a"], 100.5), (["a", "other"], 0.0), (["a"], FAR)])
def test_an_answer_that_is_of_no_use_is_not_given(names: list[str], since: float) -> None:
    """It is from before the group learned the id that it compares, or says nothing about one of its topics."""
    case = Case()
    assert case.wants("g1", "a")
    case.answer()
    case.now += 1
    assert case.wants("g2", *names, since=since)
    assert case.listeners == ["g1"]
    case.answer()
    assert case.listeners == ["g1", "g2"]


def test_who_comes_while_the_question_is_out_is_asked_for_in_the_next_one() -> None:
    case = Case()
    asking, go_on = threading.Event(), threading.Event()

    def slowly(names: Iterable[str]) -> Topics:
        asking.set()
        assert go_on.wait(LONG)
        return case.ask(names)

    assert case.wants("g1", "a")
    thread = threading.Thread(target=case.answer, args=(slowly,))
    thread.start()
    assert asking.wait(LONG)
    assert not case.wants("g2", "a"), "somebody asks already"
    go_on.set()
    thread.join(LONG)
    assert case.asked == [{"a"}, {"a"}]
    assert case.listeners == ["g1", "g2"]
    assert case.wants("g3", "b"), "nobody asks any more"


def test_coordinators_are_asked_apart() -> None:
    case = Case()
    assert case.wants("g1", "a")
    assert case.wants("g2", "a", coordinator="b2")
    case.answer(coordinator="b2")
    assert case.listeners == ["g2"]


def test_after_a_failure_others_may_ask() -> None:
    case = Case()

    def fails(_: object) -> Topics:
        raise KafkaError("down", -1, "DOWN")

    assert case.wants("g1", "a")
    assert not case.wants("g2", "a")
    with pytest.raises(KafkaError, match="down"):
        case.answer(fails)
    assert case.heard == []
    assert case.wants("g2", "a")
    case.answer()
    assert case.listeners == ["g2"]


def test_the_answer_of_another_broker_is_not_kept() -> None:
    case = Case()
    assert case.wants("g1", "a")
    case.answer(lambda _names: None)
    assert case.heard == []
    assert case.wants("g1", "a")
