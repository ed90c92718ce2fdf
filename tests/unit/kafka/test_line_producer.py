"""Lines for Kafka while there is none: bounded, counted, and nobody waits."""

from __future__ import annotations

import time

import pytest

from pixy.config import Kafka, Proxy
from pixy.kafka import settings
from pixy.kafka.line_producer import LineProducer
from tests.kafka.cluster import free_port


@pytest.mark.slow
def test_lines_for_kafka_that_is_down_are_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    proxy = Proxy(kafka=Kafka(seed_peers=[f"127.0.0.1:{free_port()}"]))
    lines = LineProducer(settings.lines(proxy, 1.0, 3), "audit", "audit.topic")
    lines.open()
    assert [lines.write(b"{}", count) for count in (1, 10, 100, 1, 1)] == [True, True, True, False, False]
    assert caplog.text.count("audit.topic: audit: the client's queue is full; records are dropped") == 1
    while (wait := lines.patience()) is not None:  # until message.timeout.ms is over, as JsonLines waits
        time.sleep(wait)
        lines.look()
    assert lines.lost == 111
    lines.close()
