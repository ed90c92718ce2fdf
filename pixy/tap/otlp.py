"""Send the response times to an OpenTelemetry collector (OTLP over HTTP). Needs the extra ``otel``.

The observer has counted them in buckets already, so they are handed to the exporter as they are, without OpenTelemetry's own
instruments. Totals are sent: what a collector did not take is in the next ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram as HistogramData,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from actors import ActorDeadError, ActorError, Timeout
from pixy import __version__
from pixy.tap.latency import Timing

SCOPE: Final = "kafka-pixy-tap"
RESPONSES, QUEUES = "kafka_tap.response.duration", "kafka_tap.queue.duration"
_TEXTS: Final = {
    RESPONSES: "Time that the broker took to respond; of Fetch with the wait for records.",
    QUEUES: "Time for which requests and their responses waited inside the tap.",
}
_TIMEOUT: Final = 5.0
"""Seconds in which a collector must take what is sent, repeated attempts included."""


class LatencyExport:
    """Sends response times by API and broker, and the times inside the tap by API.

    Args:
        endpoint: the collector's URL, ``http://host:4318/v1/metrics``. Headers, certificates and compression come from
            OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_HEADERS``).
        ask: returns the times.
        on_change: is called with True if a collector has taken what was sent, with False if not, when that changes.
    """

    def __init__(
        self, endpoint: str, ask: Callable[[], Awaitable[list[Timing]]], on_change: Callable[[bool], None]
    ) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # on_change says it once
        self._exporter = OTLPMetricExporter(endpoint, timeout=_TIMEOUT)
        self._ask, self._on_change = ask, on_change
        self._resource = Resource.create({"service.name": SCOPE, "service.version": __version__})
        self._began = time.time_ns()
        self._taken = True

    async def run(self, interval: float) -> None:
        """Send each ``interval`` seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(interval)
            await self.send()

    async def send(self) -> None:
        """Send once. The loop does not wait for the collector."""
        try:
            timings = await self._ask()
        except (ActorDeadError, ActorError, Timeout):
            return  # the observer is behind or stopping: the next time has it all
        taken = await asyncio.to_thread(self._export, self.data(timings, time.time_ns()))
        if taken is not self._taken:
            self._taken = taken
            self._on_change(taken)

    def _export(self, data: MetricsData) -> bool:
        try:
            return self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception:  # such as a URL that the HTTP client does not take
            return False

    async def close(self) -> None:
        """Send what has come since, unless the collector does not take it, and end."""
        if self._taken:
            await self.send()
        await asyncio.to_thread(self._exporter.shutdown)

    def data(self, timings: list[Timing], now: int) -> MetricsData:
        """Return what is sent.

        Args:
            timings: the times.
            now: nanoseconds since the epoch.
        """
        points: dict[str, list[HistogramDataPoint]] = {RESPONSES: [], QUEUES: []}
        for each in timings:
            points[RESPONSES if each.broker else QUEUES].append(self._point(each, now))
        metrics = [
            Metric(name, _TEXTS[name], "s", HistogramData(found, AggregationTemporality.CUMULATIVE))
            for name, found in points.items()
            if found
        ]
        scope = ScopeMetrics(InstrumentationScope(SCOPE, __version__), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _point(self, timing: Timing, now: int) -> HistogramDataPoint:
        attributes: dict[str, str | int] = {"api": timing.api}
        if timing.broker:
            host, _, port = timing.broker.rpartition(":")
            attributes |= {"server.address": host.strip("[]"), "server.port": int(port)}
        return HistogramDataPoint(
            attributes,
            self._began,
            now,
            sum(timing.buckets),
            timing.seconds,
            timing.buckets,
            timing.bounds,
            None,  # type: ignore[arg-type]  # the least and the greatest are not known; both are optional in OTLP
            None,  # type: ignore[arg-type]
        )


__all__ = ["QUEUES", "RESPONSES", "LatencyExport"]
