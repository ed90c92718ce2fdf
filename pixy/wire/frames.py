"""Frames without IO: cut a stream into frames, decode and encode requests and responses with their headers.

A frame on the wire is a 4-byte length and that many bytes. :class:`FrameSplitter` yields, and the decoders take, frames
without the length; the encoders return frames with it, ready to send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pixy.wire import messages
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError, UnsupportedVersionError

MAX_FRAME: Final = 100 * 1024 * 1024
"""Largest frame in bytes, the broker's default (``socket.request.max.bytes``)."""

UNSUPPORTED_VERSION: Final = 35
_HEADER: Final = struct.Struct(">hhih")
_LENGTH: Final = struct.Struct(">i")
_NO_TAGS: Final[Mapping[int, bytes]] = MappingProxyType({})


class FrameSplitter:
    """Cuts a stream of bytes into frames, copying each byte a bounded number of times.

    >>> splitter = FrameSplitter()
    >>> list(splitter.feed(bytes.fromhex("00000002aabb000000")))
    [b'\\xaa\\xbb']
    >>> list(splitter.feed(bytes.fromhex("01cc")))
    [b'\\xcc']

    It holds at most ``max_size`` bytes and the bytes fed last. A length that is negative or above ``max_size`` raises
    DecodeError with its byte in the stream, now and at every later call, after the frames before it.

    Args:
        max_size: largest frame accepted, in bytes.
    """

    def __init__(self, max_size: int = MAX_FRAME) -> None:
        self.max_size = max_size
        self._data = b""
        self._pos = 0  # start of the next frame in ``_data``
        self._passed = 0  # bytes of the stream before ``_data``
        self._parts: list[bytes] = []  # of an incomplete frame
        self._held = self._need = 0  # bytes in ``_parts``, and bytes needed before the next look

    def feed(self, data: messages.Buffer) -> Iterator[bytes]:
        """Take the next bytes of the stream and yield the frames that are complete.

        Frames that the caller leaves in the iterator stay for the next call. Raises DecodeError.
        """
        if type(data) is not bytes:
            data = bytes(data)
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
        elif self._pos < len(self._data):
            self._passed += self._pos
            self._data, self._pos = self._data[self._pos :] + data, 0
        else:
            self._passed += self._pos
            self._data, self._pos = data, 0
        return self._frames()

    def _frames(self) -> Iterator[bytes]:
        if self._parts:
            if self._held < self._need:
                return
            self._data, self._pos, self._parts = b"".join(self._parts), 0, []
        data, pos = self._data, self._pos
        while len(data) - pos >= 4:
            (length,) = _LENGTH.unpack_from(data, pos)
            end = pos + 4 + length
            if not 0 <= length <= self.max_size:
                raise DecodeError(
                    f"frame of {length} bytes, at most {self.max_size} are allowed", self._passed + pos
                )
            if end > len(data):
                self._keep(4 + length)
                return
            self._pos = end
            yield data[pos + 4 : end]
            data, pos = self._data, self._pos  # more may have come while the caller was busy
        self._keep(4)

    def _keep(self, need: int) -> None:
        """Hold the beginning of the next frame until there are ``need`` bytes."""
        rest = self._data[self._pos :]
        self._passed += self._pos
        self._data, self._pos = b"", 0
        if rest:
            self._parts, self._held, self._need = [rest], len(rest), need

    @property
    def pending(self) -> int:
        """Bytes held of an incomplete frame: 0 at a clean end of the stream."""
        return self._held if self._parts else len(self._data) - self._pos


class RequestHeader(NamedTuple):
    """The header of a request. ``end`` is the offset of the body in the frame."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    end: int
    tags: Mapping[int, bytes] = _NO_TAGS


class Request(NamedTuple):
    """A request; ``name`` is the message's, as ``JoinGroupRequest``."""

    header: RequestHeader
    name: str
    version: int
    body: messages.Body


class Response(NamedTuple):
    """A response; ``version`` is the one that its bytes have (see :func:`decode_response`)."""

    correlation_id: int
    name: str
    version: int
    body: messages.Body
    tags: Mapping[int, bytes] = _NO_TAGS


def to_key(api: str | int) -> int:
    """Return the API key of ``"JoinGroup"``, ``"JoinGroupRequest"`` or 11. Raises UnsupportedVersionError."""
    if isinstance(api, int):
        return api
    key = messages.api_key(api)
    if key is None:
        raise UnsupportedVersionError(f"{api} is neither a request nor a response")
    return key


@cache
def _header_version(key: int, version: int) -> int:
    """Return the version of a request's header. Unknown APIs and versions, of a later Kafka, count as flexible."""
    try:
        if version <= messages.versions(messages.request_name(key))[-1]:
            return messages.request_header_version(key, version)
    except UnsupportedVersionError:
        pass
    return 1 if key == 17 else 2  # SaslHandshake never becomes flexible


def decode_request_header(frame: messages.Buffer) -> RequestHeader:
    """Decode the header of a request, also of an unknown API or version. Raises DecodeError."""
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
    except struct.error:
        if len(frame) == 8 and bytes(frame[:4]) == b"\0\7\0\0":  # ControlledShutdown v0
            return RequestHeader(7, 0, _LENGTH.unpack_from(frame, 4)[0], None, 8)
        raise TruncatedError("RequestHeader: the message ends", len(frame)) from None
    header_version = _header_version(key, version)
    if header_version == 0:
        return RequestHeader(key, version, correlation_id, None, 8)
    end = 10 + max(length, 0)
    if length < -1 or end > len(frame):
        raise (DecodeError if length < -1 else TruncatedError)(
            f"RequestHeader: ClientId of {length} bytes", 8
        )
    try:
        client_id = None if length < 0 else str(frame[10:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("RequestHeader: ClientId: not UTF-8", 10 + error.start) from None
    if header_version == 1:
        return RequestHeader(key, version, correlation_id, client_id, end)
    if end < len(frame) and frame[end] == 0:
        return RequestHeader(key, version, correlation_id, client_id, end + 1)
    fields, end = messages.decode_from("RequestHeader", 2, frame)
    return RequestHeader(key, version, correlation_id, client_id, end, fields.get(messages.TAGS, _NO_TAGS))


def decode_request(frame: messages.Buffer) -> Request:
    """Decode a request, header and body.

    Raises:
        DecodeError: the frame is malformed, or cut off (TruncatedError).
        UnsupportedVersionError: the API or version is unknown.
    """
    header = decode_request_header(frame)
    name = messages.request_name(header.key)
    return Request(header, name, header.version, messages.decode(name, header.version, frame, header.end))


def decode_response(frame: messages.Buffer, api: str | int, version: int) -> Response:
    """Decode the response to a request.

    A broker that does not support the version of an ApiVersions request answers error 35 in version 0 (KIP-511);
    ``version`` of the result is 0 then. librdkafka's mock cluster sends malformed bytes after the error, so they are
    ignored if they cannot be decoded: the client asks again in version 0 anyway.

    Args:
        frame: the response, without its length.
        api: name or key of the request's API.
        version: version of the request.

    Raises:
        DecodeError: the frame is malformed, or cut off (TruncatedError).
        UnsupportedVersionError: the API or version is unknown.
    """
    key = to_key(api)
    if key == messages.API_VERSIONS and len(frame) >= 6 and frame[4] == 0 and frame[5] == UNSUPPORTED_VERSION:
        try:
            return _decode_response(frame, key, 0)
        except DecodeError:
            body = {"ErrorCode": UNSUPPORTED_VERSION, "ApiKeys": []}
            return Response(
                int.from_bytes(frame[:4], "big", signed=True), messages.response_name(key), 0, body, _NO_TAGS
            )
    return _decode_response(frame, key, version)


def _decode_response(frame: messages.Buffer, key: int, version: int) -> Response:
    name = messages.response_name(key)
    fields, end = messages.decode_from(
        "ResponseHeader", messages.response_header_version(key, version), frame
    )
    body = messages.decode(name, version, frame, end)
    return Response(fields["CorrelationId"], name, version, body, fields.get(messages.TAGS, _NO_TAGS))


def encode_request(
    api: str | int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: Mapping[str, Any],
) -> bytes:
    """Encode a request as a frame, length included.

    Args:
        api: name or key of the API.
        version: version of the request.
        correlation_id: returned by the broker in the response, int32.
        client_id: None for null.
        body: fields by name; missing ones have the schema's defaults.

    Raises:
        EncodeError: the body does not fit the schema.
        UnsupportedVersionError: the API or version is unknown.
    """
    key = to_key(api)
    content = messages.encode(messages.request_name(key), version, body)
    header = {"RequestApiKey": key, "RequestApiVersion": version, "CorrelationId": correlation_id}
    header_version = messages.request_header_version(key, version)
    if header_version:
        return _framed(
            messages.encode("RequestHeader", header_version, {**header, "ClientId": client_id}), content
        )
    return _framed(messages.encode("RequestHeader", 0, header), content)


def encode_response(api: str | int, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """Encode a response as a frame, length included.

    Args:
        api: name or key of the API.
        version: version of the request that it answers.
        correlation_id: that of the request.
        body: fields by name; missing ones have the schema's defaults.

    Raises:
        EncodeError: the body does not fit the schema.
        UnsupportedVersionError: the API or version is unknown.
    """
    key = to_key(api)
    content = messages.encode(messages.response_name(key), version, body)
    header_version = messages.response_header_version(key, version)
    return _framed(
        messages.encode("ResponseHeader", header_version, {"CorrelationId": correlation_id}), content
    )


def frame(payload: messages.Buffer) -> bytes:
    """Prefix ``payload`` with its length, as for SASL tokens after SaslHandshake v0. Raises EncodeError."""
    return _framed(bytes(payload))


def _framed(*parts: bytes) -> bytes:
    length = sum(map(len, parts))
    try:
        return b"".join([_LENGTH.pack(length), *parts])
    except struct.error:
        raise EncodeError(f"frame of {length} bytes") from None
