"""Read, decompress and parse the bodies of requests, within limits. Errors name the field."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from pixy.api import bodies as reading
from pixy.api.edge.budget import Share
from pixy.api.restv1 import errors
from pixy.api.restv1.errors import ApiError
from pixy.config.model import Rest

T = TypeVar("T")

_EMPTY = (b"", b"{}", b'""', b"null")
_GUNZIP_ON_LOOP = 64 * 1024
"""Bytes of a body that is decompressed on the loop: a longer one may be much to read, though nothing comes out of it."""
_GUNZIP_STEP = 256 * 1024
"""Bytes that come out there, in less than a millisecond; what is more comes out step by step, in a thread."""
_LONG = 2 << 20
"""Bytes of a body whose reading takes a turn of its own."""
_MOST_MEMBERS = 32
"""Members of a gzip body; after each one, the rest of the body is copied."""
_RATIO_FROM = 1 << 20
"""Bytes from which the ratio counts: a small body costs little, however well it was packed."""
_OBJECTS_PER_RECORD = 10
_WHITE_SPACE = b" \t\r\n"


async def read(request: web.BaseRequest, config: Rest, share: Share) -> bytes:
    """Return the whole body, chunked or not, decompressed if it has ``Content-Encoding: gzip``.

    Args:
        request: aiohttp's.
        config: the limits: ``max_request_bytes``, both compressed and decompressed; ``max_gzip_ratio``; and ten JSON
            objects for each of ``max_request_records``.
        share: takes the bytes that have arrived from the byte budget.

    Raises:
        ApiError: 413, the body is longer, or has more objects; 415, another Content-Encoding; 400, the body is not valid.
        OverBudget: the byte budget has no room for it now.
    """
    compressed = request.body_exists and _is_gzip(request)
    limit = config.max_request_bytes

    def promised(total: int) -> None:
        if total > limit:
            raise too_large(limit)

    def grows(total: int) -> None:
        promised(total)
        if total > share.held:
            share.take(total - share.held)

    try:
        body = await reading.read(request, share, grows, promised)
    except reading.UnreadableBody as error:
        raise ApiError(errors.BAD_REQUEST, f"failed to read the body: {error}") from error
    if compressed and body:
        body = await gunzip(body, config, share)
    if len(body) > _LONG:
        # Putting the pieces of 16 MiB together takes some milliseconds, and counting as many.
        await asyncio.sleep(0)
    # Parsing takes seconds for a body of empty objects.
    if body.count(b"{") > _OBJECTS_PER_RECORD * config.max_request_records:
        raise too_many(config)
    return body


def too_large(limit: int) -> ApiError:
    """Return the error for a body above the limit."""
    return ApiError(
        errors.TOO_LARGE,
        f"the request is too large, at most {limit} bytes are read (`rest.max_request_bytes`)",
    )


def too_many(config: Rest) -> ApiError:
    """Return the error for a body with too many records, or JSON objects."""
    return ApiError(
        errors.TOO_LARGE,
        f"the request is too large, at most {config.max_request_records} records are taken "
        "(`rest.max_request_records`)",
    )


def _is_gzip(request: web.BaseRequest) -> bool:
    coding = reading.coding_of(request)
    if not coding:
        return False
    if coding in ("gzip", "x-gzip"):
        return True
    raise ApiError(
        errors.UNSUPPORTED_MEDIA_TYPE,
        f"HTTP 415 Unsupported Media Type: Content-Encoding {coding}; send gzip or identity",
    )


async def gunzip(body: bytes, config: Rest, share: Share) -> bytes:
    """Decompress gzip, of one member or several, in steps, so that a small body cannot become a large one unnoticed.

    Args:
        body: compressed.
        config: the most bytes decompressed, and the most for each byte of ``body``.
        share: takes the decompressed bytes from the byte budget.

    Raises:
        ApiError: 413, more bytes; 400, not gzip.
        OverBudget: the byte budget has no room for them now.
    """
    decompressor = zlib.decompressobj(wbits=31)
    chunks: list[bytes] = []
    total, members = 0, 1
    data = body
    try:
        while data:
            if decompressor.eof:
                decompressor, members = zlib.decompressobj(wbits=31), members + 1
            if members > _MOST_MEMBERS:
                raise zlib.error(f"it has more than {_MOST_MEMBERS} members")
            if total == 0 and len(data) <= _GUNZIP_ON_LOOP:
                chunk = decompressor.decompress(data, _GUNZIP_STEP)
            else:
                chunk = await asyncio.to_thread(decompressor.decompress, data, _RATIO_FROM)
            data = (
                await _unpadded(decompressor.unused_data)
                if decompressor.eof
                else decompressor.unconsumed_tail
            )
            total += len(chunk)
            if total > config.max_request_bytes:
                raise too_large(config.max_request_bytes)
            if total > _RATIO_FROM and total > config.max_gzip_ratio * len(body):
                raise ApiError(
                    errors.TOO_LARGE,
                    f"the request is too large, it unpacks to more than {config.max_gzip_ratio} times its size "
                    "(`rest.max_gzip_ratio`)",
                )
            share.take(len(chunk))
            chunks.append(chunk)
        if not decompressor.eof:
            raise zlib.error("it ends too early")
    except zlib.error as error:
        raise ApiError(errors.BAD_REQUEST, f"the body is not gzip: {error}") from error
    return b"".join(chunks)


async def _unpadded(data: bytes) -> bytes:
    """Leave out the zeros behind a member of gzip, a piece in each turn of the loop: they may be all of the body."""
    at = 0
    while True:
        piece = data[at : at + _GUNZIP_STEP]
        rest = len(piece.lstrip(b"\0"))
        at += len(piece) - rest
        if rest or not piece:
            return data[at:]
        await asyncio.sleep(0)


def is_empty(body: bytes) -> bool:
    """Return whether a body means none: empty, ``{}``, ``""`` or null, which some clients always send."""
    return len(body) <= 64 and body.strip(_WHITE_SPACE) in _EMPTY


def parse(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a JSON document. Unknown fields are ignored, unless its type forbids them.

    Args:
        body: the document.
        decoder: of its type.

    Raises:
        ApiError: 400, not JSON, or the document is of another type; 422, a field is of another type,
            and the text names it.
    """
    try:
        return decoder.decode(body)
    except WRONG as error:
        raise refusal(error) from None


WRONG: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the parser raises."""


def refusal(error: Exception) -> ApiError:
    """Return the error for a document of which the parser has raised one of :data:`WRONG`."""
    if isinstance(error, msgspec.ValidationError):
        field, problem = field_error(str(error))
        if not field:
            return ApiError(errors.BAD_REQUEST, f"the body: {problem}")
        return ApiError(errors.INVALID, f"{field}: {problem}")
    if isinstance(error, UnicodeDecodeError):
        return ApiError(errors.BAD_REQUEST, f"the body is not UTF-8: {error}")
    if isinstance(error, RecursionError):
        return ApiError(errors.BAD_REQUEST, "the body is not JSON: nested too deep")
    return ApiError(errors.BAD_REQUEST, f"the body is not JSON: {error}")


def field_error(text: str) -> tuple[str, str]:
    """Split msgspec's ``Expected `int`, got `str` - at `$.records[0].key``` into field and problem."""
    problem, _, field = text.partition(" - at `$")
    return field.rstrip("`").removeprefix("."), problem
