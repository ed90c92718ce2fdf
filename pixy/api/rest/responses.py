"""Read the query and body of a request, and make JSON answers, for all REST endpoints of Kafka-Pixy's own API."""

from __future__ import annotations

from typing import Final, cast

from aiohttp import web

from pixy import errors
from pixy.api import bodies
from pixy.api.edge.answers import Answer
from pixy.api.edge.budget import Share
from pixy.api.rest.render import printable, to_json
from pixy.auth.limits import whole_seconds

SHARE: Final = web.RequestKey("share", Share)
"""The key of the bytes that a request holds."""
SMALL: Final = 1024
"""Bytes of a body that the byte budget does not count: as many as there may be requests hold little together."""
UNKNOWN_TOPIC = "Unknown topic"


class BodyTooLarge(errors.InvalidParameter):
    """The body exceeds the limit and was not read."""

    def __init__(self, size: int | None, limit: int) -> None:
        shown = f"{size} bytes" if size is not None else "more"
        super().__init__(f"message is too large: {shown}, at most {limit} are read")


class PackedBody(errors.InvalidParameter):
    """The body is packed, and its endpoint takes it as it is."""


# The first class that matches decides.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (BodyTooLarge, 413),
    (PackedBody, 415),
    (errors.InvalidParameter, 400),
    (errors.LongPollTimeout, 408),
    (errors.UnknownTopic, 404),
    (errors.TooManyRequests, 429),
    (errors.Unavailable, 503),
    (errors.GroupActive, 409),
    (errors.NotHeld, 409),
    (errors.TopicExists, 409),
    (errors.ChangesForbidden, 403),
)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return 500


def respond(body: bytes, status: int = 200) -> web.Response:
    """Make a JSON response."""
    return Answer(body=body, status=status, headers={"Content-Type": "application/json"})


def respond_error(error: Exception, text: str | None = None) -> web.Response:
    """Make the JSON response to an error.

    Args:
        error: decides the status, and the text unless ``text`` is given.
        text: the text to answer instead.
    """
    response = respond(to_json({"error": printable(text or str(error))}), status_of(error))
    if isinstance(error, BodyTooLarge):
        response.force_close()
    if isinstance(error, errors.Limited):
        response.headers["Retry-After"] = whole_seconds(error)
    return response


EMPTY = to_json({})


def query_of(request: web.BaseRequest) -> bytes:
    """Return the query as it was sent."""
    _, _, query = request.raw_path.partition("?")
    return query.partition("#")[0].encode("utf-8", "surrogateescape")


async def read_body(request: web.BaseRequest, limit: int, failed: str) -> bytes:
    """Read a request's body, up to a limit.

    A body whose declared length exceeds the limit is refused before it is read.

    Args:
        request: the request.
        limit: the most bytes to accept.
        failed: the error text for a body that cannot be read, with ``{}`` for the reason.

    Raises:
        BodyTooLarge: the body is longer than the limit.
        InvalidParameter: the connection broke, or the body is malformed.
    """

    share = request[SHARE]

    def promised(total: int) -> None:
        if total > limit:
            raise BodyTooLarge(request.content_length, limit)

    def grows(total: int) -> None:
        promised(total)
        if total > SMALL and total > share.held:
            share.take(total - share.held)

    try:
        return await bodies.read(request, share, grows, promised)
    except (bodies.UnreadableBody, ConnectionError) as error:
        raise errors.InvalidParameter(failed.format(error)) from error


def is_long(response: web.StreamResponse) -> bool:
    """Return whether an answer is still to be written and is so long that its bytes count."""
    body = getattr(response, "body", None)
    return body is not None and len(body) > SMALL and not response.prepared


def count(request: web.BaseRequest, response: web.Response) -> None:
    """Count an answer, in place of the request's body, until the request gives its share back.

    Args:
        request: has the share, unless nothing is counted.
        response: one with at most :data:`SMALL` bytes does not count.

    Raises:
        OverBudget: there is no room for an answer to a GET. What anything else has done is told.
    """
    share, size = request.get(SHARE), len(response.body or b"")  # type: ignore[arg-type]
    if share is None or size <= SMALL:
        return
    if request.method == "GET":
        share.give_back()
        share.take(size)
    else:
        share.keep(size)


async def write_long(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Write an answer for which :func:`is_long` holds, so that its bytes and its place count until the client has taken it.

    Args:
        request: the one that is answered.
        response: not begun yet.

    Returns:
        The answer; or another one, not written, which says that there is no room for it.
    """
    try:
        count(request, cast(web.Response, response))
    except errors.OverBudget as error:
        return respond_error(error)
    await response.prepare(request)
    await response.write_eof()
    return response


__all__ = [
    "EMPTY",
    "SHARE",
    "SMALL",
    "UNKNOWN_TOPIC",
    "BodyTooLarge",
    "PackedBody",
    "count",
    "is_long",
    "query_of",
    "read_body",
    "respond",
    "respond_error",
    "status_of",
    "write_long",
]
