"""Processes of a fresh clone wait for the one that compiles."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import compiling


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(compiling.LOCK, str(tmp_path / "lock"))
    yield
    compiling.done()


@pytest.mark.usefixtures("lock")
def test_the_second_waits_for_the_first() -> None:
    compiling.wait_for_first()
    began, went_on = threading.Event(), threading.Event()

    def second() -> None:
        began.set()
        compiling.wait_for_first()
        went_on.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert began.wait(20) and not went_on.wait(0.05)
    compiling.done()
    thread.join(20)
    assert went_on.is_set()


def test_only_a_fresh_clone_has_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiling.LOCK, "left over")
    monkeypatch.setattr(compiling.sys, "dont_write_bytecode", False)
    config: Any = SimpleNamespace()
    tests = tmp_path / "tests" / "unit" / "wire" / "__pycache__"
    tests.mkdir(parents=True)
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    compiling.begin(config, tmp_path)
    assert compiling.os.environ[compiling.LOCK] == str(tmp_path / "compiling.lock")
    (tests / "test_frames.cpython-311-pytest-9.2.0.pyc").touch()
    compiling.begin(config, tmp_path)
    assert compiling.LOCK not in compiling.os.environ


def test_nobody_waits_where_python_writes_no_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = SimpleNamespace()
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    monkeypatch.setattr(compiling.sys, "dont_write_bytecode", True)
    compiling.begin(config, tmp_path)
    assert compiling.LOCK not in compiling.os.environ
