"""The tap's response times arrive at an OpenTelemetry collector as histograms, and a collector that is away costs nothing."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pixy.cli.tap_flags import make_config, make_parser
from pixy.errors import ConfigError
from pixy.tap.latency import BOUNDS
from pixy.tap.otlp import QUEUES, RESPONSES, LatencyExport
from tests.unit.tap.stage import Stage


async def test_response_times_are_histograms_of_api_and_broker() -> None:
    taken: list[ExportMetricsServiceRequest] = []
    changes: list[bool] = []
    status = 200

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if status == 200:
            taken.append(ExportMetricsServiceRequest.FromString(body))
        return web.Response(status=status)

    app = web.Application()
    app.add_routes([web.post("/v1/metrics", take)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stage = Stage()
    client = stage.client("app")

    async def ask() -> list[Any]:
        return stage.observer.latency.timings()

    export = LatencyExport(f"http://127.0.0.1:{runner.addresses[0][1]}/v1/metrics", ask, changes.append)
    try:
        for seconds in (0.003, 0.3, 60.0):
            asked = client.ask("Metadata", 12, {"Topics": []})
            stage.now += seconds
            client.answer(asked, {"Topics": []})
        client.tally()
        await export.send()
        status = 400
        await export.send()
        await export.send()
        status = 200
        await export.send()
    finally:
        await export.close()
        await runner.cleanup()
    assert changes == [False, True], "each change is told once"
    (resource,) = taken[0].resource_metrics
    assert "kafka-pixy-tap" in {each.value.string_value for each in resource.resource.attributes}
    found = {each.name: each for each in resource.scope_metrics[0].metrics}
    (point,) = found[RESPONSES].histogram.data_points
    assert {each.key: each.value.string_value or each.value.int_value for each in point.attributes} == {
        "api": "Metadata",
        "server.address": "kafka",
        "server.port": 9092,
    }
    assert point.count == 3 and point.sum == pytest.approx(60.303) and not point.HasField("max")
    assert tuple(point.explicit_bounds) == BOUNDS and len(point.bucket_counts) == len(BOUNDS) + 1
    assert point.bucket_counts[-1] == 1, "the open bucket"
    assert found[RESPONSES].unit == "s" and found[QUEUES].histogram.data_points[0].count == 3
    assert taken[-1].resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0].count == 3


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector/v1", "http://", "http://h:x/"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--otlp"):
        make_config(make_parser().parse_args(["--broker", "kafka:9092", "--otlp", url]))
