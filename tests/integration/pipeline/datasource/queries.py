"""Run streaming queries to their end, and start them again when Spark gave up the process that reads for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = 120
"""Seconds that a query may take."""

STARTS = 5


def too_slow(error: BaseException) -> bool:
    """Tell whether the query's Python process did not start in time, so that nothing was read.

    Spark 4.0 waits 10 s for it, without a setting: ``PythonWorkerFactory.createSimpleWorker``.
    """
    return "Python worker failed to connect back" in str(error)


def _done(start: Callable[[], Any], wait: Callable[[Any], None]) -> None:
    for left in reversed(range(STARTS)):
        query = start()
        try:
            wait(query)
        except Exception as error:
            if not (left and too_slow(error)):
                raise
        else:
            return
        finally:
            query.stop()


def ended(start: Callable[[], Any]) -> None:
    """Start a query and wait for its end. Raises the query's exception."""

    def wait(query: Any) -> None:
        assert query.awaitTermination(PATIENCE), f"the query goes on after {PATIENCE} s"

    _done(start, wait)


def caught_up(start: Callable[[], Any]) -> None:
    """Start a query and stop it when it has processed all that there is. Raises the query's exception."""
    _done(start, lambda query: query.processAllAvailable())


def error_of(start: Callable[[], Any]) -> str:
    """Start a query that fails; return its error."""
    with pytest.raises(Exception) as caught:
        ended(start)
    return str(caught.value)


def stopped_when(start: Callable[[], Any], check: Callable[[], bool], failure: str) -> None:
    """Start a query and stop it when ``check`` returns True. Raises the query's exception at once."""

    def wait(query: Any) -> None:
        def checked() -> bool:
            if (error := query.exception()) is not None:
                raise error
            return check()

        until(checked, failure)

    _done(start, wait)


def until(check: Callable[[], bool], failure: str) -> None:
    """Wait until ``check`` returns True."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)
