"""Log records that repeat are summed up."""

from __future__ import annotations

import logging

from pixy.cli.repeats import Repeats


class Log:
    """Records through the filter, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.repeats = Repeats(lambda: self.now)

    def __call__(self, text: str, *args: object) -> str | None:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, text, args, None)
        return record.getMessage() if self.repeats.filter(record) else None


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


def test_kinds_are_bounded() -> None:
    log = Log()
    for number in range(5000):
        assert log("x" * number) is not None
    assert len(log.repeats._kinds) <= 1000
