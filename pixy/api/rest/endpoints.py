"""The original's REST endpoints: parse parameters, ask the engine, render status codes and JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web

from pixy import errors
from pixy.api.batch_handlers import record_headers
from pixy.api.edge.http_input import HttpInput
from pixy.api.handlers import CONFIG_VERSION
from pixy.api.limits import STEP
from pixy.api.propagation import answer_headers, of_request, with_context
from pixy.api.rest import go_json, params
from pixy.api.rest.admin_endpoints import AdminEndpoints, StatusEndpoint
from pixy.api.rest.params import Params
from pixy.api.rest.render import base64_or_none, to_json, to_json_flat_lists
from pixy.api.rest.responses import EMPTY, UNKNOWN_TOPIC, count, query_of, read_body, respond, respond_error
from pixy.api.rest.router import Match
from pixy.engine.admin_messages import TopicInfo
from pixy.engine.engine import Engine
from pixy.engine.guarded import AnyCluster
from pixy.engine.message_spans import MessageSpan
from pixy.wire.types import RecordHeaders

_FORM_GROWTH = 3
_SLACK = 64 * 1024
_CHARACTERS_PER_STEP = 64
_MAX_OFFSETS_BODY = 4 * 1024 * 1024


class Endpoints:
    """The endpoints of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._propagates = engine.config.tracing.propagate
        self._spans = engine.spans
        self._by_name: dict[
            str, Callable[[web.BaseRequest, Match, AnyCluster], Awaitable[web.StreamResponse]]
        ] = {
            "produce": self._produce,
            "consume": self._consume,
            "ack": self._ack,
            "get_offsets": self._get_offsets,
            "set_offsets": self._set_offsets,
            "consumers": self._consumers,
            "topic": self._topic,
            "topics": self._topics,
            **AdminEndpoints(engine).by_name(),
        }
        self._status = StatusEndpoint(engine)

    async def serve(self, request: web.BaseRequest, match: Match) -> web.StreamResponse:
        """Answer a matched request. Every PixyError becomes JSON here."""
        if match.endpoint == "ping":
            return web.Response(body=b"pong", headers={"Content-Type": "text/plain; charset=utf-8"})
        if match.endpoint == "status":
            return await self._status.serve()
        try:
            # The original checks the cluster before any other parameter.
            cluster = self._engine.cluster(match.cluster)
            return await self._by_name[match.endpoint](request, match, cluster)
        except errors.PixyError as error:
            return respond_error(error)

    # -- messages ---------------------------------------------------------------------------------

    async def _produce(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        content_type = request.headers.get("Content-Type", "")
        form = params.is_form(content_type)
        limit = cluster.proxy.producer.max_message_bytes
        # A longer body cannot hold a message of an allowed size, even percent-encoded.
        limit = _FORM_GROWTH * limit + _SLACK if form else 2 * limit
        body = await self._read_body(request, limit)
        found = await _params_of(request, body if form else b"")
        if form:
            value = found.first("msg")
            if not value:
                raise errors.InvalidParameter("empty message")
        elif params.is_message_body(content_type):
            value = body
        else:
            raise errors.InvalidParameter(f"unsupported content type {content_type}")
        headers: RecordHeaders = params.record_headers(request.headers.items())
        key = found.first("key")
        context = of_request(request.headers)
        with self._spans.send(match.cluster, match.topic, context, size=len(value)) as span:
            context = span.carried(context)
            if context and self._propagates:
                headers = with_context(cluster.proxy, key, value, headers, context)
            return await self._produced(match.topic, value, key, headers, "sync" in found, cluster, span)

    async def _produced(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: RecordHeaders,
        sync: bool,
        cluster: AnyCluster,
        span: MessageSpan,
    ) -> web.StreamResponse:
        if not sync:
            # The answer does not depend on the message's fate. Only a message that cannot be accepted, because of a stop,
            # a full buffer or an unknown cluster, is an error.
            try:
                await cluster.produce_async(topic, value, key, headers)
            except errors.HeadersUnsupported:
                pass
            return respond(EMPTY)
        partition, offset = await cluster.produce(topic, value, key, headers)
        span.placed(partition, offset)
        # As the original answers with required_acks: no_response.
        offset = max(offset, 0)
        return respond(b'{\n  "partition": %d,\n  "offset": %d\n}' % (partition, offset))

    async def _consume(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        found = Params(query_of(request))
        group = found.group()
        no_ack = "noAck" in found
        ack = None if no_ack else found.ack("ackPartition", "ackOffset")
        context = of_request(request.headers) if self._spans.on else ()
        span = self._spans.receive(match.cluster, match.topic, group, context)
        delivery = await cluster.consume(match.topic, group, auto_ack=not no_ack and ack is None, ack=ack)
        message = delivery.message
        try:
            headers = await record_headers(cluster, message)
            span.received(delivery.partition, delivery.offset, len(message.value() or b""), headers)
            response = respond(
                to_json(
                    {
                        "key": base64_or_none(message.key()),
                        "value": base64_or_none(message.value()),
                        "partition": delivery.partition,
                        "offset": delivery.offset,
                        "headers": [{"key": name, "value": base64_or_none(value)} for name, value in headers],
                    }
                )
            )
            if headers and self._propagates:
                answer_headers(response.headers, headers)
            count(request, response)
            # Written here rather than by aiohttp after the return: only so it is known whether
            # the client was still there.
            await response.prepare(request)
            await response.write_eof()
        except BaseException:
            delivery.give_back()
            raise
        delivery.sent()
        return response

    async def _ack(self, request: web.BaseRequest, match: Match, cluster: AnyCluster) -> web.StreamResponse:
        found = await self._params(request)
        group = found.group()
        ack = found.ack("partition", "offset")
        if ack is None:
            raise errors.InvalidParameter("partition and offset should be provided")
        context = of_request(request.headers) if self._spans.on else ()
        with self._spans.settle(match.cluster, match.topic, group, context) as span:
            span.placed(*ack)
            await cluster.ack(match.topic, group, *ack)
        return respond(EMPTY)

    # -- offsets and consumers ----------------------------------------------------------------------

    async def _get_offsets(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        group = Params(query_of(request)).group()
        try:
            found = await cluster.get_offsets(match.topic, group)
        except errors.UnknownTopic as error:
            return respond_error(error, UNKNOWN_TOPIC)
        views = []
        for po in found:
            view: dict[str, Any] = {
                "partition": po.partition,
                "begin": po.begin,
                "end": po.end,
                "count": po.count,
                "offset": po.offset,
                "lag": po.lag,
                "metadata": po.metadata,
                "sparse_acks": po.sparse_acks,
            }
            for name in ("metadata", "sparse_acks"):
                if not view[name]:
                    del view[name]
            views.append(view)
        return respond(to_json(views))

    async def _read_body(
        self, request: web.BaseRequest, limit: int, failed: str = "failed to read message: {}"
    ) -> bytes:
        return await read_body(request, limit, failed)

    async def _params(self, request: web.BaseRequest) -> Params:
        if not params.is_form(request.headers.get("Content-Type", "")):
            return Params(query_of(request))
        return Params(query_of(request), await self._read_body(request, _SLACK))

    async def _set_offsets(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        is_form = params.is_form(request.headers.get("Content-Type", ""))
        body = await self._read_body(request, _MAX_OFFSETS_BODY, "Failed to read the request: err=({})")
        group = (await _params_of(request, body if is_form else b"")).group()
        params.check_size(body)
        give_way = cast(HttpInput, request.protocol).take_turn
        # A later element for a partition replaces an earlier one.
        offsets: dict[int, tuple[int, int, str]] = {}
        step = 0
        for element in params.offsets_of(go_json.parse(await go_json.text_of(body, give_way))):
            partition, offset, metadata = params.offset_of(element)
            if len(metadata) > params.LONG:
                metadata = await params.printable_metadata(metadata, give_way)
            offsets[partition] = partition, offset, metadata
            step += 1 + len(metadata) // _CHARACTERS_PER_STEP
            if step >= STEP:
                step = 0
                await give_way()
        try:
            await cluster.set_offsets(match.topic, group, tuple(offsets.values()))
        except errors.UnknownTopic as error:
            return respond_error(error, UNKNOWN_TOPIC)
        return respond(EMPTY)

    async def _consumers(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        group = Params(query_of(request)).group(optional=True)
        found = await cluster.consumers(match.topic, group)
        return respond(
            to_json_flat_lists(
                {group: dict(sorted(clients.items())) for group, clients in sorted(found.items())}
            )
        )

    # -- topics -----------------------------------------------------------------------------------

    async def _topics(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        found = Params(query_of(request))
        with_partitions, with_config = "withPartitions" in found, "withConfig" in found
        infos = await cluster.topics(with_partitions=with_partitions, with_config=with_config)
        if not with_partitions and not with_config:
            return respond(to_json([info.name for info in infos]))
        return respond(to_json({info.name: _topic_view(info) for info in infos}))

    async def _topic(self, request: web.BaseRequest, match: Match, cluster: AnyCluster) -> web.StreamResponse:
        with_partitions = "withPartitions" in Params(query_of(request))
        try:
            info = await cluster.topic(match.topic, with_partitions=with_partitions)
        except errors.UnknownTopic as error:
            return respond_error(error, UNKNOWN_TOPIC)
        return respond(to_json(_topic_view(info)))


async def _params_of(request: web.BaseRequest, form: bytes) -> Params:
    if len(form) <= params.LONG:
        return Params(query_of(request), form)
    return await Params.read(query_of(request), form, cast(HttpInput, request.protocol).take_turn)


def _topic_view(info: TopicInfo) -> dict[str, Any]:
    view: dict[str, Any] = {}
    if info.config is not None:
        view["config"] = {
            "version": CONFIG_VERSION,
            "config": dict(sorted(info.config.items())),
        }
    if info.partitions:
        view["partitions"] = [
            {
                "partition": part.partition,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
            }
            for part in info.partitions
        ]
    return view
