"""Ctrl-C and SIGTERM while the reader of the output does not read: a full pipe took two of them, or all."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pixy.cli import streams
from pixy.cli.shell import app, interrupts
from pixy.cli.shell.consume import _Loop
from pixy.cli.shell.message_format import Message
from pixy.cli.shell.output import Output
from pixy.cli.shell.progress import Bar
from tests.unit.cli.produce_daemon import Daemon, write
from tests.unit.cli.test_consume import Script, Session

pytestmark = pytest.mark.usefixtures("signals")


@pytest.fixture
def full_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes standard output a pipe that is full. In the end its reader goes: a program that waits for him fails, and does not hang."""
    monkeypatch.setattr(interrupts, "PATIENCE", 0.01)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    out = open(writer, "w", encoding="utf-8")  # noqa: SIM115
    used: list[Any] = [out]
    over = threading.Event()

    def go() -> None:
        over.wait(10)
        os.close(reader)

    def use() -> None:  # in the test itself: pytest has its own standard output before
        monkeypatch.setattr(sys, "stdout", out)
        streams.prepare()
        used.append(sys.stdout)

    reading = threading.Thread(target=go)
    reading.start()
    yield use
    over.set()
    reading.join()
    for each in reversed(used):
        with contextlib.suppress(OSError):
            each.close()


class Struck(Message):
    """A message at which a signal comes while it is printed."""

    def view(self) -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        return {"value": "m"}


def shape(_message: Message) -> bytes:
    signal.raise_signal(signal.SIGINT)
    return b"m\n"


class Late(Script):
    """A signal comes together with the message."""

    def next(self) -> Message | None:
        found = super().next()
        signal.raise_signal(signal.SIGINT)
        return found


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("kind", [Script, Late])
def test_a_message_that_nobody_reads_is_not_acknowledged(
    kind: type[Script], structured: bool, full_pipe: Callable[[], None]
) -> None:
    full_pipe()
    reader = kind((Struck if kind is Script else Message)("foo", 0, 7, None, b"m", (), 0))
    session = Session()
    session.out = Output("json" if structured else "table")
    form = shape if kind is Script else lambda _message: b"m\n"
    reading = _Loop(session, lambda: reader, form, Bar("consuming", prints=True))  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        reading.run(0, follow=True, until_end=False)
    assert reader.acknowledged == []
    sys.stdout.flush()  # as at the end of the program


def test_produce_says_what_is_written(full_pipe: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    full_pipe()
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    daemon = Daemon(answers={1: signal.SIGINT})
    daemon.out = Output("json")
    assert write(daemon, [b"a", b"b"], most=1) == 130
    assert said.getvalue() == "interrupted: 1 message written to foo; go on with --skip 1\n"
    sys.stdout.flush()


def test_a_command_ends_at_the_first_signal(full_pipe: Callable[[], None]) -> None:
    """Its buffer was written out once more at the end."""
    full_pipe()
    striking = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    striking.start()
    assert app.run(["version"]) == 130
    striking.join()
    assert streams.stuck() is None


def test_so_does_a_program_beside_the_shell(full_pipe: Callable[[], None]) -> None:
    def program() -> int:
        sys.stdout.write("x")
        raise KeyboardInterrupt

    full_pipe()
    with pytest.raises(KeyboardInterrupt):
        streams.guarded(program, ["config"])
    assert streams.stuck() is None


def test_what_is_read_is_not_given_up(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> int:
        sys.stdout.write("x")
        raise KeyboardInterrupt

    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        streams.prepare()
        with pytest.raises(KeyboardInterrupt):
            streams.guarded(program, ["config"])
        sys.stdout.flush()
    assert (tmp_path / "out").read_text() == "x"
