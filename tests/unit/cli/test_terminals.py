"""What the shell does where a person sits: no bar over what is typed, and Ctrl-C that ends a wait."""

from __future__ import annotations

import io
import sys
from typing import Any

import grpc
import pytest

from pixy.cli.shell import consume, produce
from pixy.cli.shell.errors import EXIT_INTERRUPTED, DaemonGone
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
