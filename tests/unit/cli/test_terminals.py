"""What the shell does where a person sits: no bar over what is typed, and Ctrl-C that ends a wait."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import grpc
import pytest

from pixy.cli.shell import consume, produce
from pixy.cli.shell.errors import EXIT_INTERRUPTED, DaemonGone
from pixy.cli.shell.output import Output, table
from pixy.cli.shell.progress import Bar
from tests.in_process import run_in_process


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "shown"), [(True, False), (False, True)])
def test_a_bar_erases_nothing_that_is_typed(
    typed: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert (Bar("producing", typed=typed)._progress is not None) is shown
    assert produce._is_typed(Terminal() if typed else io.BytesIO()) is typed and not produce._is_typed([b""])


@pytest.mark.parametrize(
    ("form", "text"), [("json", '{"value": "Grüße"}\n'), ("yaml", "---\nvalue: Grüße\n")]
)
def test_messages_go_to_standard_output_while_a_bar_is_shown(
    form: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went to the bar's terminal, and were acknowledged; YAML was a traceback."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Bar("consuming", messages=3, prints=True) as bar:
        assert bar._progress is not None
        Output(form).document({"value": "Grüße"})
    assert out.buffer.getvalue().decode() == text  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("term", "columns", "shown"),
    [("xterm", "80", True), ("dumb", "80", False), ("unknown", "80", False), ("xterm", "20", False)],
)
def test_a_bar_is_for_terminals_that_can_show_one(
    term: str, columns: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dumb terminal cannot erase: it got an empty line at the end."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", columns)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar("producing", size=100) as bar:
        bar.update(1, 50)
    assert bool(terminal.getvalue()) is shown, terminal.getvalue()


GROUPS = [("payments-europe-production-v2", "Stable", 12), ("b", "Empty", 2000)]
WIDE = "group                          state    lag\n"
ROWS = "payments-europe-production-v2  Stable    12\nb                              Empty   2000\n"
COLOURED = ROWS.replace("  12", "\x1b[33m  12\x1b[0m").replace("2000", "\x1b[31m2000\x1b[0m")


@pytest.mark.parametrize("columns", ["20", "43", "80"])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_narrow_terminal_cuts_neither_names_nor_numbers(
    term: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 20 columns only halves of numbers were left. A dumb terminal gets no escape sequences."""

    def program() -> int:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        table(("group", "state", "lag"), GROUPS)
        return 0

    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("NO_COLOR", raising=False)
    done = run_in_process(program)
    assert (done.returncode, done.stderr) == (0, b"")
    head, _, rows = done.stdout.decode().partition("\n")
    assert re.sub("\x1b.*?m", "", head) == WIDE.rstrip("\n")
    assert rows == (ROWS if term == "dumb" else COLOURED)
    assert ("\x1b" in head) is (term == "xterm")


def test_long_texts_are_broken_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = "cleanup.policy=compact,retention.ms=86400000"

    def program() -> int:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        table(("topic", "partitions", "settings"), [("orders", 4, settings)])
        return 0

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("rich.console.Console.is_dumb_terminal", False)  # rich has 80 columns for those
    lines = run_in_process(program).stdout.decode().splitlines()[1:]
    lines = [re.sub("\x1b.*?m", "", line) for line in lines]
    assert lines[0].startswith("orders           4  cleanup.policy=")
    assert "".join(line.split()[-1] for line in lines) == settings and len(lines) == 3


class Gone:
    """A reader whose daemon has gone."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True
        raise DaemonGone(grpc.StatusCode.UNAVAILABLE, "no daemon answers at x")


def test_ctrl_c_while_the_daemon_is_away_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(loop: Any, *_: Any, **__: Any) -> int:
        loop.reader = loop._open()
        raise KeyboardInterrupt

    reader = Gone()
    monkeypatch.setattr(consume, "GroupReader", lambda *_, **__: reader)
    monkeypatch.setattr(consume._Loop, "run", interrupted)
    monkeypatch.setattr("pixy.cli.shell.session.Session.topic", lambda *_, **__: None)
    line = ["t", "-g", "g", "--follow", "--server", "127.0.0.1:1"]
    assert consume.consume.main(line, standalone_mode=False) == EXIT_INTERRUPTED and reader.closed
    assert capsys.readouterr().err == (
        "the last message was not acknowledged, so it comes again: no daemon answers at x\n"
    )


def test_a_group_s_name_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 67 characters was, at 80 columns."""
    name = "g" * 90

    def program() -> int:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        table(("group", "state", "type"), [(name, "Empty", "classic")])
        return 0

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert run_in_process(program).stdout.decode().splitlines()[1] == f"{name}  Empty  classic"
