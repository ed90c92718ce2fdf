"""Heartbeats without an answer, counted from what librdkafka logs."""

from __future__ import annotations

import logging

import pytest

from pixy.kafka.heartbeat_log import HeartbeatLog

LINE = "[thrd:GroupCoordinator]: GroupCoordinator/3: Timed out {} in flight (after 1001ms, timeout #0)"


def test_heartbeats_are_counted_and_every_line_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    log = HeartbeatLog(logging.getLogger("pixy.kafka.librdkafka"))
    with caplog.at_level(logging.INFO):
        for facility, request in (
            ("REQTMOUT", "ConsumerGroupHeartbeatRequest"),
            ("REQTMOUT", "OffsetCommitRequest"),
            ("FAIL", "ConsumerGroupHeartbeatRequest"),
        ):
            log.log(logging.INFO, "%s [%s] %s", facility, "d3#consumer-7", LINE.format(request))
    assert log.unanswered == 1
    assert [each.getMessage()[:24] for each in caplog.records] == [
        "REQTMOUT [d3#consumer-7]",
        "REQTMOUT [d3#consumer-7]",
        "FAIL [d3#consumer-7] [th",
    ]
