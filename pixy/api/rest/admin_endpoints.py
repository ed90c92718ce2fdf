"""REST endpoints that the original lacks: topics and groups are made, changed and deleted; the state of the daemon."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from pixy import __version__, errors
from pixy.api.bodies import packed
from pixy.api.rest.params import Params
from pixy.api.rest.render import to_json
from pixy.api.rest.responses import (
    EMPTY,
    UNKNOWN_TOPIC,
    PackedBody,
    query_of,
    read_body,
    respond,
    respond_error,
)
from pixy.api.rest.router import Match
from pixy.engine.admin_messages import GroupView
from pixy.engine.cluster_admin import MOST_GROUPS
from pixy.engine.engine import Engine
from pixy.engine.guarded import AnyCluster
from pixy.kafka.topic_changes import NewTopic

B = TypeVar("B", bound=Struct)

_MAX_BODY: Final = 256 * 1024
_NAMED: Final = {"end": -1, "begin": -2}
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]

Endpoint = Callable[[web.BaseRequest, Match, AnyCluster], Awaitable[web.StreamResponse]]


class _NewTopic(Struct, forbid_unknown_fields=True):
    partitions: _Count = 0
    replication_factor: _Count = 0
    config: dict[str, str] = {}


class _Changes(Struct, forbid_unknown_fields=True):
    partitions: _Count = 0
    config: dict[str, str | None] = {}


class AdminEndpoints:
    """The endpoints of topics and groups. Every PixyError that they raise becomes JSON in their caller."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def by_name(self) -> dict[str, Endpoint]:
        """Map the names of :data:`pixy.api.rest.router.ROUTES` to endpoints."""
        return {
            "create_topic": self._create_topic,
            "alter_topic": self._alter_topic,
            "delete_topic": self._delete_topic,
            "positions": self._positions,
            "groups": self._groups,
            "group": self._group,
            "delete_group": self._delete_group,
        }

    async def _create_topic(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        body = await self._body(request, _NewTopic)
        topic = NewTopic(match.topic, body.partitions, body.replication_factor, body.config)
        await cluster.admin.create_topic(topic, validate_only=_validate_only(request))
        return respond(EMPTY, 201)

    async def _alter_topic(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        body = await self._body(request, _Changes)
        try:
            await cluster.admin.alter_topic(
                match.topic,
                {name: value for name, value in body.config.items() if value is not None},
                tuple(name for name, value in body.config.items() if value is None),
                body.partitions,
                validate_only=_validate_only(request),
            )
        except errors.UnknownTopic as error:
            return respond_error(error, UNKNOWN_TOPIC)
        return respond(EMPTY)

    async def _delete_topic(
        self, _request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        try:
            await cluster.admin.delete_topic(match.topic)
        except errors.UnknownTopic as error:
            return respond_error(error, UNKNOWN_TOPIC)
        return respond(EMPTY)

    async def _positions(
        self, request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        text = (Params(query_of(request)).first("time") or b"").decode("utf-8", "replace")
        if text not in _NAMED and not (text.isascii() and text.isdecimal() and len(text) < 18):
            raise errors.InvalidParameter(
                f"bad time: {text[:40]!r} is neither milliseconds since 1970 nor begin nor end"
            )
        try:
            found = await cluster.admin.find_offsets(match.topic, _NAMED.get(text) or int(text))
        except errors.UnknownTopic as error:
            return respond_error(error, UNKNOWN_TOPIC)
        return respond(
            to_json([{"partition": number, "offset": offset} for number, offset in found.offsets.items()])
        )

    async def _groups(
        self, _request: web.BaseRequest, _match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        found = await cluster.admin.groups()
        shown = [{"group": each.name, "state": each.state, "type": each.type} for each in found[:MOST_GROUPS]]
        return respond(to_json({"groups": shown, "truncated": len(found) > MOST_GROUPS}))

    async def _group(
        self, _request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        try:
            found = await cluster.admin.group(match.topic)
        except errors.UnknownGroup as error:
            return _unknown_group(error)
        return respond(to_json(_group_view(found)))

    async def _delete_group(
        self, _request: web.BaseRequest, match: Match, cluster: AnyCluster
    ) -> web.StreamResponse:
        try:
            await cluster.admin.delete_group(match.topic)
        except errors.UnknownGroup as error:
            return _unknown_group(error)
        return respond(EMPTY)

    async def _body(self, request: web.BaseRequest, kind: type[B]) -> B:
        if problem := packed(request):
            raise PackedBody(problem)
        failed = "Failed to read the request: err=({})"
        body = await read_body(request, _MAX_BODY, failed)
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.InvalidParameter(f"Failed to parse the request: err=({error})") from error
        except RecursionError:
            raise errors.InvalidParameter("Failed to parse the request: err=(exceeded max depth)") from None


class StatusEndpoint:
    """The daemon's version, and whether the brokers of its clusters answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def serve(self) -> web.StreamResponse:
        """Answer with the state of the daemon; a cluster that is unreachable has its reason in the answer."""
        clusters: dict[str, Any] = {}
        for name in self._engine.config.proxies:
            try:
                clusters[name] = {"brokers": await self._engine.cluster(name).admin.brokers()}
            except errors.Forbidden:
                continue  # as if there were no such cluster
            except errors.PixyError as error:
                clusters[name] = {"brokers": [], "error": str(error)}
        return respond(
            to_json(
                {
                    "version": __version__,
                    "time": int(time.time() * 1000),
                    "uptime": round(self._engine.uptime, 3),
                    "clusters": clusters,
                }
            )
        )


def _validate_only(request: web.BaseRequest) -> bool:
    return "validateOnly" in Params(query_of(request))


def _unknown_group(error: errors.UnknownGroup) -> web.Response:
    return respond(to_json({"error": str(error)}), 404)


def _group_view(found: GroupView) -> dict[str, Any]:
    members = []
    for each in found.members:
        assigned: dict[str, list[int]] = {}
        for topic, number in sorted(each.assigned):
            assigned.setdefault(topic, []).append(number)
        members.append(
            {"member": each.member_id, "client": each.client_id, "host": each.host, "assigned": assigned}
        )
    offsets = {
        topic: [
            {
                "partition": po.partition,
                "begin": po.begin,
                "end": po.end,
                "offset": po.offset,
                "lag": po.lag,
            }
            for po in each
        ]
        for topic, each in found.offsets.items()
    }
    return {"group": found.group, "state": found.state, "members": members, "offsets": offsets}


__all__ = ["AdminEndpoints", "StatusEndpoint"]
