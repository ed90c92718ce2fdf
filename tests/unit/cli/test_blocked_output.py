"""Ctrl-C and SIGTERM while the reader of the output does not read: a full pipe took two of them, or all."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pixy.cli import streams
from pixy.cli.shell import app, interrupts
from pixy.cli.shell.consume import _Loop
from pixy.cli.shell.message_format import Message
from pixy.cli.shell.output import Output, note
from pixy.cli.shell.progress import Bar
from tests.unit.cli.produce_daemon import Daemon, write
from tests.unit.cli.test_consume import Script, Session

pytestmark = pytest.mark.usefixtures("signals")


@pytest.fixture
def full_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes standard output or error a pipe that is full. In the end its reader goes: a program that waits for him fails, and does not hang."""
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

    def use(name: str = "stdout") -> None:  # in the test itself: pytest has its own standard output before
        monkeypatch.setattr(sys, name, out)
        if name == "stdout":
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


# -- standard error ---------------------------------------------------------------------------------


def test_a_remark_that_nobody_reads_ends_at_the_first_signal(full_pipe: Callable[..., None]) -> None:
    """``consume --follow`` waited in it for ever where signals are deferred, as in its reader."""
    full_pipe("stderr")
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():
        signal.raise_signal(signal.SIGINT)
        note("the daemon is back")
    note("what is said later goes nowhere")
    interrupts.handled()


def test_a_command_whose_remarks_nobody_reads_ends_at_the_first_signal(
    full_pipe: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its remark was written out once more at the end, and took a second one."""

    def command(_: Any) -> int:
        striking.start()
        note("offset -: nothing is committed")
        return 0

    full_pipe("stderr")
    monkeypatch.setattr(app.ROOT, "invoke", command)
    striking = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    assert app.run(["version"]) == 130
    striking.join()
    sys.stderr.flush()  # as at the interpreter's end


def test_so_does_its_error_line(full_pipe: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def struck(text: str, **_: Any) -> str:
        striking.start()
        return text

    full_pipe("stderr")
    monkeypatch.setattr(app, "escaped", struck)
    striking = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        streams.guarded(lambda: app.run(["nonsense"]), ["nonsense"])
    striking.join()
    sys.stderr.flush()


def test_a_remark_that_is_read_is_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "err").open("w") as err:
        monkeypatch.setattr(sys, "stderr", err)
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            note("all is well")
        interrupts.handled()
        note("still")
    assert (tmp_path / "err").read_text() == "all is well\nstill\n"


def test_an_event_loop_does_not_wait_for_a_reader(full_pipe: Callable[..., None]) -> None:
    """The tap's first lines held up its loop, where no signal was seen any more."""
    full_pipe("stderr")
    striking = threading.Timer(5, os.kill, (os.getpid(), signal.SIGINT))
    striking.start()
    try:
        streams.remark("127.0.0.1:19093 -> 127.0.0.1:9092")
    except KeyboardInterrupt:
        pytest.fail("it waits for a reader")
    finally:
        striking.cancel()
        striking.join()


def test_what_a_loop_says_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    streams.remark("127.0.0.1:19093 -> 127.0.0.1:9092")
    assert capsys.readouterr().err == "127.0.0.1:19093 -> 127.0.0.1:9092\n"


# -- the caller's alarm -----------------------------------------------------------------------------


def exit_code_of(program: str) -> int:
    """Run a program in a process of its own; return its exit code, or minus the signal that has ended it.

    Not in a fork of this process: gRPC starts threads in those, and one of them may take the signal.
    """
    watching = "import signal\nfrom pixy.cli.shell import interrupts\nremembered = interrupts.remembered()\nremembered.__enter__()\n"
    return subprocess.run([sys.executable, "-c", watching + program], timeout=60, check=False).returncode


PRINTED = """
with interrupts.printing():
    signal.raise_signal(signal.SIGINT)
interrupts.handled()
"""
ALARMED = "signal.raise_signal(signal.SIGALRM)\nraise SystemExit(7)\n"


@pytest.mark.parametrize("before", ["", PRINTED], ids=["silent", "printed"])
def test_an_alarm_of_the_caller_ends_a_command(before: str) -> None:
    """``timeout -s ALRM 2 kafka-pixy consume foo --follow`` went on for ever."""
    assert exit_code_of(before + ALARMED) == -signal.SIGALRM


def test_the_caller_s_alarm_is_put_back() -> None:
    """An alarm survives exec: ``perl -e 'alarm 10; exec @ARGV' kafka-pixy consume foo --follow``. Printing deleted it."""
    signal.setitimer(signal.ITIMER_REAL, 1000)
    with interrupts.printing():
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    with interrupts.printing():
        signal.raise_signal(signal.SIGINT)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= interrupts.PATIENCE
    interrupts.handled()
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    signal.setitimer(signal.ITIMER_REAL, 0)


LATE = """
interrupts.PATIENCE = 0.001
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
interrupts._alarm.set()
while signal.SIGALRM not in signal.sigpending():
    pass
interrupts._alarm.cancel()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
raise SystemExit(7)
"""


def test_an_alarm_that_rings_while_it_is_put_off_is_not_the_caller_s() -> None:
    assert exit_code_of(LATE) == 7
