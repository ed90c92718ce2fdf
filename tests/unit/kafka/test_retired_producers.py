"""Producers that were replaced, where the system allows no more threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pixy.kafka.retired_producers import MOST, RetiredProducers


class Old(list[bytes]):
    """Stands for a producer with these messages."""

    def poll(self, _timeout: float) -> int:
        return 0


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse the first two threads, run the others at once, and name them all."""
    names: list[str] = []

    class Limited(threading.Thread):
        def start(self) -> None:
            names.append(self.name)
            if len(names) <= 2:
                raise RuntimeError("can't start new thread")
            self.run()

    monkeypatch.setattr(threading, "Thread", Limited)
    return names


def test_one_that_no_thread_can_destroy_is_destroyed_later(ended: list[str]) -> None:
    retired = RetiredProducers()
    owner: Any = [Old()]
    retired.add(owner)
    retired.poll()
    assert owner and retired and not len(retired)
    retired.poll()
    assert not owner and not retired
    retired.poll()
    assert ended == ["kafka-producer-end"] * 3


def test_so_are_those_that_are_given_up_and_those_that_follow(ended: list[str]) -> None:
    retired = RetiredProducers()
    owners: list[Any] = [[Old([b"%d" % number])] for number in range(MOST + 1)]
    for owner in owners:
        retired.add(owner)
    assert len(ended) == 1 and owners[0] and retired.lost == 1
    owners[1][0].clear()
    retired.poll()
    assert len(ended) == 2 and owners[1] and len(retired) == MOST - 1
    retired.poll()
    assert not owners[0] and not owners[1] and retired.lost == 1
