"""Log records that repeat are summed up."""

from __future__ import annotations

import logging

import pytest

from pixy.cli.logs import configured
from pixy.cli.repeats import Repeats
from pixy.config.model import Logger


class Log:
    """Records through the filter, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.level = ""
        self.repeats = Repeats(lambda: self.now)

    def __call__(self, text: str, *args: object) -> str | None:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, text, args, None)
        if not self.repeats.filter(record):
            return None
        self.level = record.levelname
        return record.getMessage()


def test_a_kind_is_logged_once_a_while_with_the_number_of_those_left_out() -> None:
    log = Log()
    assert log("FAIL %s after %dms", "b1", 7) == "FAIL b1 after 7ms"
    assert log("other") == "other"
    for took in range(100):
        log.now += 0.2
        assert log("FAIL %s after %dms, %d identical error(s) suppressed", "b1", took, 3) is None
    log.now = 31.0
    assert log("FAIL b1 after 12ms") == "FAIL b1 after 12ms [100 more like this since]"
    log.now = 62.0
    assert log("FAIL b1 after 12ms") == "FAIL b1 after 12ms"


LOADING = "GETPID [rdkafka#producer-1] Failed to acquire PID: Broker: Coordinator load in progress: retrying"


def test_what_passes_by_itself_is_a_warning_when_it_has_not_passed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A daemon at a fresh Kafka began with a warning about what nobody has to do anything about."""
    library = logging.getLogger("pixy.kafka.librdkafka")
    with configured([Logger("console", "warning")]):
        library.warning("%s", LOADING)
        library.warning("%s", LOADING.replace("Coordinator load in progress", "Not authorized"))
    shown = capsys.readouterr().out
    assert "Coordinator load" not in shown and "Not authorized" in shown
    log = Log()
    assert [log(LOADING), log(LOADING)] == [LOADING, None] and log.level == "INFO"
    log.now = 31.0
    assert log(LOADING) == f"{LOADING} [1 more like this since]" and log.level == "ERROR"


def test_kinds_are_bounded() -> None:
    log = Log()
    for number in range(5000):
        assert log("x" * number) is not None
    assert len(log.repeats._kinds) <= 1000
