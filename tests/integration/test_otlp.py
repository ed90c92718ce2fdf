"""Spans of messages arrive at an OpenTelemetry collector: OTLP, protobuf over HTTP, from a daemon on a real Kafka."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from pixy.config import App
from pixy.proto import kafkapixy_pb2 as pb
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving

TRACE = "0af7651916cd43dd8448eb211c80319c"


def parent(span: str, flags: str = "01", trace: str = TRACE) -> str:
    return f"00-{trace}-{span}-{flags}"


class Collector:
    """Takes spans."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.tokens: set[str] = set()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert request.content_type == "application/x-protobuf"
        self.tokens.add(request.headers.get("Authorization", ""))
        for each in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({one.key: one.value.string_value for one in each.resource.attributes})
            for scope in each.scope_spans:
                self.spans += scope.spans
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    def named(self, name: str) -> list[Span]:
        return sorted(
            (each for each in self.spans if each.name == name), key=lambda each: each.start_time_unix_nano
        )

    async def names(self) -> list[str]:
        return sorted(each.name for each in self.spans)


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", collector.take)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    try:
        yield collector
    finally:
        await runner.cleanup()


def config(kafka: Cluster, url: str, sample: float = 0.0) -> App:
    made = make_config(kafka.bootstrap())
    made.proxies["default"].client_id = "daemon-1"
    export = made.tracing.export
    export.endpoint, export.sample, export.token = url, sample, "sesame"
    export.every = 0.1  # type: ignore[assignment]
    return made


def facts(span: Span) -> dict[str, Any]:
    return {
        each.key.removeprefix("messaging."): getattr(each.value, str(each.value.WhichOneof("value")))
        for each in span.attributes
    }


async def test_send_receive_and_ack_are_spans_of_the_clients_traces(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name)
    async with collecting() as collector:
        async with serving(config(kafka, collector.url)) as daemon:
            sent = (("traceparent", parent("b7ad6b7169203331")), ("tracestate", "a=1"))
            await daemon.stub.Produce(pb.ProdRq(topic=topic, message=b"value"), metadata=sent)
            unsampled = (("traceparent", parent("b7ad6b7169203332", "00")),)
            await daemon.stub.Produce(pb.ProdRq(topic=topic, message=b"value"), metadata=unsampled)
            await daemon.stub.Produce(pb.ProdRq(topic=topic, message=b"value"))
            batch = pb.ProdManyRq(topic=topic, records=[pb.Record(value=b"a"), pb.Record(value=b"b")])
            await daemon.stub.ProduceMany(batch, metadata=(("traceparent", parent("b7ad6b7169203333")),))
            other = parent("c7ad6b7169203331", trace="1" * 32)
            request = pb.ConsNAckRq(topic=topic, group="g", no_ack=True)
            first = await daemon.stub.ConsumeNAck(request, metadata=(("traceparent", other),))
            second = await daemon.stub.ConsumeNAck(request)
            path = f"/topics/{topic}/acks?group=g&partition=0&offset=0"
            await daemon.post(path, headers={"traceparent": other})
            await daemon.post(f"/topics/{topic}/acks?group=g&partition=0&offset=1")
            refused = await daemon.post(
                f"/topics/{topic}/acks?group=g&partition=0&offset=77", headers={"traceparent": other}
            )
            assert refused.status == 400
            await eventually(collector.names, lambda names: len(names) >= 5)
        # The rest came with the stop.
        assert await collector.names() == [
            f"ack {topic}", f"ack {topic}", f"receive {topic}", f"send {topic}", f"send {topic}",
        ]  # fmt: skip
        assert collector.tokens == {"Bearer sesame"}
        assert all(each["service.name"] == "kafka-pixy" for each in collector.resources)

        single, many = collector.named(f"send {topic}")
        assert (single.trace_id.hex(), single.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
        assert single.kind == Span.SPAN_KIND_PRODUCER and single.trace_state == "a=1"
        assert single.start_time_unix_nano < single.end_time_unix_nano
        assert facts(single) == {
            "system": "kafka", "operation.type": "send", "operation.name": "send", "destination.name": topic,
            "client.id": "daemon-1", "message.body.size": 5, "destination.partition.id": "0", "kafka.offset": 0,
        }  # fmt: skip
        assert facts(many)["batch.message_count"] == 2
        stored = {each.key: each.value for each in first.headers}
        assert stored == {"traceparent": parent(single.span_id.hex()).encode(), "tracestate": b"a=1"}
        assert {each.key: each.value for each in second.headers}["traceparent"].endswith(b"32-00")

        [received] = collector.named(f"receive {topic}")
        assert (received.trace_id.hex(), received.parent_span_id.hex()) == ("1" * 32, "c7ad6b7169203331")
        assert [each.span_id for each in received.links] == [single.span_id]
        assert received.kind == Span.SPAN_KIND_CLIENT
        assert facts(received)["consumer.group.name"] == "g" and facts(received)["kafka.offset"] == 0
        acked, wrong = collector.named(f"ack {topic}")
        assert facts(acked)["operation.type"] == "settle" and not acked.status.code
        assert facts(wrong)["error.type"] == "NeverOffered"


async def test_a_consumer_without_a_trace_joins_that_of_the_message(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name)
    async with collecting() as collector:
        async with serving(config(kafka, collector.url, sample=1.0)) as daemon:
            await daemon.post(f"/topics/{topic}/messages?sync", b"m", headers={"Content-Type": "text/plain"})
            found = await daemon.get(f"/topics/{topic}/messages?group=g")
            assert found.status == 200
        [sent] = collector.named(f"send {topic}")
        [received] = collector.named(f"receive {topic}")
        assert not sent.parent_span_id, "it begins a trace: the share of those is 1"
        assert (received.trace_id, received.parent_span_id) == (sent.trace_id, sent.span_id)


async def test_the_actors_that_a_request_passes_are_spans_of_its_trace_too(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name)
    async with collecting() as collector:
        settings = config(kafka, collector.url)
        settings.diagnostics.trace = True
        async with serving(settings) as daemon:
            sent = (("traceparent", parent("b7ad6b7169203331")),)
            await daemon.stub.Produce(pb.ProdRq(topic=topic, message=b"value"), metadata=sent)
            await eventually(collector.names, lambda names: "TopicProducer Produce" in names)
        [handled] = collector.named("TopicProducer Produce")
        assert (handled.trace_id.hex(), handled.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")


async def test_a_collector_that_is_away_holds_nothing_up(kafka: Cluster, name: str, caplog: Any) -> None:
    topic = kafka.create_topic(name)
    settings = config(kafka, "http://127.0.0.1:9/v1/traces", sample=1.0)
    settings.tracing.export.timeout = 0.5  # type: ignore[assignment]
    settings.tracing.export.queue = 2
    async with serving(settings) as daemon:
        for _ in range(20):
            await daemon.produce(topic, b"m")
        spans: Any = daemon.engine.spans

        async def lost() -> int:
            return int(spans.lost)

        await eventually(lost, lambda count: count > 0)
    assert caplog.text.count("spans are lost:") <= 2
