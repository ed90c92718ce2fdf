"""The lines of the log for lost asynchronous messages are bounded."""

from __future__ import annotations

import logging

import pytest

from pixy.engine.produce.loss_log import MOST, SPAN, LossLog


def test_a_flood_of_losses_is_told_by_twenty_lines_and_the_number_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 5.0
    log = LossLog("/p", lambda: now)
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            log.lost("t", ValueError("too large"))
        assert caplog.messages == ["t: an asynchronous message is lost: too large"] * MOST + [
            f"/p: losses in the next {SPAN:.0f} s are only counted"
        ]
        caplog.clear()
        now += SPAN
        log.lost("t", ValueError("no such topic"))
        log.lost("t", ValueError("no such topic"))
    assert caplog.messages == [
        f"/p: {1000 - MOST} more asynchronous messages were lost",
        *["t: an asynchronous message is lost: no such topic"] * 2,
    ]


def test_what_was_only_counted_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    log = LossLog("/p", lambda: 5.0)
    with caplog.at_level(logging.ERROR):
        for _ in range(30):
            log.lost("t", ValueError("too large"))
        caplog.clear()
        log.tell()
        log.tell()
    assert caplog.messages == ["/p: 10 more asynchronous messages were lost"]
