"""Lines go to their target in order, and what is lost is counted exactly once."""

from __future__ import annotations

import json
import threading
from typing import Any

from pixy.json_lines import JsonLines


class Topic:
    """A target that takes lines, and loses some of them later, as Kafka does."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.counts: list[int] = []
        self.lost = 0
        self.full = False
        self.looked = threading.Event()
        self.wrote = threading.Event()

    def open(self) -> None:
        pass

    def reopen(self) -> None:
        pass

    def write(self, line: bytes, count: int) -> bool:
        if not self.full:
            self.lines.append(json.loads(line))
            self.counts.append(count)
        self.wrote.set()
        return not self.full

    def patience(self) -> float | None:
        return None if self.looked.is_set() else 0.001

    def look(self) -> None:
        self.looked.set()

    def close(self) -> None:
        pass


def put(lines: JsonLines, topic: Topic, name: str) -> None:
    topic.wrote.clear()
    lines.put({"time": 0.0, "name": name})
    assert topic.wrote.wait(60)


def test_what_a_target_loses_later_is_counted_with_the_lines_that_said_so() -> None:
    topic = Topic()
    lines = JsonLines(topic, 10, lambda: 0.0)
    lines.start()
    put(lines, topic, "a")
    topic.lost += topic.counts.pop()
    topic.lines.clear()
    lines.put({"time": 0.0, "name": "b"})
    lines.put({"time": 0.0, "name": "c"})
    lines.stop()
    assert [(line.get("name"), line.get("count")) for line in topic.lines] == [
        (None, 1),
        ("b", None),
        ("c", None),
    ]
    assert topic.counts == [1, 1, 1]


def test_a_count_that_is_lost_is_counted_again() -> None:
    topic = Topic()
    lines = JsonLines(topic, 10, lambda: 0.0)
    for _ in range(5):
        lines.drop()
    lines.start()
    topic.full = True
    put(lines, topic, "a")
    topic.full = False
    lines.stop()
    assert [(line["result"], line["count"]) for line in topic.lines] == [("dropped", 6)]


def test_a_target_that_waits_for_something_is_asked_to_look() -> None:
    topic = Topic()
    lines = JsonLines(topic, 10)
    lines.start()
    assert topic.looked.wait(60)
    lines.stop()
