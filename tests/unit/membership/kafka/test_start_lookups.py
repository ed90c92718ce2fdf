"""Lookups of where partitions begin: each partition has its own outcome, and none waits for another's leader."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from pixy.errors import KafkaError, Unavailable
from pixy.kafka.group_offsets import CommittedOffset
from pixy.kafka.partition_logs import FirstAttempt, Log
from pixy.kafka.shared_topics import SharedTopics
from pixy.membership.kafka import start_lookups as module
from pixy.membership.kafka.start_lookups import Found, Outcomes, StartLookups
from pixy.wire.types import TopicPartition

LONG = 10.0
LOG = Log(uuid.UUID(int=1), 0, 9, 9)
REFUSED = KafkaError("refused", 29, "TOPIC_AUTHORIZATION_FAILED")
DOWN = KafkaError("no leader", 5, "LEADER_NOT_AVAILABLE", retriable=True)
COUNTS = {"t": 4, "new": 2}


class Coordinator:
    """Replaces GroupOffsets."""

    def __init__(self, *_: Any) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.leader = -1
        self.refused: dict[TopicPartition, KafkaError] = {}
        self.failure: Exception | None = None
        self.closed = False
        self.coordinator: str | None = None
        self.described: list[set[str]] = []

    def fetch(
        self, partitions: Iterable[TopicPartition], **_: Any
    ) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, KafkaError]]:
        if self.failure is not None:
            raise self.failure
        wanted = list(partitions)
        found = {
            each: CommittedOffset(self.committed.get(each), "", self.leader)
            for each in wanted
            if each not in self.refused
        }
        return found, {each: self.refused[each] for each in wanted if each in self.refused}

    def topics(self, names: Iterable[str], **_: Any) -> Any:
        self.described.append(set(names))
        return SimpleNamespace(counts={each: COUNTS[each] for each in names}, ids={})

    def close(self) -> None:
        self.closed = True


class Leaders:
    """Replaces PartitionLogs: a leader may hang, or be missing."""

    def __init__(self, *_: Any) -> None:
        self.down: set[TopicPartition] = set()
        self.hanging: set[TopicPartition] = set()
        self.epochs: dict[TopicPartition, int] = {}
        self.answer = threading.Event()

    def look_up(
        self,
        partitions: Iterable[TopicPartition],
        _topics: object,
        found: Callable[[Mapping[Any, Any]], None],
        _attempts: object = None,
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        self.epochs.update(epochs)
        wanted = list(partitions)
        found({each: DOWN if each in self.down else LOG for each in wanted if each not in self.hanging})
        slow = [each for each in wanted if each in self.hanging]
        if slow:
            assert self.answer.wait(LONG)
            found(dict.fromkeys(slow, LOG))


class Case:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GroupOffsets", Coordinator)
        monkeypatch.setattr(module, "PartitionLogs", Leaders)
        self.lookups = StartLookups({}, "g")
        self.coordinator: Coordinator = self.lookups._offsets  # type: ignore[assignment]
        self.leaders: Leaders = self.lookups._logs  # type: ignore[assignment]
        self.outcomes: dict[TopicPartition, Any] = {}

    def begin(self, *partitions: TopicPartition) -> threading.Event:
        done = threading.Event()

        def found(outcomes: Outcomes) -> None:
            self.outcomes.update(outcomes)

        self.lookups.look_up({each: FirstAttempt() for each in partitions}, None, found, done.set)
        return done

    def look_up(self, *partitions: TopicPartition) -> dict[TopicPartition, Any]:
        assert self.begin(*partitions).wait(LONG)
        return self.outcomes


def test_a_topic_that_is_made_again_during_a_lookup_is_known_by_its_old_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the next comparison finds it: with the new id its first messages would be skipped."""
    case = Case(monkeypatch)
    order: list[str] = []
    fetch, topics = case.coordinator.fetch, case.coordinator.topics
    monkeypatch.setattr(
        case.coordinator, "fetch", lambda *given, **more: order.append("offsets") or fetch(*given, **more)
    )
    monkeypatch.setattr(
        case.coordinator, "topics", lambda *given, **more: order.append("ids") or topics(*given, **more)
    )
    case.look_up(("t", 0))
    assert order[:2] == ["ids", "offsets"]


def refuse(_thread: threading.Thread) -> None:
    """Replaces ``Thread.start`` at a limit of threads."""
    raise RuntimeError("can't start new thread")


def test_a_lookup_whose_thread_cannot_be_started_fails_for_all_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session looks them up again, as after any failure. It would end with an error of its own thread's."""
    case = Case(monkeypatch)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        assert case.begin(("t", 0), ("t", 1)).is_set()
        case.lookups.logs([("t", 0)], lambda _found: pytest.fail("there is no thread to look up in"))
        case.lookups.behind("me", lambda _found: pytest.fail("there is no thread to ask in"))
        case.lookups.describe(["t"], lambda _found: pytest.fail("there is no thread to ask in"))
        assert case.lookups.running == 0
    outcomes = list(case.outcomes.values())
    assert [type(each) for each in outcomes] == [Unavailable] * 2
    assert str(outcomes[0]) == "cannot look up now: can't start new thread"
    assert set(case.look_up(("t", 0)).values()) == {Found(LOG, CommittedOffset(None, ""), False), outcomes[1]}


def test_a_thread_that_cannot_be_started_keeps_nobody_from_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    monkeypatch.setattr(module, "SHARED", SharedTopics())
    case.coordinator.coordinator = "broker"
    answers: list[Any] = []
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        case.lookups.describe(["t"], answers.append)
    case.lookups.describe(["t"], answers.append)
    deadline = time.monotonic() + LONG
    while not answers and time.monotonic() < deadline:
        time.sleep(0.001)
    assert answers


def test_each_partition_has_its_own_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.coordinator.committed = {("t", 0): 5}
    case.coordinator.refused = {("t", 1): REFUSED}
    case.leaders.down = {("t", 2)}
    assert case.look_up(("t", 0), ("t", 1), ("t", 2)) == {
        ("t", 0): Found(LOG, CommittedOffset(5, ""), True),
        ("t", 1): REFUSED,
        ("t", 2): DOWN,
    }


def test_the_leaders_are_asked_where_the_committed_leader_epochs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.coordinator.committed = {("t", 0): 5}
    case.look_up(("t", 0))
    assert case.leaders.epochs == {}, "no epoch was committed"
    case.coordinator.leader = 8
    case.look_up(("t", 0))
    assert case.leaders.epochs == {("t", 0): 8}
    # Of a log that was out of range the last message's counts.
    done = threading.Event()
    case.lookups.look_up({("t", 0): FirstAttempt(9)}, None, case.outcomes.update, done.set)
    assert done.wait(LONG)
    assert case.leaders.epochs == {("t", 0): 9}


@pytest.mark.parametrize("failure", [DOWN, ValueError("a bug")])
def test_without_a_coordinator_all_partitions_fail(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    case = Case(monkeypatch)
    case.coordinator.failure = failure
    outcomes = case.look_up(("t", 0), ("new", 0))
    assert [str(each) for each in outcomes.values()] == [str(outcomes["t", 0])] * 2
    case.coordinator.failure = None
    assert set(case.look_up(("t", 0), ("new", 0)).values()) == {Found(LOG, CommittedOffset(None, ""), False)}


def test_a_commit_of_any_partition_makes_a_topic_known_to_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that belongs to another member."""
    case = Case(monkeypatch)
    case.coordinator.committed = {("t", 3): 5}
    outcomes = case.look_up(("t", 0), ("new", 0))
    assert outcomes["t", 0].established and not outcomes["new", 0].established


def test_what_the_group_commits_meanwhile_makes_no_topic_known_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that has no leader at first is not taken for one that was added."""
    case = Case(monkeypatch)
    case.leaders.down = {("t", 1)}
    attempts = {("t", 0): FirstAttempt(), ("t", 1): FirstAttempt()}
    for wanted in (attempts, {("t", 1): attempts["t", 1]}):
        done = threading.Event()
        case.lookups.look_up(wanted, None, case.outcomes.update, done.set)
        assert done.wait(LONG)
        case.coordinator.committed = {("t", 0): 9}
        case.leaders.down = set()
    assert case.outcomes["t", 1] == Found(LOG, CommittedOffset(None, ""), False)


def test_a_leader_that_hangs_delays_its_own_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those that are looked up with them, nor later ones."""
    case = Case(monkeypatch)
    case.leaders.hanging = {("t", 1)}
    hanging = case.begin(("t", 0), ("t", 1))
    assert set(case.look_up(("t", 2))) == {("t", 0), ("t", 2)}
    case.lookups._threads[-1].join(LONG)  # its outcome comes before its end
    assert case.lookups.running == 1
    case.lookups.close()
    assert not case.coordinator.closed
    case.leaders.answer.set()
    assert hanging.wait(LONG)
    assert ("t", 1) in case.outcomes
    for thread in case.lookups._threads:
        thread.join(LONG)
    assert case.coordinator.closed


def test_a_lookup_waits_for_the_commit_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would begin at the offset before."""
    case = Case(monkeypatch)
    landed = threading.Event()
    commit = threading.Thread(
        target=lambda: (landed.wait(LONG), case.coordinator.committed.update({("t", 0): 7}))
    )
    commit.start()
    done = threading.Event()
    case.lookups.look_up({("t", 0): FirstAttempt()}, commit, case.outcomes.update, done.set)
    landed.set()
    assert done.wait(LONG)
    assert case.outcomes["t", 0].committed.offset == 7


def described(case: Case, since: float = 0.0) -> bool:
    """Describe a topic; tell whether the answer came."""
    came = threading.Event()
    case.lookups.describe({"t"}, lambda _: came.set(), since)
    for thread in case.lookups._threads:
        thread.join(LONG)
    return came.is_set()


def test_groups_with_one_coordinator_ask_it_about_their_topics_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHARED", SharedTopics())
    one, other, elsewhere, unknown = (Case(monkeypatch) for _ in range(4))
    one.coordinator.coordinator = other.coordinator.coordinator = "b1"
    elsewhere.coordinator.coordinator = "b2"
    for case in (one, other, elsewhere, unknown):
        assert described(case)
    assert [len(each.coordinator.described) for each in (one, other, elsewhere, unknown)] == [1, 0, 1, 1]
    assert described(other, since=time.monotonic()), "that answer is too old for it"
    assert len(other.coordinator.described) == 1


def test_a_group_whose_coordinator_moves_while_it_asks_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARED", SharedTopics())
    case = Case(monkeypatch)
    case.coordinator.coordinator = "b1"
    ask = case.coordinator.topics

    def moves(names: Iterable[str], **options: Any) -> Any:
        case.coordinator.coordinator = "b2"
        return ask(names, **options)

    monkeypatch.setattr(case.coordinator, "topics", moves)
    assert not described(case)
    assert described(case)
