"""What the daemon's log has of its actors: their names, and their failures, but no answers to requests."""

from __future__ import annotations

import logging

import pytest

from pixy.cli.logs import ConsoleFormatter, configured
from pixy.config.model import Logger
from pixy.errors import ShuttingDown

RETURNED = "Exception returned from Cluster to caller:"


def test_an_error_that_answers_a_request_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """While a daemon stopped, each request left one of 17 lines."""
    runtime = logging.getLogger("pykka")
    with configured([Logger("console", "debug")]):
        for error in (ShuttingDown(), ValueError("our own")):
            runtime.info(RETURNED, exc_info=(type(error), error, None))
        error = ShuttingDown()
        runtime.error("failed", exc_info=(type(error), error, None))
    shown = capsys.readouterr().out
    assert shown.count(RETURNED) == 1 and "our own" in shown and '"failed"' in shown
    assert not runtime.filters


@pytest.mark.parametrize(
    ("path", "message"),
    [("/service/main/my group", "%s: %s"), ("/service/main/a: b", "%s: %s"), ("/service/main/g", "%s %s")],
)
def test_an_actor_s_name_is_whole(path: str, message: str) -> None:
    record = logging.LogRecord("pixy", logging.INFO, "f", 1, message, (path, "joined: 2 topics"), None)
    assert ConsoleFormatter().format(record).endswith(f'info <{path}> "joined: 2 topics"')
