"""Spans wait in a bounded queue for a thread that sends them; a slow or broken collector costs spans and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from pixy.config.model import Export
from pixy.engine.otel_spans import SpanQueue


class Exporter(SpanExporter):
    """Takes batches while its gate is open."""

    def __init__(self, result: Any = SpanExportResult.SUCCESS) -> None:
        self.gate = threading.Event()
        self.took = threading.Event()
        self.batches: list[list[Any]] = []
        self.result = result

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self.batches.append(list(spans))
        self.took.set()
        assert self.gate.wait(30)
        if isinstance(self.result, Exception):
            raise self.result
        return cast(SpanExportResult, self.result)

    def shutdown(self) -> None:
        self.gate.set()


def made(exporter: Exporter, queue: int = 5, batch: int = 3) -> SpanQueue:
    return SpanQueue(exporter, Export(endpoint="http://x", queue=queue, batch=batch, every=cast(Any, 60.0)))


def put(queue: SpanQueue, *spans: Any) -> None:
    for each in spans:
        queue.on_end(each)


def test_a_full_batch_goes_at_once_and_what_finds_no_room_is_counted() -> None:
    exporter = Exporter()
    queue = made(exporter)
    put(queue, 1, 2, 3)
    assert exporter.took.wait(30), "it waits for neither `every` nor the end"
    put(queue, *range(4, 12))
    assert queue.dropped == 3
    exporter.gate.set()
    queue.shutdown()
    assert queue.join(30)
    assert [each for batch in exporter.batches for each in batch] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(map(len, exporter.batches)) == 3


def test_the_end_sends_what_waits_and_does_not_wait_for_ever() -> None:
    exporter = Exporter()
    queue = made(exporter)
    put(queue, 1)
    queue.shutdown()
    assert exporter.took.wait(30) and not queue.join(0.01)
    exporter.gate.set()
    assert exporter.batches == [[1]]


@pytest.mark.parametrize("result", [SpanExportResult.FAILURE, OSError("no collector")])
def test_what_the_collector_does_not_take_is_counted_and_said_once(result: Any, caplog: Any) -> None:
    exporter = Exporter(result)
    exporter.gate.set()
    queue = made(exporter)
    put(queue, 1, 2, 3, 4)
    queue.shutdown()
    assert queue.join(30) and queue.refused == 4
    assert caplog.text.count("spans are lost") == 1
