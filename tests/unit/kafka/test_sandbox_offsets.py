"""Offsets of a sandbox's group are set by a member that joins for a moment, unless there are others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from pixy.config import Consumer, Proxy
from pixy.errors import GroupActive, Unavailable
from pixy.kafka import sandbox_offsets, settings
from pixy.kafka.group_offsets import Commit, GroupOffsets
from pixy.kafka.sandbox_offsets import set_offsets

SETTINGS = {**settings.consumer(Proxy(), "g"), "group.instance.id": "i"}
NEXT = settings.consumer(Proxy(consumer=Consumer(membership="kafka-next")), "g")
COMMITS = [Commit("t", 0, 7, "m")]


class FakeConsumer:
    """A member of a group, in a topic of two partitions.

    Attributes:
        gets: the partitions that the group assigns it; None while it waits.
        closed: whether it has left.
    """

    gets: tuple[int, ...] | None = (0, 1)

    def __init__(self, conf: dict[str, Any]) -> None:
        assert "group.instance.id" not in conf, "the daemon's own member has it"
        self.closed = False
        made.append(self)

    def subscribe(self, _topics: list[str], on_assign: Any) -> None:
        self._on_assign = on_assign

    def poll(self, _timeout: float) -> None:
        if self.gets is not None:
            self._on_assign(self, [TopicPartition("t", each) for each in self.gets])

    def incremental_assign(self, partitions: list[Any]) -> None:
        assert not partitions

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + (3).to_bytes(4, "little") + b"g\0member\0\1\0"

    def close(self) -> None:
        self.closed = True


made: list[FakeConsumer] = []


@pytest.fixture(autouse=True)
def committed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def commit(_: GroupOffsets, commits: Any, member: Any) -> dict[Any, Any]:
        assert not made[-1].closed, "only members may commit"
        found.append((list(commits), member.member_id, member.generation_id))
        return {}

    made.clear()
    monkeypatch.setattr(sandbox_offsets, "Consumer", FakeConsumer)
    monkeypatch.setattr(GroupOffsets, "commit", commit)
    return found


@pytest.mark.parametrize("conf", [SETTINGS, NEXT])
def test_a_member_commits_and_leaves(committed: list[Any], conf: dict[str, Any]) -> None:
    assert set_offsets(conf, "g", COMMITS, lambda: False) == {}
    assert committed == [(COMMITS, "member", 3)] and made[0].closed


def test_it_commits_nothing_beside_others(committed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeConsumer, "gets", (1,))
    with pytest.raises(GroupActive):
        set_offsets(SETTINGS, "g", COMMITS, lambda: False)
    assert committed == [] and made[0].closed


def test_it_does_not_keep_a_daemon_from_stopping(
    committed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConsumer, "gets", None)
    with pytest.raises(Unavailable, match="did not let go of group g: try again"):
        set_offsets(SETTINGS, "g", COMMITS, lambda: True)
    assert committed == [] and made[0].closed


@pytest.mark.parametrize(("conf", "limit"), [(SETTINGS, 30.0), (NEXT, 60.0)])
def test_nor_does_it_wait_for_ever(
    conf: dict[str, Any], limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((0.0, limit - 0.1, limit + 0.1))
    monkeypatch.setattr(FakeConsumer, "gets", None)
    monkeypatch.setattr(sandbox_offsets, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with pytest.raises(Unavailable):
        set_offsets(conf, "g", COMMITS, lambda: False)
    assert next(times, None) is None and made[0].closed
