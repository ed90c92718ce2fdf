"""A request being answered: everything its handler needs, in one object."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from pixy.api.edge.answers import Answer
from pixy.api.edge.budget import Share
from pixy.api.edge.pace import Pace
from pixy.api.limits import MOST_PARAMETERS
from pixy.api.restv1 import bodies, errors
from pixy.api.restv1.errors import ApiError, ErrorKind
from pixy.api.restv1.negotiation import MOST, Negotiated
from pixy.api.restv1.peers import Peers
from pixy.api.restv1.routes import Match
from pixy.config.model import Rest
from pixy.engine import shares
from pixy.engine.engine import Engine
from pixy.engine.guarded import AnyCluster

T = TypeVar("T")

_GZIP_FROM = 1024
_GZIP_ON_LOOP = 64 * 1024
_GZIP_LEVEL = 1


class Delivery(Protocol):
    """The content of an answer that has to hear whether the answer has reached the client."""

    def sent(self) -> None:
        """Hear that the answer was written."""

    def give_back(self) -> None:
        """Hear that the answer was not written."""


class Call:
    """A request and its context.

    Attributes:
        request: aiohttp's.
        route: its route.
        params: the named segments of the path.
        negotiated: the versions and formats that Accept and Content-Type mean.
        engine: answers it.
        config: the section ``rest`` of the configuration.
        cluster_name: the configured name of the request's cluster.
        share: the request's part of the byte budget; given back when the answer is written.
        peers: the daemons that own other consumer instances.
        steps: gives the steps of long requests their turns.
    """

    __slots__ = (
        "_delivery",
        "_query",
        "cluster_name",
        "config",
        "engine",
        "negotiated",
        "params",
        "peers",
        "request",
        "route",
        "share",
        "steps",
    )

    def __init__(
        self,
        request: web.BaseRequest,
        match: Match,
        negotiated: Negotiated,
        engine: Engine,
        share: Share,
        peers: Peers,
        steps: Pace,
    ) -> None:
        self.request = request
        self.route = match.route
        self.params = match.params
        self.negotiated = negotiated
        self.engine = engine
        self.config: Rest = engine.config.rest
        self.cluster_name = engine.config.cluster_name(match.cluster)
        self.share = share
        self.peers = peers
        self.steps = steps
        self._delivery: Delivery | None = None
        self._query: dict[str, str] | None = None

    @property
    def cluster(self) -> AnyCluster:
        """The request's cluster. Raises UnknownCluster."""
        return self.engine.cluster(self.cluster_name)

    async def give_way(self) -> None:
        """Let other requests have their turn."""
        caller = shares.caller.get()
        turn = self.steps.enter(caller)
        if turn is not None:
            await self.steps.wait(turn, caller)

    async def begin_turn(self) -> None:
        """Let other requests have their turn, also if this one has not lasted long: what follows takes milliseconds."""
        await asyncio.sleep(0)
        await self.give_way()

    # -- the request ------------------------------------------------------------------------------

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters; the first of several values counts. Raises ApiError (422) if there are too many."""
        if self._query is None:
            text = self.request.raw_path.partition("?")[2].partition("#")[0]
            if text.count("&") >= MOST_PARAMETERS:
                raise ApiError(errors.INVALID, f"too many parameters, at most {MOST_PARAMETERS} are read")
            self._query = {}
            for name, value in parse_qsl(text, keep_blank_values=True, errors="replace"):
                self._query.setdefault(name, value)
        return self._query

    def integer(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1
    ) -> int | None:
        """Return a query parameter as a number.

        Args:
            name: of the parameter.
            default: returned if the parameter is missing or empty.
            least: the smallest value allowed.
            most: the largest value allowed.

        Raises:
            ApiError: 422, not a number in that range.
        """
        text = self.query.get(name, "")
        return default if text == "" else to_integer(text, name, least=least, most=most)

    @property
    def partition(self) -> int:
        """The path's ``{partition}``. Raises ApiError (404) if it is not a number."""
        text = self.params["partition"]
        if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
            raise ApiError(errors.PARTITION_NOT_FOUND)
        return int(text)

    async def body(self) -> bytes:
        """Return the whole body; see :func:`pixy.api.restv1.bodies.read`."""
        return await bodies.read(self.request, self.config, self.share)

    async def document(self, decoder: msgspec.json.Decoder[T], empty: bytes = b"{}") -> T:
        """Return the body's JSON document, typed.

        Args:
            decoder: of the type.
            empty: the document that an empty body stands for.

        Raises:
            ApiError: see :func:`pixy.api.restv1.bodies.parse`.
        """
        body = await self.body()
        return bodies.parse(empty if bodies.is_empty(body) else body, decoder)

    # -- the answer -------------------------------------------------------------------------------

    async def answer(
        self,
        body: bytes,
        status: int = 200,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> web.Response:
        """Return an answer with a body, compressed if the client accepts gzip and ``rest.gzip`` is on.

        Args:
            body: not compressed.
            status: of HTTP.
            content_type: the negotiated one if empty.
            headers: more headers.
        """
        sent = {"Content-Type": content_type or self.negotiated.content_type}
        if headers:
            sent.update(headers)
        if self.config.gzip:
            sent["Vary"] = "Accept-Encoding"
            if len(body) >= _GZIP_FROM and accepts_gzip(self.request.headers.get("Accept-Encoding")):
                sent["Content-Encoding"] = "gzip"
                # Compressing 64 KiB takes a millisecond; a longer body would delay other requests.
                if len(body) <= _GZIP_ON_LOOP:
                    body = gzip.compress(body, _GZIP_LEVEL)
                else:
                    body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
        return Answer(body=body, status=status, headers=sent)

    async def json(self, document: Any, status: int = 200) -> web.Response:
        """Return an answer with a JSON document.

        Args:
            document: of types that msgspec can encode.
            status: of HTTP.
        """
        return await self.answer(msgspec.json.encode(document), status)

    def deliver(self, delivery: Delivery) -> None:
        """Tell ``delivery`` later whether the answer, which contains it, was written."""
        self._delivery = delivery

    def settle(self, sent: bool) -> None:
        """Tell the delivery in the answer whether the answer was written. Only the first call counts."""
        delivery, self._delivery = self._delivery, None
        if delivery is None:
            return
        if sent and self.request.method != "HEAD":
            delivery.sent()
        else:
            delivery.give_back()

    def nothing(self) -> web.Response:
        """Answer 204 No Content."""
        return web.Response(status=204)


def to_integer(text: str, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """Parse a decimal number.

    Args:
        text: the number.
        name: of the parameter, for the error.
        least: the smallest value allowed.
        most: the largest value allowed.

    Raises:
        ApiError: 422, not a number in that range.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 19:
        raise ApiError(errors.INVALID, f"{name}: {text[:40]!r} is not a number")
    value = int(text)
    if not least <= value <= most:
        raise ApiError(errors.INVALID, f"{name}: {value} must be {least} to {most}")
    return value


def error_answer(
    kind: ErrorKind,
    content_type: str,
    *,
    allowed: frozenset[str] = frozenset(),
    retry_after: float = 1.0,
) -> web.Response:
    """Return the answer to an error.

    Args:
        kind: status, code and text.
        content_type: of the answer.
        allowed: the methods for the Allow header, with a 405.
        retry_after: seconds for the Retry-After header, with a 429 or 503.
    """
    headers = {"Content-Type": content_type}
    if allowed:
        headers["Allow"] = ", ".join(sorted(allowed))
    if kind.status in (429, 503):
        headers["Retry-After"] = str(max(1, round(retry_after)))
    body = msgspec.json.encode({"error_code": kind.code, "message": _printable(kind.text)})
    response = Answer(body=body, status=kind.status, headers=headers)
    if kind.status == 413:
        response.force_close()  # the rest of the body is not read
    return response


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def accepts_gzip(accepted: str | None) -> bool:
    if not accepted or len(accepted) > MOST:
        return False
    for element in accepted.split(","):
        name, _, parameter = element.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return parameter.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
