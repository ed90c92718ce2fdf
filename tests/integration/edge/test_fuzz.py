"""A short form of ``make fuzz``."""

from __future__ import annotations

import logging

import pytest

from pixy.config import App
from tests.effort import seeds
from tests.fuzz.edge import Finding, attack, judge
from tests.support import Daemon, eventually, serving


async def connections(daemon: Daemon) -> int:
    found = daemon.engine.system.lookup("/service/rest")
    assert found is not None
    return int(found._cell.actor._edge.book.open)  # type: ignore[attr-defined]


async def test_made_up_bytes_cause_no_error_and_leave_no_connection(
    config: App, caplog: pytest.LogCaptureFixture
) -> None:
    config.connections.header_timeout = config.connections.idle_timeout = config.body_timeout = 1.0
    config.diagnostics.blocked_loop = 0  # that is time by the clock, also of others on this machine
    async with serving(config) as daemon:
        for seed in seeds(8):
            await attack(daemon.engine.addresses, seed)
        await eventually(lambda: connections(daemon), lambda count: count == 0)
    bad = [
        f"{record.getMessage()} {record.exc_info}"
        for record in caplog.records
        if record.levelno >= logging.ERROR
    ]
    assert not bad, bad


def test_a_server_error_is_a_finding() -> None:
    judge(b"HTTP/1.1 404 Not Found\r\n\r\nHTTP/1.1 503 Service Unavailable\r\n\r\n")
    with pytest.raises(Finding, match="status 500"):
        judge(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 Internal Server Error\r\n\r\n")
