"""The endpoints of consumer instances: KIP-80's paths, and those of the v1 and v2 REST proxies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

from pixy.api.restv1 import bodies, errors
from pixy.api.restv1.call import Call
from pixy.api.restv1.consumer_bodies import (
    commit_request,
    partitions_request,
    positions_request,
    subscription_request,
)
from pixy.api.restv1.consumer_options import parse_options
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.negotiation import Format
from pixy.api.restv1.reads import render
from pixy.api.restv1.routes import Route, Routes
from pixy.engine.instances.context import BEGINNING, END
from pixy.engine.instances.messages import (
    AssignPartitions,
    CommitOffsets,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetCommitted,
    GetSubscription,
    InstanceRequest,
    Progress,
    ReadRecords,
    SeekTo,
    SubscribeTo,
    Unsubscribe,
)
from pixy.engine.topic_names import check_topic
from pixy.kafka.consumer import Commit
from pixy.kafka.settings import group_id

_RECORD_COST = 200

R = TypeVar("R")

Answer = Callable[[Call, bytes], Awaitable[web.StreamResponse]]


# -- an instance's life ---------------------------------------------------------------------------


async def _create(call: Call) -> web.StreamResponse:
    group = group_id(call.params["group"])
    body = await call.body()
    name, spec = parse_options(body, call.cluster.proxy.instances)
    if call.peers.owner(group, name) is not None:
        call.cluster.instances.check_group(group)
    forwarded = await call.peers.forward(call.request, group, name, body, creates=True)
    if forwarded is not None:
        return forwarded
    made = await call.cluster.instances.create(group, call.peers.own_name(group, name), spec)
    uri = call.peers.base_uri(call.request, group, made)
    return await call.json({"id": made, "url": uri, "instance_id": made, "base_uri": uri})


def _of_instance(answer: Answer, *, own: bool = False) -> Callable[[Call], Awaitable[web.StreamResponse]]:
    """Return a handler that answers if this daemon owns the instance, and else forwards to its owner.

    Args:
        answer: answers.
        own: whether the request needs no right but the instance.
    """

    async def handler(call: Call) -> web.StreamResponse:
        body = await call.body()
        params = call.params
        if not own and call.peers.owner(params["group"], params["instance"]) is not None:
            call.cluster.instances.check_group(params["group"])
        forwarded = await call.peers.forward(call.request, params["group"], params["instance"], body)
        if forwarded is not None:
            return forwarded
        # Before the body is read: a client that finds its instance gone makes another.
        await call.cluster.instances.find(params["group"], params["instance"])
        return await answer(call, body)

    return handler


async def _ask(call: Call, request: InstanceRequest[R]) -> R:
    return await call.cluster.instances.ask(call.params["group"], call.params["instance"], request)


async def _delete(call: Call, _body: bytes) -> web.StreamResponse:
    await _ask(call, DeleteInstance())
    return call.nothing()


# -- reading --------------------------------------------------------------------------------------


async def _read_topic(call: Call, _body: bytes) -> web.StreamResponse:
    topic = call.params.get("topic", "offsets")  # /consumers/{group}/{instance}/offsets names that topic
    check_topic(topic)
    return await _read(call, topic)


async def _records(call: Call, _body: bytes) -> web.StreamResponse:
    return await _read(call, None)


async def _read(call: Call, topic: str | None) -> web.StreamResponse:
    config = call.config
    # Half of the limit is for keys and values, half for the JSON around them.
    most = max(1, config.max_response_bytes // 2)
    max_bytes = call.integer("max_bytes", -1, least=-1)
    timeout = call.integer("timeout", -1, least=-1)
    assert max_bytes is not None and timeout is not None
    request = ReadRecords(
        max_bytes=min(config.read_max_bytes if max_bytes < 0 else max_bytes, most),
        most=max(1, most // _RECORD_COST),
        format=call.negotiated.response_format,
        topic=topic,
        wait=None if timeout < 0 else timeout / 1000,
    )
    batch = await call.cluster.instances.read(call.params["group"], call.params["instance"], request)
    call.deliver(batch)
    records = batch.records
    embedded: Format = "json" if batch.format == "json" else "binary"
    # Taken only now, so that waiting reads hold nothing. Records that do not fit are given back.
    size = batch.size * 4 // 3 + _RECORD_COST * len(records)
    call.share.take(size)
    call.share.hold_more(size)  # the records beside their JSON text, until it is made
    body = await render(call, records, embedded)
    return await call.answer(body, content_type=call.negotiated.records_type(embedded))


# -- offsets --------------------------------------------------------------------------------------


async def _commit(call: Call, body: bytes) -> web.StreamResponse:
    asked = commit_request(body)
    if asked:
        # The client names the last record it has processed; the committed offset is the next one.
        await _ask(
            call,
            CommitOffsets(
                tuple(
                    Commit(each.topic, each.partition, each.offset + 1, each.metadata or "") for each in asked
                )
            ),
        )
        rows: Progress = []
    else:
        rows = await _ask(call, CommitPositions())
    if call.negotiated.api == "v2" or asked:
        return call.nothing() if call.config.commit_status == 204 else await call.json([])
    return await call.json(
        [
            {"topic": topic, "partition": partition, "consumed": consumed, "committed": committed}
            for (topic, partition), consumed, committed in rows
        ]
    )


async def _committed(call: Call, body: bytes) -> web.StreamResponse:
    if bodies.is_empty(body):
        raise ApiError(errors.PARTITION_NOT_FOUND)
    wanted = partitions_request(body)
    found = await _ask(call, GetCommitted(wanted)) if wanted else {}
    return await call.json(
        {
            "offsets": [
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": found[topic, partition].offset,
                    "metadata": found[topic, partition].metadata,
                }
                for topic, partition in wanted
                if found[topic, partition].offset is not None
            ]
        }
    )


async def _seek(call: Call, body: bytes) -> web.StreamResponse:
    wanted = positions_request(body)
    if wanted.offsets or wanted.timestamps:
        await _ask(
            call,
            SeekTo(
                {(each.topic, each.partition): each.offset for each in wanted.offsets},
                {(each.topic, each.partition): each.milliseconds for each in wanted.timestamps},
            ),
        )
    return call.nothing()


def _seek_to(where: int) -> Answer:
    async def answer(call: Call, body: bytes) -> web.StreamResponse:
        wanted = partitions_request(body)
        if wanted:
            await _ask(call, SeekTo({}, dict.fromkeys(wanted, where)))
        return call.nothing()

    return answer


# -- subscriptions and assignments ----------------------------------------------------------------


async def _subscribe(call: Call, body: bytes) -> web.StreamResponse:
    wanted = subscription_request(body)
    if not wanted.topics and not wanted.topic_pattern:
        await _ask(call, Unsubscribe())
        return call.nothing()
    for topic in wanted.topics or ():
        check_topic(topic)
    await _ask(call, SubscribeTo(tuple(wanted.topics or ()), wanted.topic_pattern or ""))
    return call.nothing()


async def _get_subscription(call: Call, _body: bytes) -> web.StreamResponse:
    return await call.json({"topics": await _ask(call, GetSubscription())})


async def _unsubscribe(call: Call, _body: bytes) -> web.StreamResponse:
    await _ask(call, Unsubscribe())
    return call.nothing()


async def _assign(call: Call, body: bytes) -> web.StreamResponse:
    wanted = partitions_request(body)
    for topic, _ in wanted:
        check_topic(topic)
    await _ask(call, AssignPartitions(wanted))
    return call.nothing()


async def _get_assignment(call: Call, _body: bytes) -> web.StreamResponse:
    return await call.json(
        {
            "partitions": [
                {"topic": topic, "partition": partition}
                for topic, partition in await _ask(call, GetAssignment())
            ]
        }
    )


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    routes.add(Route("POST", "/consumers/{group}", _create, reads_body=True))
    instance = "/consumers/{group}/instances/{instance}"
    short = "/consumers/{group}/{instance}"
    read = _of_instance(_read_topic)
    routes.add(Route("GET", f"{instance}/topics/{{topic}}", read, answers="records"))
    routes.add(Route("GET", f"{short}/{{topic}}", read, answers="records"))
    routes.add(Route("GET", f"{short}/offsets", read, answers="records"))
    for path in (instance, short):
        routes.add(Route("DELETE", path, _of_instance(_delete, own=True)))
        routes.add(Route("POST", f"{path}/offsets", _of_instance(_commit), reads_body=True))
    routes.add(Route("GET", f"{instance}/records", _of_instance(_records), answers="records", only="v2"))
    for method, path, answer in (
        ("GET", "offsets", _committed),
        ("POST", "subscription", _subscribe),
        ("GET", "subscription", _get_subscription),
        ("DELETE", "subscription", _unsubscribe),
        ("POST", "assignments", _assign),
        ("GET", "assignments", _get_assignment),
        ("POST", "positions", _seek),
        ("POST", "positions/beginning", _seek_to(BEGINNING)),
        ("POST", "positions/end", _seek_to(END)),
    ):
        routes.add(
            Route(
                method,
                f"{instance}/{path}",
                _of_instance(answer, own=answer in (_get_subscription, _unsubscribe, _get_assignment)),
                only="v2",
                reads_body=method == "POST",
            )
        )
