"""Commits without ``wait``: another thread waits, the order is kept, and the outcome is reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pixy.errors import KafkaError, PixyError, Unavailable
from pixy.kafka import consumer as module
from pixy.kafka.consumer import Commit, ConsumerClient
from pixy.wire.types import TopicPartition

LONG = 10.0
Outcome = tuple[PixyError | None, dict[TopicPartition, PixyError], bool]


class Coordinator:
    """Replaces GroupOffsets: answers a commit when the test allows it, and records the order."""

    def __init__(self, *_: Any) -> None:
        self.seen: list[tuple[str, int]] = []
        self.answer = threading.Event()
        self.failure: Exception | None = None
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.closed = False

    def commit(self, commits: tuple[Commit, ...], *_: Any, **__: Any) -> dict[TopicPartition, KafkaError]:
        assert self.answer.wait(LONG)
        assert not self.closed
        self.seen += [("commit", each.offset) for each in commits]
        if self.failure is not None:
            raise self.failure
        return self.errors

    def committed(self, partitions: list[TopicPartition], **_: Any) -> dict[TopicPartition, Any]:
        self.seen += [("committed", number) for _, number in partitions]
        return {}

    def close(self) -> None:
        self.closed = True


class Fixture:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "GroupOffsets", Coordinator)
        self.outcomes: list[Outcome] = []
        self.told = threading.Event()
        self.client = ConsumerClient(
            {"group.id": "g", "bootstrap.servers": "127.0.0.1:1", "log_level": 0},
            assign=_never,
            revoke=_never,
            lost=_never,
            committed=self._committed,
        )
        coordinator = self.client._offsets
        assert isinstance(coordinator, Coordinator)
        self.coordinator = coordinator

    def _committed(self, error: PixyError | None, partitions: dict[TopicPartition, PixyError]) -> None:
        self.outcomes.append((error, partitions, threading.current_thread().daemon))
        self.told.set()


def _never(_: list[TopicPartition]) -> None:
    raise AssertionError("nothing is assigned here")


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fixture]:
    fixture = Fixture(monkeypatch)
    yield fixture
    fixture.coordinator.answer.set()
    if not fixture.coordinator.closed:
        fixture.client.close()


def commit(at: int) -> tuple[Commit, ...]:
    return (Commit("t", 0, at, "metadata"),)


def test_a_commit_does_not_block_the_caller_while_the_coordinator_does_not_answer(one: Fixture) -> None:
    one.client.commit(commit(1), wait=False)  # if it blocked, it would fail after LONG
    assert one.client.poll(0) is None and one.coordinator.seen == [] and one.outcomes == []
    one.coordinator.answer.set()
    assert one.told.wait(LONG)
    assert one.outcomes == [(None, {}, True)], "its thread must not delay the end of the process"


def test_later_calls_come_after_a_commit_in_progress(one: Fixture) -> None:
    one.client.commit(commit(1), wait=False)
    threading.Timer(0.05, one.coordinator.answer.set).start()
    one.client.commit(commit(2), wait=True)
    one.client.commit(commit(3), wait=False)
    one.client.committed([("t", 4)], 1.0)
    assert one.coordinator.seen == [("commit", 1), ("commit", 2), ("commit", 3), ("committed", 4)]


def test_a_commit_whose_thread_cannot_be_started_is_no_obstacle_to_the_last_one(
    one: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unavailable, match="can't start new thread"):
            one.client.commit(commit(1), wait=False)
    one.coordinator.answer.set()
    one.client.commit(commit(2), wait=True)
    assert one.coordinator.seen == [("commit", 2)]


def test_closing_waits_for_a_commit_in_progress(one: Fixture) -> None:
    one.client.commit(commit(1), wait=False)
    threading.Timer(0.05, one.coordinator.answer.set).start()
    one.client.close()
    assert one.coordinator.seen == [("commit", 1)] and one.coordinator.closed
    assert one.outcomes == [(None, {}, True)]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (KafkaError("kafka: no", -1, "NO"), "kafka: no"),
        (ValueError("a surprise"), "kafka: a surprise"),
    ],
)
def test_a_failed_commit_is_reported(one: Fixture, failure: Exception, text: str) -> None:
    one.coordinator.failure = failure
    one.coordinator.answer.set()
    one.client.commit(commit(1), wait=False)
    assert one.told.wait(LONG)
    error, partitions, _ = one.outcomes[0]
    assert isinstance(error, KafkaError) and str(error) == text and partitions == {}


def test_a_refused_partition_is_reported(one: Fixture) -> None:
    refused = KafkaError("kafka: no", -1, "NO")
    one.coordinator.errors = {("t", 0): refused}
    one.coordinator.answer.set()
    one.client.commit(commit(1), wait=False)
    assert one.told.wait(LONG)
    assert one.outcomes[0][:2] == (None, {("t", 0): refused})
    with pytest.raises(KafkaError, match="kafka: no"):
        one.client.commit(commit(1), wait=True)


class Library:
    """The part of confluent-kafka's consumer that a subscription needs."""

    def __init__(self) -> None:
        self.subscribed: list[list[str]] = []
        self.on_assign: Any = None
        self.member_id = ""

    def subscribe(self, topics: list[str], on_assign: Any, **_: Any) -> None:
        self.subscribed.append(topics)
        self.on_assign = on_assign

    def unsubscribe(self) -> None:
        self.subscribed.append([])

    def poll(self, _timeout: float) -> None:
        return None

    def assignment(self) -> list[Any]:
        return [("a", 0)]  # so it does not leave while it joins


def test_a_member_without_an_id_changes_no_subscription(
    one: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka ends the process with an assertion if it does, once the member has been one and its group has lost it."""
    library = Library()
    monkeypatch.setattr(one.client, "_consumer", library)
    monkeypatch.setattr(ConsumerClient, "member_id", lambda _self: library.member_id)
    one.client.subscribe(["a"])
    one.client.subscribe(["a", "b"])
    assert library.subscribed == [["a"], ["a", "b"]], "it has not joined yet"
    with pytest.raises(AssertionError):
        library.on_assign(library, [])  # the fixture's callback
    one.client.subscribe({"a", "b", "c"})
    one.client.subscribe({"a", "b", "d"})
    one.client.poll(0)
    assert len(library.subscribed) == 2
    library.member_id = "me"
    one.client.poll(0)
    one.client.poll(0)
    assert library.subscribed[2:] == [["a", "b", "d"]]
    library.member_id = ""
    one.client.subscribe(())
    one.client.subscribe(["a"])
    assert library.subscribed[3:] == [[], ["a"]], "it begins anew"
    monkeypatch.undo()
