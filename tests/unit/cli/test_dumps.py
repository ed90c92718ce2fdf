"""SIGUSR1: the dump is made in slices, one at a time, and what there is of it is logged if the daemon ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from pixy.cli import dumps
from pixy.cli.dumps import Dumps


def blocks(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.getMessage(), getattr(record, "block", "")) for record in caplog.records]


async def test_the_loop_turns_while_a_dump_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pixy")
    monkeypatch.setattr(dumps, "SLICE", 0.0)
    turns: list[int] = []
    made: list[int] = []

    def lines() -> Iterator[str | None]:
        for number in range(5):
            turns.append(turned)
            yield None
            yield f"line {number}"
        made.append(1)

    turned = 0
    asked = Dumps(lines)
    asked.request()
    asked.request()
    while not made:
        turned += 1
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(set(turns)) == 5, "a turn of the loop or more between two lines"
    assert blocks(caplog) == [
        ("dump (SIGUSR1): one is being made already", ""),
        ("dump (SIGUSR1)", "line 0\nline 1\nline 2\nline 3\nline 4"),
    ]
    asked.request()
    await asyncio.sleep(0)
    assert len(turns) == 6, "the next one begins"
    assert asked._dumping is not None
    asked._dumping.cancel()
    await asyncio.wait([asked._dumping])
    assert blocks(caplog)[-1] == ("dump (SIGUSR1), only its beginning", "")
