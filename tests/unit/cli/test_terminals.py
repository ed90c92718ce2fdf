"""What the shell does where a person sits: no bar over what is typed, and Ctrl-C that ends a wait."""

from __future__ import annotations

import io
import sys
from typing import Any

import grpc
import pytest

from pixy.cli.shell import consume, produce
from pixy.cli.shell.errors import EXIT_INTERRUPTED, DaemonGone
from pixy.cli.shell.output import Output
from pixy.cli.shell.progress import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "shown"), [(True, False), (False, True)])
def test_a_bar_erases_nothing_that_is_typed(
    typed: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
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
    with Bar("consuming", messages=3, prints=True) as bar:
        assert bar._progress is not None
        Output(form).document({"value": "Grüße"})
    assert out.buffer.getvalue().decode() == text  # type: ignore[attr-defined]


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
    monkeypatch.setattr("pixy.cli.shell.session.Session.topic", lambda *_: None)
    line = ["t", "-g", "g", "--follow", "--server", "127.0.0.1:1"]
    assert consume.consume.main(line, standalone_mode=False) == EXIT_INTERRUPTED and reader.closed
    assert capsys.readouterr().err == (
        "the last message was not acknowledged, so it comes again: no daemon answers at x\n"
    )
