"""Text of others, shown to people."""

from __future__ import annotations

import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given, strategies as st

from pixy.cli.logs import ConsoleFormatter, JsonFormatter, SyslogFormatter
from pixy.escaping import escaped

EVIL = "a\x1b[2J\r\n2026-01-01 info forged\x9b31m\x7f\u202e\u2028\ud800[/nope]"


@given(st.text())
def test_nothing_in_it_commands_a_terminal(text: str) -> None:
    shown = escaped(text)
    assert not [
        c
        for c in shown
        if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE")
    ]
    shown.encode()
    assert escaped(shown) == shown


@given(st.recursive(st.none() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_a_json_document_keeps_its_meaning(document: object) -> None:
    assert json.loads(escaped(json.dumps(document, ensure_ascii=False))) == document


def test_plain_text_stays() -> None:
    text = "Grüße, 世界 🎉 \\n <b>"
    assert escaped(text) == text and escaped("a\nb\tc\r", keep="\n\t") == "a\nb\tc\\r"


@pytest.mark.parametrize("made", [ConsoleFormatter, JsonFormatter, SyslogFormatter])
def test_a_log_record_is_one_line_without_commands(made: type[logging.Formatter]) -> None:
    for template in ("/service/" + EVIL.replace("\r\n", "") + ": %s", "%s"):
        record = logging.LogRecord("x", logging.INFO, "f", 1, template, (EVIL,), None)
        record.fields = {"a.b": EVIL}
        line = made().format(record)
        assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028" for c in line), line
        line.encode()


@pytest.mark.parametrize("made", [ConsoleFormatter, SyslogFormatter])
def test_a_traceback_forges_no_line(made: type[logging.Formatter]) -> None:
    try:
        # Tests of Ctrl-C inside a handler leave its exception behind as the handled one: it would be the context of this one.
        raise ValueError(EVIL) from None
    except ValueError:
        record = logging.LogRecord("x", logging.INFO, "f", 1, "failed", (), sys.exc_info())
    lines = made().format(record).split("\n")
    assert not [line for line in lines[1:] if not line.startswith("  ")]
    assert "\x1b" not in "".join(lines) and "ValueError" in "".join(lines)
