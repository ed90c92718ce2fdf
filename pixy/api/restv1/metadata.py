"""The endpoints of topics, partitions, offsets and brokers."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from pixy.api.restv1 import errors, reads
from pixy.api.restv1.call import Call
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.routes import Route, Routes
from pixy.engine.admin_messages import TopicInfo
from pixy.kafka.topics import PartitionInfo


async def _brokers(call: Call) -> web.StreamResponse:
    return await call.json({"brokers": await call.cluster.brokers()})


async def _topics(call: Call) -> web.StreamResponse:
    found = await call.cluster.topics(with_partitions=False, with_config=False)
    return await call.json([info.name for info in found])


async def _topic(call: Call) -> web.StreamResponse:
    info = await _find(call)
    return await call.json(
        {
            "name": info.name,
            "configs": dict(sorted((info.config or {}).items())),
            "partitions": [_partition_view(part) for part in info.partitions or ()],
        }
    )


async def _partitions(call: Call) -> web.StreamResponse:
    info = await _find(call)
    return await call.json([_partition_view(part) for part in info.partitions or ()])


async def _partition(call: Call) -> web.StreamResponse:
    """Answer with a partition's metadata; with ``offset`` or ``timestamp``, its records (KIP-80)."""
    if reads.wants_records(call):
        return await reads.fetch_many(call)
    number = call.partition
    for part in (await _find(call)).partitions or ():
        if part.partition == number:
            return await call.json(_partition_view(part))
    raise ApiError(errors.PARTITION_NOT_FOUND)


async def _offsets(call: Call) -> web.StreamResponse:
    begin, end = await call.cluster.bounds(call.params["topic"], call.partition)
    return await call.json({"beginning_offset": begin, "end_offset": end})


async def _find(call: Call) -> TopicInfo:
    return await call.cluster.topic(call.params["topic"], with_partitions=True)


def _partition_view(part: PartitionInfo) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "leader": part.leader,
        "replicas": [
            {"broker": broker, "leader": broker == part.leader, "in_sync": broker in part.isr}
            for broker in part.replicas
        ],
    }


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    routes.add(Route("GET", "/brokers", _brokers))
    routes.add(Route("GET", "/topics", _topics))
    routes.add(Route("GET", "/topics/{topic}", _topic))
    routes.add(Route("GET", "/topics/{topic}/partitions", _partitions))
    routes.add(Route("GET", "/topics/{topic}/partitions/{partition}", _partition))
    routes.add(Route("GET", "/topics/{topic}/partitions/{partition}/offsets", _offsets))
