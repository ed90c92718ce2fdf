"""The tables of ``kafka-pixy pipeline``: nothing in them is cut."""

from __future__ import annotations

import argparse
import re

import pytest

from pixy.cli.pipeline_common import report

ROW = {
    "topic": "orders",
    "group": "billing",
    **dict.fromkeys(("offered", "acked", "retried", "dead_letters", "lost", "unknown"), 1_234_567),
    "duplicates_unexplained": 0,
    "out_of_order": 12,
}


@pytest.mark.parametrize("terminal", [False, True])
def test_a_wide_table_is_not_cut(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of an audit had `retri…` and `duplic…` in 80 columns, piped as well."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    assert report(argparse.Namespace(json=False, command="audit"), {"groups": [ROW, ROW]}) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.splitlines()]
    first, second = (line for line in lines if line.startswith("orders"))
    assert first == second and first.split() == ["orders", "billing", *["1,234,567"] * 6, "0", "12"]
    if terminal:
        assert len(first) == 101 and {"unexplained", "duplicates", "retried"} <= set(" ".join(lines).split())
    else:
        title, heading, *_ = lines
        assert title == "groups"
        assert heading.split() == " ".join(ROW).replace("_", " ").split()
        assert len(lines) == 4 and len(first) == len(heading)
