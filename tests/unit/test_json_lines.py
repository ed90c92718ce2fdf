"""Lines go to their target in order, and what is lost is counted exactly once."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pixy import json_lines
from pixy.json_lines import File, JsonLines


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


class Disk:
    """What ``os.write`` writes to: a disk with some bytes left, and None for as many as there are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self._write = os.write
        monkeypatch.setattr(json_lines.os, "write", self.write)

    def write(self, file: int, data: bytes) -> int:
        if self.left is None:
            return self._write(file, data)
        fits = data[: self.left]
        self.left -= len(fits)
        if not fits:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(file, fits)


def opened(path: Path) -> File:
    file = File(str(path), "audit.path")
    file.open()
    return file


def test_the_line_after_a_full_disk_is_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk = tmp_path / "log", Disk(monkeypatch)
    file = opened(path)
    assert file.write(b"first", 1)
    disk.left = 3
    assert not file.write(b"second", 1) and not file.write(b"third", 1)
    disk.left = 0
    assert not file.write(b"fourth", 1)
    disk.left = None
    assert file.write(b"fifth", 1) and file.write(b"sixth", 1)
    file.close()
    assert path.read_bytes() == b"first\nsec\nfifth\nsixth\n"


def test_a_disk_that_was_full_between_two_lines_leaves_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk = tmp_path / "log", Disk(monkeypatch)
    file = opened(path)
    disk.left = 0
    assert not file.write(b"lost", 1)
    disk.left = None
    assert file.write(b"first", 1)
    disk.left = 0
    assert not file.write(b"lost", 1)
    disk.left = None
    assert file.write(b"second", 1)
    file.close()
    assert path.read_bytes() == b"first\nsecond\n"


def test_what_another_process_has_left_of_a_line_spoils_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk = tmp_path / "log", Disk(monkeypatch)
    path.write_bytes(b"an earlier daemon's")
    one, other = opened(path), opened(path)
    assert other.write(b"first", 1)
    disk.left = 3
    assert not one.write(b"second", 1) and not other.write(b"third", 1)
    disk.left = None
    assert other.write(b"fourth", 1) and one.write(b"fifth", 1)
    one.close()
    other.close()
    assert path.read_bytes() == b"an earlier daemon's\nfirst\nsec\nfourth\nfifth\n"


def test_a_count_that_a_full_disk_has_cut_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk, refused = tmp_path / "log", Disk(monkeypatch), threading.Event()
    lines = JsonLines(File(str(path), "audit.path"), 10, lambda: 0.0)
    monkeypatch.setattr(json_lines.logger, "error", lambda *_: refused.set())
    lines.drop()
    lines.put({"time": 0.0, "result": "lost"})
    disk.left = 20  # a part of the count
    lines.start()
    assert refused.wait(60)
    disk.left = None
    lines.put({"time": 0.0, "result": "ok"})
    lines.stop()
    cut, *whole = path.read_text().splitlines()
    told = [json.loads(line) for line in whole]
    missing = sum(line["result"] == "lost" for line in told)
    assert len(cut) == 20 and told[-1]["result"] == "ok"
    assert sum(line.get("count", 0) for line in told) == 2 - missing


@pytest.mark.timeout(30)
def test_a_fifo_that_nobody_reads_is_an_error_and_one_with_a_reader_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    with pytest.raises(OSError, match="a FIFO that nobody reads"):
        opened(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = opened(path)
    assert file.write(b"first", 1) and os.read(reader, 100) == b"first\n"
    assert os.get_blocking(file._file), "what a slow reader has no room for waits in the thread"
    os.close(reader)
    assert not file.write(b"second", 1)
    file.close()


@pytest.mark.timeout(30)
def test_a_stalled_reader_of_a_fifo_costs_records_and_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    lines = JsonLines(File(str(path), "audit.path"), 10, lambda: 0.0)
    lines.start()
    for _ in range(200):
        lines.put({"time": 0.0, "text": "x" * 4000})
    assert lines._dropped > 0
    os.close(reader)  # ends the wait of the thread
    lines.stop()
