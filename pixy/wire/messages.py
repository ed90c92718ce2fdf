"""Decode and encode Kafka's protocol messages, in all versions, as dictionaries.

Messages and fields have the names of Kafka's schemas: ``JoinGroupRequest``, ``GroupId``. A body is a dict with the
fields of its version: integers are int, ``bytes`` and ``records`` bytes, ``uuid`` a :class:`uuid.UUID` (all zero for
none), null is None, arrays are lists and structures dicts. A structure with unknown tagged fields has them under
``_tags``, tag number to bytes.

    >>> body = {"GroupId": "g", "MemberId": "m", "GenerationId": 3}
    >>> encode("HeartbeatRequest", 0, body).hex()
    '0001670000000300016d'
    >>> decode("HeartbeatRequest", 0, bytes.fromhex("0001670000000300016d"))
    {'GroupId': 'g', 'GenerationId': 3, 'MemberId': 'm'}

A decoder never allocates for elements whose bytes are not in the buffer. A dict may still take a hundred times the
memory of its bytes, so limit the size of frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pixy.wire import decoders, schema
from pixy.wire.encoders import FAILURES, encoder
from pixy.wire.exceptions import DecodeError, EncodeError, UnsupportedVersionError
from pixy.wire.normalize import TAGS, normalize
from pixy.wire.varint import Buffer

API_VERSIONS: Final = 18
CONTROLLED_SHUTDOWN: Final = 7

Body = dict[str, Any]

_decoders: dict[tuple[str, int], decoders.Decoder] = {}


def decode(name: str, version: int, buffer: Buffer, offset: int = 0) -> Body:
    """Decode a body that fills ``buffer`` from ``offset`` to its end.

    Args:
        name: message name, as ``JoinGroupRequest``.
        version: version of the message.
        buffer: bytes with the body.
        offset: first byte of the body.

    Raises:
        DecodeError: the body is malformed, or cut off (TruncatedError); the offset is the byte in ``buffer``.
        UnsupportedVersionError: the message or version is unknown.
    """
    body, end = decode_from(name, version, buffer, offset)
    if end != len(buffer):
        raise DecodeError(f"{name} v{version}: {len(buffer) - end} bytes are left over", end)
    return body


def decode_from(name: str, version: int, buffer: Buffer, offset: int = 0) -> tuple[Body, int]:
    """Decode as :func:`decode` does a body that may end before the buffer; return it and the offset after it."""
    try:
        function = _decoders[name, version]
    except KeyError:
        function = _decoders[name, version] = decoders.decoder(name, version)
    if type(buffer) is not bytes:
        buffer = bytes(buffer)
    size = len(buffer)
    if not 0 <= offset <= size:
        raise DecodeError(f"{name} v{version}: begins outside of the {size} bytes", offset)
    try:
        return function(buffer, offset, size)
    except decoders.FAILURES as error:
        raise decoders.explain(function, f"{name} v{version}", error, size) from None


def encode(name: str, version: int, body: Mapping[str, Any]) -> bytes:
    """Encode a body. Missing fields get the schema's defaults.

    Args:
        name: message name, as ``JoinGroupRequest``.
        version: version of the message.
        body: fields by name.

    Raises:
        EncodeError: the body does not fit the schema; the text names the field.
        UnsupportedVersionError: the message or version is unknown.
    """
    function = encoder(name, version)
    if type(body) is dict:
        try:
            return function(body)
        except FAILURES:
            pass  # wrong, or merely incomplete: normalize tells
    full = normalize(schema.message(name), version, body)
    try:
        return function(full)
    except FAILURES as error:  # e.g. 2 GiB of bytes
        raise EncodeError(f"{name} v{version}: {error}") from None


def defaults(name: str, version: int) -> Body:
    """Return a body in which every field has its default. Raises UnsupportedVersionError."""
    function = schema.message(name)
    encoder(name, version)
    return {each.name: each.default_in(version) for each in function.fields if version in each.versions}


def names() -> list[str]:
    """List all messages in order of API keys; headers and embedded data come last."""
    return list(schema.blocks())


def api_key(name: str) -> int | None:
    """Return the API key of a message or an API (``JoinGroup``), None for a header or embedded data.

    Raises UnsupportedVersionError.
    """
    known = name if name in schema.blocks() else f"{name}Request"
    return schema.message(known).key


def api_name(key: int) -> str:
    """Return the name of an API: ``JoinGroup`` for 11. Raises UnsupportedVersionError."""
    try:
        return schema.keys()[key]
    except KeyError:
        raise UnsupportedVersionError(f"unknown API key {key}") from None


def request_name(key: int) -> str:
    """Return the name of an API's request: ``JoinGroupRequest`` for 11. Raises UnsupportedVersionError."""
    return f"{api_name(key)}Request"


def response_name(key: int) -> str:
    """Return the name of an API's response: ``JoinGroupResponse`` for 11. Raises UnsupportedVersionError."""
    return f"{api_name(key)}Response"


def versions(name: str) -> range:
    """Return the known versions of a message. Raises UnsupportedVersionError for an unknown message."""
    return schema.message(name).versions


def first_flexible(name: str) -> int | None:
    """Return the first version with compact lengths and tagged fields (KIP-482), None if there is none."""
    flexible = schema.message(name).flexible
    return flexible[0] if flexible else None


def request_header_version(key: int, version: int) -> int:
    """Return the version of the RequestHeader that precedes a request.

    Args:
        key: of the API.
        version: of the request.
    """
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return 0  # the only header without a client id
    return 2 if version in schema.message(request_name(key)).flexible else 1


def response_header_version(key: int, version: int) -> int:
    """Return the version of the ResponseHeader that precedes a response.

    Args:
        key: of the API.
        version: of the response.
    """
    # A client that sends ApiVersions does not know yet which headers the broker uses (KIP-511).
    if key == API_VERSIONS:
        return 0
    return 1 if version in schema.message(response_name(key)).flexible else 0


__all__ = [
    "API_VERSIONS",
    "TAGS",
    "Body",
    "Buffer",
    "api_key",
    "api_name",
    "decode",
    "decode_from",
    "defaults",
    "encode",
    "first_flexible",
    "names",
    "request_header_version",
    "request_name",
    "response_header_version",
    "response_name",
    "versions",
]
