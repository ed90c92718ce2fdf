"""The audit log: what it has a line for, and that it holds nobody up."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from pixy import json_lines as module
from pixy.auth.audit import AuditLog
from pixy.auth.buckets import REFUSALS
from pixy.auth.principal import ANONYMOUS, Caller, Principal
from pixy.auth.rules import Access
from pixy.config.security import Audit
from pixy.errors import Forbidden, Limited, Unauthenticated

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALLER = Caller(Principal("key:app"), "10.0.0.1:5", TRACE)
ADMIN = Access("admin", "main", "orders", "g")


class Log:
    """An audit log in a file, with a clock that a test moves."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.path = folder / "audit.jsonl"
        self.now = 0.0
        self.drawn = 0.5
        self.log = AuditLog(
            Audit(str(self.path), **settings),
            None,
            lambda: 1_900_000_000.25,
            lambda: self.now,
            lambda: self.drawn,
        )

    def lines(self) -> list[dict[str, Any]]:
        self.log.stop()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def test_a_line_says_who_did_what_and_what_came_of_it(tmp_path: Path) -> None:
    found = Log(tmp_path)
    found.log.start()
    found.log.done(CALLER, ADMIN, 0.0123456, None)
    found.log.done(CALLER, Access("describe", "main"), 1.0, Forbidden("no"))
    found.log.refused(CALLER, ADMIN, Forbidden("key:app may not"))
    found.log.unauthenticated("10.0.0.2:1", "", Unauthenticated("the token has expired", "expired"))
    who = {"principal": "key:app", "address": "10.0.0.1:5", "trace": TRACE}
    what = {"verb": "admin", "cluster": "main", "topic": "orders", "group": "g"}
    at = {"time": "2030-03-17T17:46:40.250Z"}
    assert found.lines() == [
        {**at, **who, **what, "result": "ok", "ms": 12.346},
        {
            **at,
            **who,
            "result": "Forbidden",
            "verb": "describe",
            "cluster": "main",
            "ms": 1000.0,
            "error": "no",
        },
        {**at, **who, **what, "result": "Forbidden", "error": "key:app may not"},
        {
            **at,
            "result": "Unauthenticated",
            "address": "10.0.0.2:1",
            "reason": "expired",
            "error": "the token has expired",
        },
    ]
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("settings", "drawn", "wanted"),
    [
        ({}, 0.0, {"admin"}),
        ({"verbs": ["produce"]}, 0.0, {"produce"}),
        ({"verbs": ["*"]}, 1.0, {"admin", "produce"}),
        ({"verbs": [], "sample": 0.1}, 0.05, {"admin", "produce"}),
        ({"verbs": [], "sample": 0.1}, 0.1, set()),
        ({"verbs": [], "sample": 1.0}, 0.999, {"admin", "produce"}),
    ],
)
def test_which_operations_have_a_line(
    tmp_path: Path, settings: dict[str, Any], drawn: float, wanted: set[str]
) -> None:
    found = Log(tmp_path, **settings)
    found.drawn = drawn
    assert {verb for verb in ("admin", "produce") if found.log.wants(verb)} == wanted


def test_what_does_not_fit_is_dropped_and_counted(tmp_path: Path) -> None:
    found = Log(tmp_path, max_queued=3)
    for _ in range(10):
        found.log.done(CALLER, ADMIN, 0.0, None)  # nobody writes yet
    found.log.start()
    lines = found.lines()
    assert [line["result"] for line in lines] == ["dropped", "ok", "ok", "ok"]
    assert lines[0]["count"] == 7


def test_strangers_do_not_fill_the_disk(tmp_path: Path) -> None:
    found = Log(tmp_path, max_queued=100_000)
    for number in range(5000):
        found.now = number / 1000  # a thousand a second
        found.log.unauthenticated("a", "", Unauthenticated("no"))
        found.log.refused(CALLER, ADMIN, Limited("too much"))
        found.log.refused(CALLER, ADMIN, Forbidden("no right"))
    found.log.done(CALLER, ADMIN, 0.0, None)
    found.log.start()
    lines = found.lines()
    kept = sum(line["result"] in ("Unauthenticated", "Limited", "Forbidden") for line in lines)
    assert kept <= 2 * (REFUSALS * 6 + 1)
    assert lines[0] == {"time": lines[0]["time"], "result": "dropped", "count": 15_000 - kept}
    assert lines[-1]["result"] == "ok", "what was permitted has its line"


def test_strangers_do_not_hide_what_a_known_caller_is_refused(tmp_path: Path) -> None:
    found = Log(tmp_path, max_queued=100_000)
    for _ in range(5000):
        found.log.unauthenticated("a", "", Unauthenticated("no"))
        found.log.refused(Caller(ANONYMOUS), ADMIN, Forbidden("no right"))
    found.log.refused(CALLER, ADMIN, Forbidden("no right"))
    found.log.start()
    lines = found.lines()
    assert lines[-1]["principal"] == CALLER.principal.name and len(lines) <= REFUSALS + 2


def test_a_renamed_file_is_left_and_a_new_one_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, write, written = Log(tmp_path), os.write, threading.Event()

    def observed(file: int, data: bytes) -> int:
        count = write(file, data)
        written.set()
        return count

    monkeypatch.setattr(module.os, "write", observed)
    found.log.start()
    found.log.done(CALLER, ADMIN, 0.0, None)
    assert written.wait(60)
    found.path.rename(tmp_path / "old")
    found.log.reopen()
    found.log.done(CALLER, ADMIN, 0.0, None)
    assert len(found.lines()) == 1
    assert len((tmp_path / "old").read_text().splitlines()) == 1


def test_a_disk_that_takes_nothing_costs_records_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found, write, full = Log(tmp_path), os.write, threading.Event()
    full.set()
    refused = threading.Event()

    def written(file: int, data: bytes) -> int:
        if full.is_set() and file == getattr(found.log._outputs[0].target, "_file", None):
            refused.set()
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(module.os, "write", written)
    found.log.start()
    found.log.done(CALLER, ADMIN, 0.0, None)
    assert refused.wait(60)
    full.clear()
    found.log.done(CALLER, ADMIN, 0.0, None)
    results = [(line["result"], line.get("count")) for line in found.lines()]
    assert results == [("dropped", 1), ("ok", None)]
    assert caplog.text.count("No space left on device") == 1


@pytest.mark.parametrize(
    "trace",
    ["x", "00-abc-def-01", TRACE.upper(), TRACE + "-x", "ff" + TRACE[2:], f"00-{'0' * 32}-{'1' * 16}-01"],
)
def test_what_is_no_traceparent_is_left_out(tmp_path: Path, trace: str) -> None:
    found = Log(tmp_path)
    found.log.start()
    found.log.done(Caller(Principal("key:app"), "a", trace), ADMIN, 0.0, None)
    found.log.unauthenticated("a", trace, Unauthenticated("no", "no"))
    found.log.unauthenticated("a", TRACE, Unauthenticated("no", "no"))
    assert [line.get("trace") for line in found.lines()] == [None, None, TRACE]


def test_text_of_clients_is_ascii_in_the_file(tmp_path: Path) -> None:
    found = Log(tmp_path)
    found.log.start()
    found.log.refused(
        Caller(Principal("jwt:\u202eevil")), Access("admin", "a\nb", "\udcff"), Forbidden("\x1b[31m")
    )
    assert len(found.lines()) == 1
    assert found.path.read_text().isascii() and "\x1b" not in found.path.read_text()
