"""The endpoints that read a partition by offset, without a consumer instance or a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from aiohttp import web
from msgspec import UNSET

from pixy.api.limits import STEP
from pixy.api.restv1 import errors
from pixy.api.restv1.call import Call, to_integer
from pixy.api.restv1.embedded import (
    RecordView,
    UnreadableHeaders,
    encode_records,
    encoded_size,
    record_view,
)
from pixy.api.restv1.errors import ApiError
from pixy.api.restv1.negotiation import Format
from pixy.api.restv1.routes import Route, Routes
from pixy.engine.consume.long_polls import Message
from pixy.kafka.fetcher import Read

_ONE = 1
_MANY = 10_000
_MAX_BYTES = 1_048_576
_BYTES_PER_STEP = 512
"""As many bytes of a record take as long as a header."""
_NUMBER = re.compile(r"[+-]?[0-9]+\Z")


def wants_records(call: Call) -> bool:
    """Return whether a request to a partition's path asks for records rather than metadata."""
    return "offset" in call.query or "timestamp" in call.query


async def fetch_many(call: Call) -> web.StreamResponse:
    """Answer with the records from an offset or a time on, up to ``count`` and ``max_bytes``."""
    return await _fetch(call, _MANY)


async def _fetch_one(call: Call) -> web.StreamResponse:
    return await _fetch(call, _ONE)


async def _fetch(call: Call, count: int) -> web.StreamResponse:
    read = _read(call, count)
    found = await call.cluster.fetch(read)
    embedded = call.negotiated.response_format or "binary"
    size = sum(map(encoded_size, found))
    call.share.take(size)
    call.share.hold_more(size)  # the records beside their JSON text, until it is made
    body = await render(call, found, embedded)
    return await call.answer(body, content_type=call.negotiated.records_type(embedded))


async def render(call: Call, found: Sequence[Message], embedded: Format) -> bytes:
    """Return the JSON document of these messages, made step by step.

    Args:
        call: the request.
        found: the messages, in their order.
        embedded: the format of keys and values.
    """
    try:
        return await _render(call, found, embedded, False)
    except UnreadableHeaders:
        await call.cluster.read_headers(found)
        return await _render(call, found, embedded, True)


async def _render(call: Call, found: Sequence[Message], embedded: Format, lenient: bool) -> bytes:
    parts: list[bytes] = []
    views: list[RecordView] = []
    step = 0
    for message in found:
        view = record_view(message, embedded, lenient=lenient)
        views.append(view)
        step += 1 + (0 if view.headers is UNSET else len(view.headers)) + len(message) // _BYTES_PER_STEP
        if step >= STEP:
            parts += (b",", encode_records(views)[1:-1])
            views, step = [], 0
            await call.give_way()
    if not parts:
        return encode_records(views)
    if views:
        parts += (b",", encode_records(views)[1:-1])
    parts[0] = b"["
    parts.append(b"]")
    return b"".join(parts)


def _read(call: Call, count: int) -> Read:
    query, config = call.query, call.config
    if ("offset" in query) == ("timestamp" in query):
        raise ApiError(errors.INVALID, "exactly one of offset and timestamp must be given")
    timeout = call.integer("timeout", round(config.fetch_timeout * 1000))
    max_bytes = call.integer("max_bytes", _MAX_BYTES)
    most = call.integer("count", count, least=1)
    assert timeout is not None and max_bytes is not None and most is not None
    return Read(
        topic=call.params["topic"],
        partition=call.partition,
        offset=to_integer(query["offset"], "offset") if "offset" in query else None,
        timestamp=to_timestamp(query["timestamp"]) if "timestamp" in query else None,
        most=min(most, _MANY),
        max_bytes=min(max_bytes, config.max_response_bytes),
        timeout=min(timeout / 1000, config.max_fetch_timeout),
    )


def to_timestamp(text: str) -> int:
    """Convert milliseconds since 1970, or ISO 8601 (UTC without a zone), to milliseconds. Raises ApiError (422)."""
    if _NUMBER.match(text):
        return to_integer(text, "timestamp", most=2**53)
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))  # an unescaped + arrives as a blank
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        at = round(found.timestamp() * 1000)
    except (ValueError, OverflowError):
        at = -1
    if at < 0:
        raise ApiError(
            errors.INVALID,
            f"timestamp: {text[:40]!r} is neither milliseconds since 1970 nor a time as in ISO 8601",
        )
    return at


def add_routes(routes: Routes) -> None:
    """Add the routes of this module."""
    partition = "/topics/{topic}/partitions/{partition}"
    routes.add(Route("GET", f"{partition}/messages", _fetch_one, answers="records"))
    routes.add(Route("GET", f"{partition}/records", fetch_many, answers="records"))
    # The path of KIP-80's example.
    routes.add(Route("GET", "/consume/{topic}/partitions/{partition}", fetch_many, answers="records"))
