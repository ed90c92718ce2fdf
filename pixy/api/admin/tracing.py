"""``/trace``: the life of one message, or the messages with a key or header value, as JSON."""

from __future__ import annotations

import base64
from typing import Final

from aiohttp import web

from pixy.api.admin.access import error
from pixy.api.admin.queries import Wrong, in_words, number, offset, text
from pixy.api.rest.responses import status_of
from pixy.config.model import App
from pixy.engine.life.groups import Message
from pixy.engine.life.lives import Lives
from pixy.engine.life.search import Wanted
from pixy.errors import PixyError

_LATEST: Final = 253_402_300_799
"""The last second of the year 9999."""


class Tracing:
    """The handler.

    Args:
        lives: tells lives of messages.
        config: resolves the default cluster.
    """

    def __init__(self, lives: Lives, config: App) -> None:
        self._lives = lives
        self._config = config

    async def trace(self, request: web.Request) -> web.Response:
        """Answer ``topic``, ``partition`` and ``offset``; or ``topic`` and ``key``, ``key_base64`` or ``header`` (``NAME=VALUE``).

        ``cluster``, ``group`` and ``since`` (seconds since 1970) narrow it.
        """
        cluster = self._config.cluster_name(text(request, "cluster"))
        topic = text(request, "topic")
        if not topic:
            raise Wrong("topic is missing")
        since = number(request, "since", -1, 0, _LATEST) if "since" in request.query else None
        partition = number(request, "partition", 0, 0, 2**31 - 1) if "partition" in request.query else None
        try:
            if "offset" in request.query:
                partition = partition or 0
                message = Message(cluster, topic, partition, offset(request))
                story = await self._lives.trace(message, text(request, "group"), since)
                return web.json_response(story.document())
            wanted = _wanted(request)
            return web.json_response(await self._lives.search(cluster, topic, wanted, partition, since))
        except PixyError as problem:
            return error(status_of(problem), in_words(problem, cluster, topic, partition))


def _wanted(request: web.Request) -> Wanted:
    key: bytes | None = None
    if "key" in request.query:
        key = _bytes(text(request, "key"))
    elif "key_base64" in request.query:
        try:
            key = base64.b64decode(text(request, "key_base64"), validate=True)
        except ValueError as problem:  # also binascii.Error
            raise Wrong(f"key_base64 is no base64: {problem}") from None
    if "header" not in request.query:
        return Wanted(key)
    name, equals, value = text(request, "header").partition("=")
    if not equals or not name:
        raise Wrong("header must be NAME=VALUE")
    return Wanted(key, (name, _bytes(value)))


def _bytes(given: str) -> bytes:
    try:
        return given.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Wrong("key and header must be UTF-8") from None


__all__ = ["Tracing"]
