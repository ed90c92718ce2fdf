"""Bodies of requests: read within bounds, unpacked, parsed, with errors that name the place."""

from __future__ import annotations

import zlib
from typing import TypeVar

import msgspec
from aiohttp import web

from pixy.api import bodies as reading
from pixy.api.restv1 import errors
from pixy.api.restv1.budget import Share
from pixy.api.restv1.errors import ApiError

T = TypeVar("T")

_EMPTY = (b"", b"{}", b'""', b"null")
_UNPACK_STEP = 256 * 1024
_BLANKS = b" \t\r\n"


async def read(request: web.BaseRequest, limit: int, share: Share) -> bytes:
    """The whole body, chunked or not, unpacked if it came with ``Content-Encoding: gzip``.

    Args:
        limit: the most bytes, packed and unpacked (``rest.max_request_bytes``).
        share: holds what is read.

    Raises:
        ApiError: 413 it is longer, 415 it is packed in another way, 400 it is no valid body.
        OverBudget: there is no room for it now.
    """
    packed = request.body_exists and _packed(request)

    def grows(total: int) -> None:
        if total > limit:
            raise too_large(limit)
        if total > share.held:
            share.take(total - share.held)

    try:
        body = await reading.read(request, grows)
    except reading.UnreadableBody as error:
        raise ApiError(errors.BAD_REQUEST, f"failed to read the body: {error}") from error
    return unpack(body, limit, share) if packed and body else body


def too_large(limit: int) -> ApiError:
    """The error of a body above the bound."""
    return ApiError(
        errors.TOO_LARGE,
        f"the request is too large, at most {limit} bytes are read (`rest.max_request_bytes`)",
    )


def _packed(request: web.BaseRequest) -> bool:
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity"):
        return False
    if coding in ("gzip", "x-gzip"):
        return True
    raise ApiError(
        errors.UNSUPPORTED_MEDIA_TYPE,
        f"HTTP 415 Unsupported Media Type: Content-Encoding {coding}; send gzip or identity",
    )


def unpack(body: bytes, limit: int, share: Share) -> bytes:
    """gunzip, at most to ``limit`` bytes: a small body must not become a large one unseen."""
    unpacker = zlib.decompressobj(wbits=31)
    chunks: list[bytes] = []
    total = 0
    data = body
    try:
        while data and not unpacker.eof:
            chunk = unpacker.decompress(data, _UNPACK_STEP)
            data = unpacker.unconsumed_tail
            total += len(chunk)
            if total > limit:
                raise too_large(limit)
            share.take(len(chunk))
            chunks.append(chunk)
        if not unpacker.eof:
            raise zlib.error("it ends too early")
    except zlib.error as error:
        raise ApiError(errors.BAD_REQUEST, f"the body is not gzip: {error}") from error
    return b"".join(chunks)


def is_empty(body: bytes) -> bool:
    """Whether a body says nothing: none, ``{}``, ``""`` or null, as some clients always send."""
    return len(body) <= 64 and body.strip(_BLANKS) in _EMPTY


def parse(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The document, typed. Unknown fields are ignored.

    Raises:
        ApiError: 400 it is not JSON, or not of the right type as a whole; 422 a field is not, and
            the text names it.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        field, problem = field_error(str(error))
        if not field:
            raise ApiError(errors.BAD_REQUEST, f"the body: {problem}") from None
        raise ApiError(errors.INVALID, f"{field}: {problem}") from None
    except msgspec.DecodeError as error:
        raise ApiError(errors.BAD_REQUEST, f"the body is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise ApiError(errors.BAD_REQUEST, f"the body is not UTF-8: {error}") from None
    except RecursionError:
        raise ApiError(errors.BAD_REQUEST, "the body is not JSON: nested too deep") from None


def field_error(text: str) -> tuple[str, str]:
    """The field and the problem of msgspec's ``Expected `int`, got `str` - at `$.records[0].key```."""
    problem, _, place = text.partition(" - at `$")
    return place.rstrip("`").removeprefix("."), problem
