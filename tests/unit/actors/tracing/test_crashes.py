"""Crash reports by fingerprint."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from actors import Actor, Backoff, Intensity, Supervision
from actors.tracing import Crashes, crashes as module
from tests.unit.actors.virtual_time import virtual_system, virtual_time

AGAIN = Supervision(backoff=Backoff(first=0.0001, most=0.0001), intensity=Intensity(restarts=1000))


class Fails(Actor):
    def on_receive(self, message: Any) -> None:
        if message == 1:
            self.one(message)
        raise KeyError("customer Smith")

    def one(self, message: Any) -> None:
        try:
            raise ValueError("secret") from OSError("secret")
        except ValueError as error:
            raise RuntimeError("secret " * 1000) from error


@virtual_time
async def test_failures_are_grouped_counted_and_shown_without_payload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count(1_000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: next(seconds)))
    async with virtual_system() as system:
        with Crashes(system) as crashes:
            for name in ("a", "b"):
                ref = system.spawn(Fails, name=name, supervision=AGAIN)
                for message in (1, 2, 1):
                    ref.tell(message)
            await asyncio.sleep(0.1)
        assert not system.events._subscribers
        reports = crashes.reports()
    text = json.dumps(reports)
    assert "secret" not in text and "customer" not in text
    assert {report["error"]: report["count"] for report in reports} == {
        "RuntimeError": 4,
        "KeyError": 2,
    }
    runtime = next(report for report in reports if report["error"] == "RuntimeError")
    assert runtime["causes"] == ["ValueError", "OSError"] and sorted(runtime["paths"]) == ["/a", "/b"]
    assert runtime["stack"].endswith(" one") and runtime["message"] == "int"
    assert 1_000 <= runtime["first"] < runtime["last"] < 1_006 and runtime["directive"] == "restart"
    assert [header[0] for header in runtime["recent"]][-1] == "int"


@virtual_time
async def test_bounds_and_redaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS", 1)

    def shown(error: BaseException) -> str:
        if isinstance(error, KeyError):
            raise error
        return str(error)

    async with virtual_system() as system:
        with Crashes(system, redact=shown) as crashes:
            ref = system.spawn(Fails, supervision=AGAIN)
            ref.tell(1)
            await asyncio.sleep(0.02)
            (report,) = crashes.reports()
            assert report["shown"].startswith("secret") and len(report["shown"]) < 1100
            ref.tell(2)
            await asyncio.sleep(0.02)
            (report,) = crashes.reports()
            assert report["error"] == "KeyError" and report["shown"] == "redact failed: KeyError"
            assert crashes.forgotten == 1
        crashes.clear()
        assert crashes.reports() == []
